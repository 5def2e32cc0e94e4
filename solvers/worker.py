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
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

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

_LENGTH_BYTES: Final = 8
"""Bytes before an entry point, and before a question, that give its length."""

_KILL_SECONDS: Final = 0.2
"""Time for a killed child to be gone; with one that takes longer, its server is given up."""

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
def kept_server() -> Iterator[None]:
    """
    Let all children that this thread starts meanwhile come from one server, one after the other.

    The libraries are then loaded once: this takes longer than many a question. A child that is killed leaves
    its server behind.
    """
    if hasattr(_kept, "servers"):
        yield
        return
    _kept.servers = []
    try:
        yield
    finally:
        servers = _kept.servers
        del _kept.servers
        for server in servers:
            server.close()


def load_ahead(entry: str, *arguments: object) -> None:
    """
    Let the kept server load what an entry point needs, while this process does other work.

    With arguments it also calls it, for what it leaves behind for all later children. The server is started
    if there is none. Nothing happens outside of `kept_server`.
    """
    if not hasattr(_kept, "servers"):
        return
    if not _kept.servers:
        _kept.servers.append(_Server())
    _kept.servers[-1].write(_AHEAD + entry, [pickle.dumps(arguments)] if arguments else [b""])


@contextmanager
def start_child(entry: str, arguments: tuple[Any, ...], seconds: float) -> Iterator[ChildProcess]:
    """A running child process that is gone at the end; the caller may follow it meanwhile."""
    began = time.monotonic()
    kept = getattr(_kept, "servers", [])
    server = kept.pop() if kept else _Server()
    child = ChildProcess(server, began + seconds + GRACE_SECONDS)
    try:
        child.send(entry, (arguments, seconds + GRACE_SECONDS + _SELF_KILL_SECONDS))
        yield child
    finally:
        child.stop()
        if child.ended_well and hasattr(_kept, "servers"):
            _kept.servers.append(server)
        else:
            server.close()


_AHEAD: Final = "+"
"""Before an entry point that the server loads, and calls itself unless the question is empty."""

_kept: Final = threading.local()
"""Servers of a thread that wait for the next question. (The kernel ends them with their thread.)"""


class _Server:
    """A process that forks a child for each question, with the libraries loaded already."""

    def __init__(self) -> None:
        # -P and the path without "": files in the user's folder must not be imported.
        # As a module and not as the main program, so that its messages are of the parent's types.
        command = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()", str(os.getpid())]
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._writer: threading.Thread | None = None
        """The thread that sends the last question."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | _MALLOC_ENVIRONMENT | {"PYTHONPATH": path},
            # A group of its own, so that everything that is started can be killed with it. A session of its
            # own would be scheduled as one more user: `nice` counts only within a session.
            process_group=0,
        )

    def write(self, entry: str, question: list[bytes]) -> None:
        """
        Send the name of an entry point and the pickled question, after all that was sent before.

        This is done by a thread: the server reads nothing while it loads. The question is taken from its
        list, so that nothing keeps it in memory afterwards.
        """
        writer = threading.Thread(target=self._write, args=(entry, question, self._writer), daemon=True)
        self._writer = writer
        writer.start()

    def _write(self, entry: str, question: list[bytes], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(OSError, ValueError):  # a server that is gone is found out by its reader
            for part in (entry.encode(), question.pop()):
                self.process.stdin.write(len(part).to_bytes(_LENGTH_BYTES, "big"))
                self.process.stdin.write(part)
            self.process.stdin.flush()

    def last_words(self) -> str:
        """The last line that the processes wrote to standard error."""
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return words[0][:_STDERR_CHARACTERS]

    def end(self) -> int:
        """Kill what is left of the server, its child and everything that they started; the server's code."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    def close(self) -> None:
        """End the server and close what leads to it."""
        self.end()
        for stream in filter(None, (self.process.stdin, self.process.stdout)):
            with suppress(OSError, ValueError):
                stream.close()
        self._errors.close()


