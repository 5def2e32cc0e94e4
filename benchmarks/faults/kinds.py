"""
The kinds of fault, as they strike inside a command of gpuplan.

An edge is a call that leaves a trace outside of the process: a write, a request to the cluster, an SQL
statement. A fault strikes at some edges, by their numbers; what strikes is noted in a file.
"""

from __future__ import annotations

import datetime as dt
import errno
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED, FAILS, TIMEOUT, UNANSWERED = (
    "killed (-9)",
    "call fails",
    "call times out",
    "done without an answer",
)
NODE_LOST, SECOND, CLOCK, FULL = "node lost", "second planner", "clock jumps", "disk full"
KINDS: Final = (KILLED, FAILS, TIMEOUT, UNANSWERED, NODE_LOST, SECOND, CLOCK, FULL)
HAPPENINGS: Final = (NODE_LOST, SECOND, FULL)
"""What happens outside of the command, which waits meanwhile."""

# The real ones, which the notes of this file itself use.
_TIME, _DATETIME = time.time, dt.datetime
_NO_ANSWER: Final = b"slurm_update error: Unable to contact slurm controller (connect failure)"
SUPERVISOR: Final = "supervisor"
_SUPERVISOR_EDGES: Final = 6
"""Fork, claim, fork of the job, started, release, exit."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_LONGEST_MEETING: Final = 120.0
"""Seconds that a command waits for what happens outside."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and where."""

    kind: str
    executor: str
    edges: frozenset[int]
    when: str = "before"
    """
    `before` or `after` the edge; `half`: half of the bytes of a write; `supervisor`: not the command is
    killed, but the supervisor of the first job that it starts, at an edge of its own.
    """
    jump: int = 0
    """Seconds by which the clock jumps."""
    folder: str = ""
    """Where it is noted that it struck."""
    sabotage: str = ""
    """For tests of the checker: a name in `sabotage.py`."""

    @property
    def struck(self) -> int:
        """How often it struck."""
        path = Path(self.folder) / "struck"
        return path.stat().st_size if path.exists() else 0


