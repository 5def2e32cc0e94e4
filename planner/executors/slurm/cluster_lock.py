"""
The lock of a Slurm cluster: a reservation, so that applies on different machines exclude each other.

Each apply makes a reservation of its own name, and goes on only if the controller then lists no other. Of two
that begin at the same time, the second to be created sees the first; if each sees the other, both withdraw
and try again. A name is made once, so the lock of a process that was killed can be deleted by several
others without harm.

The reservation begins twenty years after it expires: it keeps no job away, as Slurm counts a job without
a time limit for one year. Times are those of the controller, as `sdiag` prints them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import re
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from gpuplan.models.errors import PlannerError
from gpuplan.models.units import print_timestamp
from gpuplan.planner.executors.interface import ExecutionError, UnreachableError
from gpuplan.planner.executors.slurm.commands import call, reservations_table
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.io.processes import boot_id, process_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Answer = TypeVar("_Answer")

_LOG: Final = logging.getLogger(__name__)

_LASTS: Final = 120
"""Seconds from the last sign of its holder until a lock may be taken over."""
# A sixth of that: several renewals may fail before another process may take the lock over.
_RENEWED_AFTER: Final = 20.0
_FAR: Final = 20 * 365 * 24 * 3600
"""Seconds from the expiry of a lock to the begin of its reservation."""
# Two that begin at once both withdraw, and try again after random pauses: seldom so often in a row.
_TRIES: Final = 8
_ASKED_AGAIN: Final = 3
"""Times that a command is repeated if it gets no answer."""
_PAUSE: Final = 0.5
"""Seconds before that, and the most before two that withdrew try again."""

_NAME: Final = re.compile(
    r"gpuplan_lock_(?P<pid>\d+)_(?P<ticks>\d+)_(?P<where>[0-9a-f]{8})_(?P<token>[0-9a-f]{8})_(?P<host>.+)"
)
"""Not the prefix of fences, which are removed once they are not needed."""
_NOW: Final = re.compile(r"sdiag output at [^(]*\((\d+)\)")

_held: Final[set[str]] = set()
"""Locks of this process; another one with its id was made without an answer, and is not held."""


@dataclass(frozen=True, slots=True)
class _Lock:
    """A lock as the controller lists it."""

    name: str
    pid: int
    ticks: int
    where: str
    host: str
    expires: int
    """In seconds since 1970, by the controller's clock."""

    def is_over(self, now: int) -> bool:
        """True if it has expired, or its process is known to have ended."""
        if self.expires <= now:
            return True
        if self.where != _where():
            return False
        # A process id may have been given again, but not with the same start.
        found = process_id(self.pid)
        gone = found is None or found.ticks != self.ticks
        return gone or (self.pid == os.getpid() and self.name not in _held)

    def __str__(self) -> str:
        until = print_timestamp(datetime.fromtimestamp(self.expires, tz=UTC))
        return f"process {self.pid} on {self.host}, which holds it until {until} or longer"


class ClusterLock:
    """The lock of one cluster, as one executor holds it."""

    def __init__(self, subject: str) -> None:
        """Not held; `subject` names the cluster in messages."""
        self._subject = subject
        self._name = ""
        self._renewed = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """
        Hold the lock during the block.

        Raises
        ------
        LockedError
            Another process holds it.
        ExecutionError
            This user may not make reservations.
        """
        try:
            self._acquire()
            yield
        finally:
            self._release()

    def require_free(self) -> None:
        """
        Raise LockedError if another process holds the lock; this needs no rights, and changes nothing.

        Where PrivateData hides reservations, only operators see it.
        """
        now = _controller_time()
        self._refuse([lock for lock in _locks() if not lock.is_over(now)])

    def keep(self) -> None:
        """
        Renew the lock if it is held and its last renewal is some time ago.

        Raises
        ------
        LockedError
            Another process has taken it over, since this one was stopped for too long.
        """
        age = _clock() - self._renewed
        if not self._name or age < _RENEWED_AFTER:
            return
        if age < _LASTS:
            self._extend()
        else:
            self._renew_late()

    def _acquire(self) -> None:
        for _ in range(_TRIES):
            self._refuse(_live_locks())
            self._create()
            others = _live_locks(but=self._name)
            if not others:
                return
            self._release()
            # At random: two that withdraw together would else meet again.
            time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - no secret
        self._refuse(others)

    def _refuse(self, others: list[_Lock]) -> None:
        if others:
            raise LockedError(
                f"{self._subject} is in use by {others[0]}; expected it to be free.\n"
                "Wait until that process ends, or stop it, and try again."
            )

    def _create(self) -> None:
        # Taken before the question: the lock must never seem younger here than to the controller.
        name, asked = _new_name(), _clock()
        # From here on: an answer may be lost of a lock that was made.
        _held.add(name)
        try:
            _make(name)
        except PlannerError:
            _held.discard(name)
            raise
        self._name, self._renewed = name, asked

    def _extend(self) -> None:
        asked = _clock()
        try:
            _ask("scontrol", "update", f"ReservationName={self._name}", f"StartTime={_begin()}", "Duration=1")
        except ExecutionError:
            self._lose()
        if _clock() - self._renewed < _LASTS:
            self._renewed = asked
        else:
            self._renew_late()

    def _renew_late(self) -> None:
        """
        Replace a lock that has expired, unless another process has taken it over.

        To extend it would be too late for one that has just read that it has expired, and deletes it.
        """
        old = self._name
        self._create()
        there = {lock.name for lock in _locks()}
        others = _live_locks(but=self._name, and_but=old)
        _delete(old)
        if old not in there or others:
            self._lose()

    def _lose(self) -> None:
        self._release()
        raise LockedError(
            f"{self._subject}: the lock of this process was taken over or removed; expected to hold it.\n"
            "Nothing more was done. Look at what happens on the cluster, then apply the plan with --resume."
        )

    def _release(self) -> None:
        """Give the lock up; one that cannot be deleted now expires."""
        name, self._name = self._name, ""
        if name:
            _delete(name)


