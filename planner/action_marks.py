"""
What an executor keeps with a job or node about its actions, so that a killed apply can go on.

A key names one action of one plan for good: `PLAN:KIND/SUBJECT`. Its mark says how far the action is.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from gpuplan.models.base import Noun
from gpuplan.models.units import Count

if TYPE_CHECKING:
    from collections.abc import Iterable

PROMISES: Final = "promises"
"""Key of the step that records the promises of a plan, behind `PLAN:`; it has no subject."""

_KEPT: Final = 6
"""Marks kept on one object: those of the last plans that changed it."""

_SIGNAL: Final = re.compile(
    r"(?P<first>B:)?(?:SIG)?(?P<signal>[A-Z]+[0-9]?|[0-9]+)(?:@(?P<seconds>\d{1,5}))?", re.IGNORECASE
)
_DEFAULT_NOTICE: Final = 60
"""Seconds of `--signal=USR1`, as in Slurm."""


class MarkStage(StrEnum):
    """How far an action went; each step is marked before it is done."""

    RESERVED = "reserved"
    """A start of a group has all that it needs, and its job waits until it is confirmed or taken back."""
    ASKED = "asked"
    """It begins: a job is about to be placed, notified or stopped."""
    NOTIFIED = "notified"
    """The job got the signal that it had asked for, and has time until the mark's `until`."""
    STOPPING = "stopping"
    """The job is about to be stopped."""
    PLACING = "placing"
    """The job that was stopped is about to start on its new places."""
    LANDED = "landed"
    """The action is done."""
    ABORTING = "aborting"
    """A start of a group is taken back, for the reason in the mark: its job is stopped if it runs."""
    FAILED = "failed"
    """The cluster gave the action up."""

    @property
    def open(self) -> bool:
        """True if the action is neither done nor given up."""
        return self not in (MarkStage.LANDED, MarkStage.FAILED)


class ActionMark(Protocol):
    """What the marks of all executors have; each adds where its jobs are to run."""

    @property
    def key(self) -> str:
        """Key of the action, as `ClusterWriter` has it."""
        ...

    @property
    def step(self) -> MarkStage:
        """How far it went."""
        ...

    @property
    def until(self) -> float:
        """End of the time that a notified job has, in seconds since 1970."""
        ...

    @property
    def reason(self) -> str:
        """Why it failed, or is taken back."""
        ...


AnyMark = TypeVar("AnyMark", bound=ActionMark)


def plan_of(key: str) -> str:
    """Uid of the plan of an action."""
    return key.partition(":")[0]


def kind_of(key: str) -> str:
    """Kind of an action."""
    return key.partition(":")[2].partition("/")[0]


def subject_of(key: str) -> str:
    """Job or node of an action; a job may have slashes in its name."""
    return key.partition(":")[2].partition("/")[2]


def mark_of(marks: Iterable[AnyMark], key: str) -> AnyMark | None:
    """The mark of an action, if it is there."""
    return next((mark for mark in marks if mark.key == key), None)


def without_mark(marks: Iterable[AnyMark], key: str) -> tuple[AnyMark, ...]:
    """The marks of other actions."""
    return tuple(mark for mark in marks if mark.key != key)


def with_mark(marks: Iterable[AnyMark], mark: AnyMark) -> tuple[AnyMark, ...]:
    """The latest marks, of which this one is the last."""
    return (*without_mark(marks, mark.key), mark)[-_KEPT:]


class JobSignal(Noun):
    """The signal that a job gets before it is stopped."""

    signal: str
    """Its name without SIG, or its number."""
    seconds: Count
    """Time from the signal to the stop."""
    first_only: bool = False
    """True: only the first process gets it, which is the batch shell of a Slurm job."""

    @classmethod
    def read(cls, text: str) -> JobSignal | None:
        """`USR1@60` or `B:USR1@60`, as for the option `--signal` of sbatch; None if it is neither."""
        match = _SIGNAL.fullmatch(text)
        if match is None:
            return None
        seconds = int(match["seconds"] or _DEFAULT_NOTICE)
        return cls(signal=match["signal"].upper(), seconds=seconds, first_only=bool(match["first"]))