class Strike:
    """A fault at work in this process."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._numbers = itertools.count()
        self._deep = False
        """An edge within an edge, such as a write during a call, is a part of it unless the process dies."""
        self.offset = 0.0

    def edge(self, deed: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Do what an edge does, unless the fault strikes there."""
        if self._deep:
            return deed()
        if next(self._numbers) not in self.fault.edges:
            return self._within(deed)
        self.note()
        return self._strike(deed, half)

    def note(self) -> None:
        """Note that the fault struck, whatever comes next."""
        descriptor = os.open(
            Path(self.fault.folder) / "struck", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        os.write(descriptor, b"x")
        os.close(descriptor)

    def _within(self, deed: Callable[[], Any]) -> Any:
        self._deep = self.fault.kind not in (KILLED, FULL)
        try:
            return deed()
        finally:
            self._deep = False

    def _strike(self, deed: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        kind, when = self.fault.kind, self.fault.when
        if kind == KILLED:
            if when == "after":
                deed()
            elif when == "half" and half is not None:
                half()
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == CLOCK:
            self.offset = float(self.fault.jump)
        elif kind in HAPPENINGS:
            self._meet()
            if kind == NODE_LOST and self.fault.executor == "local":
                # The host is what the command runs on.
                os.kill(os.getpid(), signal.SIGKILL)
        else:
            return self._broken(deed)
        return self._within(deed)

    def _broken(self, deed: Callable[[], Any]) -> Any:
        """A call of this executor that fails, as those calls fail."""
        kind = self.fault.kind
        if kind == UNANSWERED or (kind == TIMEOUT and self.fault.when == "after"):
            self._within(deed)
        raise _Broken(kind)

    def _meet(self) -> None:
        """Let something happen outside, once."""
        folder = Path(self.fault.folder)
        if (folder / "met").exists():
            return
        (folder / "met").touch()
        end = time.monotonic() + _LONGEST_MEETING
        while not (folder / "go").exists() and time.monotonic() < end:
            time.sleep(0.005)


class _Broken(Exception):  # noqa: N818 - turned into the error that the layer has
    """A call that the fault broke."""


def install(fault: Fault) -> None:
    """Let a fault strike in this process."""
    strike = Strike(fault)
    if fault.when == SUPERVISOR:
        _wrap_supervisor(strike)
        return
    if fault.kind in (KILLED, FULL):
        _wrap_storage(strike)
    if fault.kind == KILLED:
        _wrap_sqlite(strike)
    if fault.kind == CLOCK:
        _bend_clocks(strike)
    {"simulated": _wrap_simulated, "local": _wrap_local, "slurm": _wrap_slurm}[fault.executor](strike)


def _wrap_storage(strike: Strike) -> None:
    real_pwrite = os.pwrite

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        def whole() -> int:
            return real_pwrite(descriptor, content, offset)

        return int(strike.edge(whole, lambda: real_pwrite(descriptor, content[: len(content) // 2], offset)))

    os.pwrite = pwrite
    for name in ("fsync", "ftruncate", "link", "replace", "rename"):
        _wrap(strike, os, name)


def _wrap(strike: Strike, owner: Any, name: str, broken: Callable[[str], Exception] | None = None) -> None:
    """Make a function an edge; `broken` makes the error that its caller expects."""
    inner = getattr(owner, name)

    def edge(*arguments: Any, **named: Any) -> Any:
        try:
            return strike.edge(lambda: inner(*arguments, **named))
        except _Broken as error:
            assert broken is not None
            raise broken(str(error)) from None

    setattr(owner, name, edge)


def _wrap_sqlite(strike: Strike) -> None:
    connect = sqlite3.connect

    def watched(*arguments: Any, **named: Any) -> sqlite3.Connection:
        db = connect(*arguments, **named)
        db.set_trace_callback(lambda _: strike.edge(lambda: None))
        return db

    sqlite3.connect = watched  # type: ignore[assignment]


def _bend_clocks(strike: Strike) -> None:
    """All clocks of the product but the monotonic one, which no change of the time moves."""

    class AsBefore(type):
        def __instancecheck__(cls, found: object) -> bool:
            return isinstance(found, _DATETIME)

    class Bent(dt.datetime, metaclass=AsBefore):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return _DATETIME.now(tz) + dt.timedelta(seconds=strike.offset)

    def bent() -> float:
        return _TIME() + strike.offset

    time.time = bent
    dt.datetime = Bent  # type: ignore[misc]
    for name, module in tuple(sys.modules.items()):
        if name.startswith("gpuplan.") and getattr(module, "datetime", None) is _DATETIME:
            module.datetime = Bent  # type: ignore[attr-defined]


def _wrap_simulated(strike: Strike) -> None:
    from gpuplan.models.errors import PlannerError
    from gpuplan.planner.executors.interface import UnreachableError
    from gpuplan.planner.executors.simulated import SimulatedCluster

    def broken(kind: str) -> Exception:
        if kind == FAILS:
            return PlannerError("simulated cluster cannot be used: disk I/O error.")
        return UnreachableError("the simulated cluster gave no answer within 30 s.")

    for name in ("snapshot", "observe", "begin", "keep_promises"):
        _wrap(strike, SimulatedCluster, name, broken)


def _wrap_local(strike: Strike) -> None:
    from gpuplan.planner.executors.local import host, job_queue, runs

    def broken(kind: str) -> Exception:
        return OSError(errno.ETIMEDOUT if kind == TIMEOUT else errno.EIO, "the disk does not answer")

    def not_spawned(kind: str) -> Exception:
        return subprocess.TimeoutExpired("python", 30) if kind != FAILS else broken(kind)

    spawner = SimpleNamespace(**vars(runs.subprocess))
    _wrap(strike, spawner, "run", not_spawned)
    runs.subprocess = spawner  # type: ignore[assignment]
    _wrap(strike, host.nvml, "read_host", _no_driver)
    if strike.fault.kind == SECOND:
        # The other edges are within the lock of the queue, which the second planner would wait for.
        return
    _wrap(strike, job_queue, "write_private", broken)
    for name in ("write_private", "create_private"):
        _wrap(strike, runs, name, broken)
    _wrap(strike, runs, "signal_process", lambda _: PermissionError(errno.EPERM, "not permitted"))


def _wrap_supervisor(strike: Strike) -> None:
    """Let the supervisor of the first job die at the edge of the fault."""
    from gpuplan.planner.executors.local import runs

    child = _ROOT / "tests" / "support" / "children" / "kill_local.py"
    (edge,) = strike.fault.edges
    count = itertools.count()

    def run(words: list[str], **how: Any) -> Any:
        if next(count) == 0:
            strike.note()
            when = "before" if edge % 2 else "after"
            words = [
                words[0],
                str(child),
                "supervise",
                *words[-2:],
                str(1 + edge // 2 % _SUPERVISOR_EDGES),
                when,
            ]
            how["env"] = {**os.environ, "PYTHONPATH": str(_ROOT)}
        return subprocess.run(words, **how)  # noqa: PLW1510 - `check` is in `how`

    runs.subprocess = SimpleNamespace(**{**vars(subprocess), "run": run})  # type: ignore[assignment]


def _no_driver(kind: str) -> Exception:
    from gpuplan.models.errors import PlannerError

    return PlannerError(f"the driver gives no answer ({kind}).")


def _wrap_slurm(strike: Strike) -> None:
    from gpuplan.planner.executors.slurm import commands
    from gpuplan.planner.sources.slurm import texts

    def run(words: Any, **how: Any) -> Any:
        try:
            return strike.edge(lambda: subprocess.run(words, check=False, **how))
        except _Broken as error:
            if str(error) == TIMEOUT:
                raise subprocess.TimeoutExpired(words, 30) from None
            return subprocess.CompletedProcess(words, 1, b"", _NO_ANSWER)

    def of_module(words: Any, **how: Any) -> Any:
        how.pop("check", None)
        return run(words, **how)

    for module in (commands, texts):
        module.subprocess = SimpleNamespace(**{**vars(subprocess), "run": of_module})  # type: ignore[assignment]