def _ask(*words: str) -> str:
    """The answer to a command of Slurm; see `_patiently`."""
    return _patiently(lambda: call(*words))


def _patiently(ask: Callable[[], _Answer]) -> _Answer:
    """What an answer is, asked for again if it is lost: no apply ends for want of one."""
    for _ in range(_ASKED_AGAIN):
        try:
            return ask()
        except UnreachableError:
            time.sleep(_PAUSE)
    return ask()


def _make(name: str) -> None:
    """Make the reservation of a lock; if an answer is lost it may be there nevertheless."""
    begin, node = _begin(), _some_node()
    try:
        _ask(
            *("scontrol", "create", "reservation", f"ReservationName={name}", f"StartTime={begin}"),
            *("Duration=1", f"Nodes={node}", "Users=root", "Flags=IGNORE_JOBS,OVERLAP"),
        )
    except ExecutionError:
        # The second time it is refused if only the first answer was lost.
        if name not in _patiently(reservations_table):
            raise


def _delete(name: str) -> None:
    try:
        _ask("scontrol", "delete", f"ReservationName={name}")
    except UnreachableError as error:
        _LOG.warning("phase=apply lock=left reason=%s", error)
    except ExecutionError as error:
        _LOG.info("phase=apply lock=gone reason=%s", error)
    _held.discard(name)


def _live_locks(*, but: str = "", and_but: str = "") -> list[_Lock]:
    """The locks of other processes; those that are over are deleted."""
    now, found = _controller_time(), []
    for lock in _locks():
        if lock.name in (but, and_but):
            continue
        if lock.is_over(now):
            _delete(lock.name)
        else:
            found.append(lock)
    return found


def _locks() -> list[_Lock]:
    found = []
    for name, fields in _patiently(reservations_table).items():
        if match := _NAME.fullmatch(name):
            pid, ticks, expires = int(match["pid"]), int(match["ticks"]), int(fields["StartTime"]) - _FAR
            found.append(_Lock(name, pid, ticks, match["where"], match["host"], expires))
    return sorted(found, key=lambda lock: lock.name)


def _new_name() -> str:
    myself = process_id(os.getpid())
    if myself is None:
        raise PlannerError("this process is not in /proc; expected Linux.")
    host = re.sub(r"[^A-Za-z0-9.-]+", "-", os.uname().nodename)
    return f"gpuplan_lock_{myself.pid}_{myself.ticks}_{_where()}_{secrets.token_hex(4)}_{host}"


def _where() -> str:
    """Fingerprint of what process ids are valid in: this boot of this host, and this container."""
    return hashlib.sha256(f"{boot_id()} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:8]


def _begin() -> str:
    """Begin of the reservation of a lock that was renewed now."""
    return f"uts{_controller_time() + _LASTS + _FAR}"


def _controller_time() -> int:
    """Time of the controller, in seconds since 1970."""
    text = _ask("sdiag")
    match = _NOW.search(text)
    if match is None:
        raise PlannerError(f"`sdiag`: expected `sdiag output at DATE (SECONDS)`, found {text[:80]!r}.")
    return int(match[1])


def _some_node() -> str:
    """A node for the reservation, which has to have one."""
    names = _ask("sinfo", "--all", "--noheader", "--Node", "--Format=NodeList:128").split()
    if not names:
        raise PlannerError("`sinfo` lists no nodes; expected at least one.")
    return names[0]


def _clock() -> float:
    """Seconds since the boot; goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
