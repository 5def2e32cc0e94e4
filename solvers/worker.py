"""
Run work in a child process, so that it may crash or hang and the plan still comes in time.

The parent sends a pickled question to the worker's process (`worker_process`), which forks a child; the child
reports any number of times. Output that solvers print goes to standard error. A child outlives neither its
time nor a killed parent: the kernel ends it in both cases, in the second on Linux only.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.interface import SolverAnswer, validated_answer
from gpuplan.solvers.worker_process import (
    AHEAD,
    LENGTH_BYTES,
    ChildBegun,
    ChildEnded,
    read_messages,
    serve,
)

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

_KILL_SECONDS: Final = 0.2
"""Time for a killed child to be gone; with one that takes longer, its server is given up."""

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
    _kept.servers, _kept.calls = [], []
    try:
        yield
    finally:
        servers = _kept.servers
        del _kept.servers, _kept.calls
        for server in servers:
            server.close()


def load_ahead(entry: str, *arguments: object) -> None:
    """
    Let the kept server load what an entry point needs, while this process does other work.

    With arguments it also calls it, for what it leaves behind for all later children, and so does a server
    that takes its place: answers do not depend on which one is asked. The server is started if there is none.
    Nothing happens outside of `kept_server`.
    """
    if not hasattr(_kept, "servers"):
        return
    if not _kept.servers:
        _kept.servers.append(_new_server())
    call = (AHEAD + entry).encode(), pickle.dumps(arguments) if arguments else b""
    if arguments:
        _kept.calls.append(call)
    _kept.servers[-1].write(*([part] for part in call))


def _new_server() -> _Server:
    """A server that is told all calls that are known so far."""
    server = _Server()
    for call in getattr(_kept, "calls", ()):
        server.write(*([part] for part in call))
    return server


@contextmanager
def start_child(entry: str, arguments: tuple[Any, ...], seconds: float) -> Iterator[ChildProcess]:
    """A running child process that is gone at the end; the caller may follow it meanwhile."""
    began = time.monotonic()
    kept = getattr(_kept, "servers", [])
    server = kept.pop() if kept else _new_server()
    child = ChildProcess(server, began + seconds + GRACE_SECONDS)
    try:
        child.send(entry, (arguments, seconds + GRACE_SECONDS + _SELF_KILL_SECONDS))
        yield child
    finally:
        child.stop()
        if child.ended_well and hasattr(_kept, "servers"):
            _kept.servers.append(server)
        else:
            if server.late and hasattr(_kept, "calls"):
                # They may be what it does not come back from.
                _kept.calls.clear()
            server.close()


_kept: Final = threading.local()
"""Servers of a thread that wait for the next question. (The kernel ends them with their thread.)"""


class _Server:
    """A process that forks a child for each question, with the libraries loaded already."""

    def __init__(self) -> None:
        # -P and the path without "": files in the user's folder must not be imported.
        # As a module and not as the main program, so that its messages are of the parent's types.
        script = f"from {serve.__module__} import serve; serve()"
        command = [sys.executable, "-P", "-c", script, str(os.getpid())]
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._writer: threading.Thread | None = None
        """The thread that sends the last question."""
        self._reader: threading.Thread | None = None
        """The thread that reads messages up to the end of the last child."""
        self.late = False
        """True if a question was given up that had not begun."""
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

    def write(self, *parts: list[bytes]) -> None:
        """
        Send the parts of a question, after all that was sent before.

        This is done by a thread: the server reads nothing while it loads. Each part is taken from its list,
        so that nothing keeps it in memory afterwards.
        """
        writer = threading.Thread(target=self._write, args=(parts, self._writer), daemon=True)
        self._writer = writer
        writer.start()

    def _write(self, parts: tuple[list[bytes], ...], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(OSError, ValueError):  # a server that is gone is found out by its reader
            for part in (each.pop() for each in parts):
                self.process.stdin.write(len(part).to_bytes(LENGTH_BYTES, "big"))
                self.process.stdin.write(part)
            self.process.stdin.flush()

    def read(self, take: Callable[[object], None]) -> None:
        """Pass on all messages up to the end of the next child, and the end as well, by a thread."""
        reader = threading.Thread(target=self._read, args=(take, self._reader), daemon=True)
        self._reader = reader
        reader.start()

    def _read(self, take: Callable[[object], None], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        for message in read_messages(self.process.stdout):
            take(message)
            if isinstance(message, ChildEnded):
                return
        take(ChildEnded(None))

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
        self._group: int | None = None
        """Its process group once it has begun."""
        self._stopped = False
        self.ended_well = False
        """True if its server can be asked again."""
        self._ended = False

    def send(self, entry: str, question: object) -> None:
        """Send the question, and collect reports from now on."""
        self._server.write([entry.encode()], [repr(self._deadline).encode()], [pickle.dumps(question)])
        self._server.read(self._take)

    def _take(self, message: object) -> None:
        """Take a message, so that the child never waits for its parent."""
        if not (isinstance(message, ChildEnded) and message.code is None):
            # The server has done what kept it from the questions before.
            self._server.late = False
        if not isinstance(message, ChildBegun):
            self.reports.put(message)
            return
        self._group = message.group
        if self._stopped:
            self._kill()

    def _kill(self) -> None:
        if self._group is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGKILL)

    def wait(self, listen: Callable[[object], None]) -> ChildOutcome:
        """
        Listen until the child ends, or until its time and a grace period are over: then it is killed.

        `listen` is called in this thread with each report, and with None ten times a second if there is none.
        If it raises, the child is killed too.
        """
        last: object = None
        while not isinstance(message := _next(self.reports), ChildEnded):
            last = last if message is None else message
            listen(message)
            if time.monotonic() > self._deadline:
                return ChildOutcome(self.stop(last), killed=True)
        self._ended = message.code is not None
        if message.code == 0:
            self.ended_well = True
            return ChildOutcome(last)
        if message.code == -signal.SIGKILL and self._group is None:
            # Its server came to the question after the time for it, and did not begin.
            self.ended_well = True
            return ChildOutcome(last, killed=True)
        # Without a code the server has ended too, or will now.
        code = self._server.end() if message.code is None else message.code
        return ChildOutcome(last, failure=f"ended with code {code}: {self._server.last_words()}")

    def stop(self, last: object = None) -> object:
        """
        Kill it, with all that it started, unless it has ended; the last of its unread reports, or `last`.

        Its server is of use again once it confirms the end of its child. If the child has not begun, since
        the server still loads libraries, these are of use to the next one; but not a second time.
        """
        if self._ended or self._stopped:
            return last
        self._stopped = True
        self._kill()
        if self._group is None and not self._server.late:
            self._server.late = self.ended_well = self._server.process.poll() is None
            return last
        until = time.monotonic() + _KILL_SECONDS
        with suppress(queue.Empty):
            while True:
                message = self.reports.get(timeout=max(0.0, until - time.monotonic()))
                if isinstance(message, ChildEnded):
                    self._ended = self.ended_well = message.code is not None
                    break
                last = message
        return last


def _next(news: queue.SimpleQueue[object]) -> object:
    """The next report; None if none comes within a heartbeat."""
    try:
        return news.get(timeout=_HEARTBEAT)
    except queue.Empty:
        return None