class ChildProcess:
    """A running child process that sends reports."""

    def __init__(self, server: _Server, deadline: float) -> None:
        """It is killed at the deadline, an instant of `time.monotonic`."""
        self._server, self._deadline = server, deadline
        self.reports: queue.SimpleQueue[object] = queue.SimpleQueue()
        """Reports that are not read yet."""
        self._begun = list[int]()
        """Its process id, which is that of its group too, once it has begun."""
        self.ended_well = False
        """True if its server can be asked again."""
        self._ended = False

    def send(self, entry: str, question: object) -> None:
        """Send the question, and collect reports from now on."""
        self._server.write(entry, [pickle.dumps(question)])
        threading.Thread(
            target=_pass_on_messages, args=(self._server, self.reports, self._begun), daemon=True
        ).start()

    def wait(self, listen: Callable[[object], None]) -> ChildOutcome:
        """
        Listen until the child ends, or until its time and a grace period are over: then it is killed.

        `listen` is called in this thread with each report, and with None ten times a second if there is none.
        If it raises, the child is killed too.
        """
        last: object = None
        while not isinstance(message := _next(self.reports), _Ended):
            last = last if message is None else message
            listen(message)
            if time.monotonic() > self._deadline:
                return ChildOutcome(self.stop(last), killed=True)
        self._ended = message.code is not None
        if message.code == 0:
            self.ended_well = True
            return ChildOutcome(last)
        # Without a code the server has ended too, or will now.
        code = self._server.end() if message.code is None else message.code
        return ChildOutcome(last, failure=f"ended with code {code}: {self._server.last_words()}")

    def stop(self, last: object = None) -> object:
        """
        Kill it, with all that it started, unless it has ended; the last of its unread reports, or `last`.

        Its server is of use again once it confirms the end of its child.
        """
        if self._ended:
            return last
        for group in self._begun:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        until = time.monotonic() + (_KILL_SECONDS if self._begun else 0.0)
        with suppress(queue.Empty):
            while True:
                message = self.reports.get(timeout=max(0.0, until - time.monotonic()))
                if isinstance(message, _Ended):
                    self._ended = self.ended_well = message.code is not None
                    break
                last = message
        return last


@dataclass(frozen=True, slots=True)
class _Ended:
    """The last message of each child, from its server."""

    code: int | None
    """As `subprocess` has it; None if the server gave none."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The first message of each child."""

    process: int


def _next(news: queue.SimpleQueue[object]) -> object:
    """The next report; None if none comes within a heartbeat."""
    try:
        return news.get(timeout=_HEARTBEAT)
    except queue.Empty:
        return None


def _pass_on_messages(server: _Server, news: queue.SimpleQueue[object], begun: list[int]) -> None:
    """Pass on every report, so that the child never waits for its parent."""
    assert server.process.stdout is not None  # noqa: S101 - it is a pipe
    for message in read_messages(server.process.stdout):
        if isinstance(message, _Begun):
            begun.append(message.process)
            continue
        news.put(message)
        if isinstance(message, _Ended):
            return
    news.put(_Ended(None))


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


def serve() -> None:
    """Serve the process with the id that is the argument: fork a child for each question until it ends."""
    kill_on_parent_exit(int(sys.argv[1]))
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The parent decides what an interruption means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(_GC_THRESHOLD)
    while entry := _read_part().decode():
        if entry.startswith(_AHEAD):
            _call_ahead(entry.removeprefix(_AHEAD), [_read_part()])
            continue
        # Before the fork, for all questions to come, and while the parent still writes this one.
        answer = pkgutil.resolve_name(entry)
        # In a list, from which the child takes it. Read whole, so that a killed child leaves nothing of it.
        question = [_read_part()]
        gc.freeze()
        server = os.getpid()
        if not (child := os.fork()):
            kill_on_parent_exit(server)
            # A group of its own, so that all that it starts can be killed without its server.
            os.setpgid(0, 0)
            _send(_Begun(os.getpid()), reports)
            _answer_question(answer, question, reports)
        question.clear()
        # What the child started and left ends with it; until it is waited for, no other group has its id.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _send(_Ended(code), reports)


def _call_ahead(entry: str, question: list[bytes]) -> None:
    with suppress(Exception):  # whatever is wrong, the child that needs it reports it
        call = pkgutil.resolve_name(entry)
        if question[0]:
            call(*pickle.loads(question.pop()))  # noqa: S301 - written by our own parent


def _read_part() -> bytes:
    """The next part of standard input, which begins with its length; empty at the end."""
    return _read(int.from_bytes(_read(_LENGTH_BYTES), "big"))


def _read(size: int) -> bytes:
    """So many bytes of standard input; fewer at its end."""
    parts = list[bytes]()
    while size > 0 and (more := os.read(0, size)):
        parts.append(more)
        size -= len(more)
    return b"".join(parts)


def _answer_question(answer: Callable[..., object], question: list[bytes], reports: IO[bytes]) -> NoReturn:
    """Answer a pickled question, reporting on the way, and end this process."""
    try:
        arguments, seconds = pickle.loads(question.pop())  # noqa: S301 - written by our own parent
        signal.setitimer(signal.ITIMER_REAL, seconds)
        # The question stays to the end: it need not be searched for garbage again and again.
        gc.freeze()
        _send(answer(*arguments, partial(_send, reports=reports)), reports)
    except BaseException:  # noqa: BLE001 - a fork must not return to its server
        traceback.print_exc()
        os._exit(1)
    # The end of the process cleans up all that is left; libraries would take long for it.
    os._exit(0)


def _send(message: object, reports: IO[bytes]) -> None:
    pickle.dump(message, reports)
    reports.flush()
