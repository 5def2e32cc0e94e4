"""
Run work in a child process, so that it may crash or hang and the plan still comes in time.

The parent writes a pickled question to standard input; the child reports on standard output, any number of
times. Output that solvers print goes to standard error. A child outlives neither its time nor a killed
parent: the kernel ends it in both cases, in the second on Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import pkgutil
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Final

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.interface import SolverAnswer, validated_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.formulation.rows import Formulation, Ints
    from gpuplan.solvers.interface import Budget

GRACE_SECONDS: Final = 0.2
"""Time after its deadline until a solver is killed."""

_HEARTBEAT: Final = 0.1
"""Seconds between two calls of the listener, if nothing was reported."""

_STDERR_CHARACTERS: Final = 200
"""Characters of a failed child's last line of output that are passed on."""

_SELF_KILL_SECONDS: Final = 5.0
"""Seconds after which a child that was not killed is ended by its own timer."""

_PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2)."""

_GC_THRESHOLD: Final = 100_000
"""New objects between two garbage collections: nearly all objects of a large model stay."""

_MALLOC_ENVIRONMENT: Final = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
"""
Makes the C library return large blocks as soon as they are free: HiGHS, run again and again with more rows,
then takes half as much memory.
"""


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """Result of work in a child process."""

    last: object = None
    """The last report; None without one."""
    killed: bool = False
    failure: str = ""
    """Why the child failed by itself; empty if it did not."""


def solve_in_child(
    solver: str,
    formulation: Formulation,
    budget: Budget,
    hint: Ints,
    hear: Callable[[SolverAnswer | None], None] | None = None,
) -> SolverAnswer:
    """
    Run a solver, named by its entry point, in a child process that is killed soon after its deadline.

    Every failure becomes an Answer: its last report, if any, when the child had to be killed; FAILED when it
    crashed or is missing. `hear` is called with each report on the way, and with None from time to time.
    """

    def listen(message: object) -> None:
        if hear is not None:
            hear(validated_answer(message))

    done = run_in_child(solver, (formulation, budget, hint), budget.seconds, listen)
    last = validated_answer(done.last)
    if done.killed:
        detail = "did not stop at its time limit and was killed"
        return (
            SolverAnswer(SolveStatus.NO_ANSWER, detail=detail)
            if last is None
            else replace(last, detail=detail)
        )
    if done.failure:
        return SolverAnswer(SolveStatus.FAILED, detail=done.failure)
    return last or SolverAnswer(SolveStatus.FAILED, detail="gave no answer")


def run_in_child(
    entry: str, arguments: tuple[Any, ...], seconds: float, listen: Callable[[object], None]
) -> ChildOutcome:
    """
    Call `entry(*arguments, report)` in a child process; its reports and its result go to `listen`.

    See `ChildProcess.wait`.
    """
    with start_child(entry, arguments, seconds) as child:
        return child.wait(listen)


@contextmanager
def start_child(entry: str, arguments: tuple[Any, ...], seconds: float) -> Iterator[ChildProcess]:
    """A running child process that is gone at the end; the caller may follow it meanwhile."""
    began = time.monotonic()
    # -P and the path without "": files in the user's folder must not be imported.
    command = [sys.executable, "-P", "-m", "gpuplan.solvers.worker", str(os.getpid()), entry]
    path = os.pathsep.join(folder for folder in sys.path if folder)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | _MALLOC_ENVIRONMENT | {"PYTHONPATH": path},
            # A group of its own, so that everything the child starts can be killed with it.
            start_new_session=True,
        )
        child = ChildProcess(process, began + seconds + GRACE_SECONDS, errors)
        try:
            child.send((arguments, seconds + GRACE_SECONDS + _SELF_KILL_SECONDS))
            yield child
        finally:
            child.end()


class ChildProcess:
    """A running child process that sends reports."""

    def __init__(self, process: subprocess.Popen[bytes], deadline: float, errors: IO[bytes]) -> None:
        """It is killed at the deadline, an instant of `time.monotonic`; `errors` has its standard error."""
        self._process, self._deadline, self._errors = process, deadline, errors
        self.reports: queue.SimpleQueue[object] = queue.SimpleQueue()
        """Reports that are not read yet."""
        self._exchange: threading.Thread | None = None

    def send(self, question: object) -> None:
        """Send the question, and collect reports from now on."""
        # In a list, from which it is taken: no other reference keeps it in memory while the child works.
        pickled = [pickle.dumps(question)]
        self._exchange = threading.Thread(
            target=_exchange_messages, args=(self._process, pickled, self.reports), daemon=True
        )
        self._exchange.start()

    def wait(self, listen: Callable[[object], None]) -> ChildOutcome:
        """
        Listen until the child ends, or until its time and a grace period are over: then it is killed.

        `listen` is called in this thread with each report, and with None ten times a second if there is none.
        If it raises, the child is killed too.
        """
        last: object = None
        killed = False
        while (message := _next(self.reports)) is not _END_OF_REPORTS:
            last = last if message is None else message
            listen(message)
            if time.monotonic() > self._deadline:
                killed = True
                break
        self.end(wait=not killed)
        last = _last_report(self.reports, last)
        if killed:
            return ChildOutcome(last, killed=True)
        if self._process.returncode == 0:
            return ChildOutcome(last)
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return ChildOutcome(
            last, failure=f"ended with code {self._process.returncode}: {words[0][:_STDERR_CHARACTERS]}"
        )

    def end(self, *, wait: bool = False) -> None:
        """Kill the child and everything it started; with `wait` it first gets its time left to end."""
        left = self._deadline - time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, left) if wait else 0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._exchange is not None:
            self._exchange.join(GRACE_SECONDS)


_END_OF_REPORTS: Final = object()
"""Marks the end of the reports."""


def _next(news: queue.SimpleQueue[object]) -> object:
    """The next report; None if none comes within a heartbeat."""
    try:
        return news.get(timeout=_HEARTBEAT)
    except queue.Empty:
        return None


def _last_report(news: queue.SimpleQueue[object], last: object) -> object:
    """The last of the unread reports, or `last` if there are none."""
    while not news.empty():
        message = news.get()
        last = last if message is _END_OF_REPORTS else message
    return last


def _exchange_messages(
    child: subprocess.Popen[bytes], question: list[bytes], news: queue.SimpleQueue[object]
) -> None:
    """Send the question in the list; pass on every report, so that the child never waits for its parent."""
    assert child.stdin is not None  # noqa: S101 - both are pipes
    assert child.stdout is not None  # noqa: S101
    # A pipe may break while it is written, and again when the rest is flushed.
    with suppress(OSError), child.stdin:
        child.stdin.write(question.pop())
    with suppress(OSError, ValueError), child.stdout:
        for message in read_messages(child.stdout):
            news.put(message)
        while child.stdout.read(1 << 16):
            pass
    news.put(_END_OF_REPORTS)


def read_messages(stream: IO[bytes]) -> Iterator[object]:
    """All whole messages of a child that may have been killed while it wrote one."""
    while True:
        try:
            message = pickle.load(stream)  # noqa: S301 - written by our own child
        except Exception:  # noqa: BLE001 - bytes that are no message can fail in any way
            return
        if message is not None:
            yield message


def kill_on_parent_exit(parent: int) -> None:
    """
    Have the kernel kill this process when its parent, of that process id, has ended; on Linux only.

    The parent counts as ended when the thread that started this process ends.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the signal was set up
        os._exit(1)


def main() -> None:
    """Read a question, answer it, reporting on the way; the parent's id and the entry point are arguments."""
    kill_on_parent_exit(int(sys.argv[1]))
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The parent decides what an interruption means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def report(message: object) -> None:
        pickle.dump(message, reports)
        reports.flush()

    gc.set_threshold(_GC_THRESHOLD)
    # While the parent is still writing the question: the import takes as long.
    answer = pkgutil.resolve_name(sys.argv[2])
    arguments, seconds = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # The question stays to the end: it need not be searched for garbage again and again.
    gc.freeze()
    report(answer(*arguments, report))
    # The end of the process cleans up all that is left; libraries would take long for it.
    reports.close()
    os._exit(0)


if __name__ == "__main__":
    main()
