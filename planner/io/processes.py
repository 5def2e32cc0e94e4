"""
Processes that are told apart for certain: an id may be given again, but not with the same start in one boot.

Used by supervisors too, so it needs the standard library alone.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC: Final = Path("/proc")
_TICKS_FIELD: Final = 19
"""Position of the start time among the fields behind the name in /proc/PID/stat (proc(5))."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, for all time."""

    pid: int
    ticks: int
    """Start in clock ticks since the boot."""
    boot: str
    """Id of the boot."""

    @property
    def alive(self) -> bool:
        """True if it has not ended."""
        return self.boot == boot_id() and process_id(self.pid) == self

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def boot_id() -> str:
    """Id of the present boot of this host."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def process_id(pid: int) -> ProcessId | None:
    """A process by its id; None if it has ended."""
    fields = _fields(pid)
    return None if fields is None else ProcessId(pid, int(fields[_TICKS_FIELD]), boot_id())


def began() -> float:
    """Instant of `time.monotonic` at which this process began; the present one where that is not known."""
    fields = _fields(os.getpid())
    if fields is None:
        return time.monotonic()
    since_boot = int(fields[_TICKS_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


def signal_process(process: ProcessId, number: int) -> None:
    """Send a signal to a process, unless it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        # What is opened now may have got the id later; what is compared after that cannot change any more.
        if process.alive:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def descendants(pid: int) -> list[ProcessId]:
    """All processes below one, in no order."""
    children: dict[int, list[ProcessId]] = {}
    for each, fields in _all():
        children.setdefault(int(fields[1]), []).append(ProcessId(each, int(fields[_TICKS_FIELD]), boot_id()))
    found, open_ = [], [pid]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += [each.pid for each in below]
    return found


def processes_with(variable: str) -> list[ProcessId]:
    """Processes of this user that began with an environment variable `NAME=VALUE`."""
    wanted, found = variable.encode(), []
    for pid, fields in _all():
        try:
            inherited = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in inherited:
            found.append(ProcessId(pid, int(fields[_TICKS_FIELD]), boot_id()))
    return found


def _all() -> Iterator[tuple[int, list[str]]]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
            yield int(entry.name), fields


def _fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat behind the name; None if the process has ended."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields
