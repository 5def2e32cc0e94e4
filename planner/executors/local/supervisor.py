"""
The supervisor of one attempt of a job: starts it, stops it, and records how it ended.

It is a process in a session of its own, and outlives what started it. It adopts all processes that the job
leaves behind (`PR_SET_CHILD_SUBREAPER`), so an attempt has ended only when none of them is left. Files of
attempt N in the folder of the job:

    attempt-N.json   what the executor wants: devices, limits
    run-N.json       created once, by the supervisor that may start it, or by what withdraws it
    started-N.json   the job's first process; before this is durable the command does not begin
    unbegun-N.json   the supervisor was killed in between, and the command did not begin
    exit-N.json      how it ended

A SIGTERM stops the job: SIGTERM to all of its processes, after `KILL_WAIT` SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuplan.planner.executors.local.private_files import create_private, read_json, write_private
from gpuplan.planner.io.processes import descendants, process_id, signal_process

if TYPE_CHECKING:
    from typing import NoReturn

TOKEN: Final = "GPUPLAN_RUN"  # noqa: S105 - a name
"""Environment variable by which processes of an attempt are found if its supervisor was killed."""

KILL_WAIT: Final = 10.0
"""Seconds from SIGTERM to SIGKILL."""

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_LOOK: Final = 0.5
"""Seconds between two looks at clocks and leftovers."""
_SIGNALS: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(folder: Path, number: int) -> None:
    """Supervise an attempt in the background; returns once it has started, or cannot."""
    told, tell = os.pipe()
    # What asked for the start waits only until the pipe ends; the child outlives it.
    if os.fork():
        os.close(tell)
        # Returns at the end of the pipe: once the supervisor has recorded the start, or was killed.
        os.read(told, 1)
        return
    os.close(told)
    try:
        _supervise(folder, number, tell)
    finally:
        os._exit(0)


def _supervise(folder: Path, number: int, tell: int) -> None:
    attempt, command = read_json(folder / f"attempt-{number}.json"), read_json(folder / "command.json")
    myself = process_id(os.getpid())
    if attempt is None or command is None or myself is None:
        return
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        return
    # Created by one process only, so that of two supervisors, or one and a withdrawal, one begins.
    if not create_private(folder / f"run-{number}.json", {"supervisor": myself.document()}):
        return
    # Before the fork: a signal that comes from now on waits until it is asked for (`sigtimedwait`).
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # The job waits on this pipe until its start is on disk. If the supervisor is killed, the pipe ends.
    hold, release = os.pipe()
    main_pid = os.fork()
    if main_pid == 0:
        os.close(release)
        os.close(tell)
        _become(folder, number, command, attempt, hold)
    os.close(hold)
    started = process_id(main_pid)
    write_private(
        folder / f"started-{number}.json",
        {"process": started.document() if started else None, "at": time.time()},
    )
    os.write(release, b"g")
    os.close(release)
    os.close(tell)
    _record(folder / f"exit-{number}.json", _Watch(main_pid, attempt).until_over())


def _become(
    folder: Path, number: int, command: dict[str, Any], attempt: dict[str, Any], hold: int
) -> NoReturn:
    """Become the job's command, once its start is recorded."""
    code = 126
    try:
        os.setsid()
        if not os.read(hold, 1):  # the supervisor was killed
            create_private(folder / f"unbegun-{number}.json", {})
            os._exit(code)
        # A mask outlives exec: the job would never get a SIGTERM.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(command["umask"])
        output = Path(command["output"] or folder / "output.txt")
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # What the job holds open of the supervisor would keep pipes and locks alive.
        os.closerange(3, min(2**16, os.sysconf("SC_OPEN_MAX")))
        os.chdir(command["folder"])
        environment = command["environment"] | {
            "CUDA_VISIBLE_DEVICES": ",".join(attempt["devices"]),
            TOKEN: attempt["token"],
        }
        os.execvpe(command["words"][0], command["words"], environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        with suppress(OSError):
            os.write(2, f"gpuplan: the job cannot begin: {error.strerror}: {error.filename}\n".encode())
    finally:
        os._exit(code)


class _Watch:
    """An attempt that runs, until no process of it is left."""

    def __init__(self, main_pid: int, attempt: dict[str, Any]) -> None:
        self._main = main_pid
        self._kill_at = attempt["kill_at"]
        """Seconds since 1970, or None."""
        limit = attempt["limit"]
        self._ends = None if limit is None else time.monotonic() + limit
        self._code: int | None = None
        self._stopped = self._timed_out = False
        self._kills: float | None = None
        """Instant from which what is left is killed; None before anything is to end."""

    def until_over(self) -> dict[str, Any]:
        """How the attempt ended."""
        while self._reap():
            now = time.monotonic()
            if self._kills is None and (self._code is not None or self._over_time(now)):
                self._timed_out = self._code is None
                self._terminate(now)
            elif self._kills is not None and now >= self._kills:
                self._send(signal.SIGKILL)
            found = signal.sigtimedwait(_SIGNALS, _LOOK)
            if found is not None and found.si_signo != signal.SIGCHLD and self._kills is None:
                self._reap()
                self._stopped = self._code is None
                self._terminate(time.monotonic())
        return {
            "code": self._code,
            "stopped": self._stopped,
            "timed_out": self._timed_out,
            "at": time.time(),
        }

    def _over_time(self, now: float) -> bool:
        late = self._kill_at is not None and time.time() >= self._kill_at
        return late or (self._ends is not None and now >= self._ends)

    def _terminate(self, now: float) -> None:
        self._send(signal.SIGTERM)
        self._kills = now + KILL_WAIT

    def _send(self, number: int) -> None:
        for each in descendants(os.getpid()):
            with suppress(PermissionError):
                signal_process(each, number)

    def _reap(self) -> bool:
        """Take note of what has ended; False if no process is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._code = os.waitstatus_to_exitcode(status)


def _record(path: Path, ended: dict[str, Any]) -> None:
    """Record the end durably, however long that takes: a full disk loses nothing."""
    while True:
        with suppress(OSError):
            write_private(path, ended)
            return
        time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
