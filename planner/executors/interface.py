"""The protocol between apply and a cluster: begin an action, observe it until it lands, undo what has not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from gpuplan.models.placement import Placement, Promise
    from gpuplan.models.plan.actions import ActionKind, Change, Start
    from gpuplan.models.snapshot import Snapshot


class ExecutionError(PlannerError):
    """A cluster refuses an action; the message gives the reason, and nothing was changed."""


class UnreachableError(PlannerError):
    """A cluster gave no answer; an action that was to begin may be under way or not."""


class ActionPhase(StrEnum):
    """Where an action stands on the cluster."""

    UNKNOWN = "unknown"
    """Nothing can be said about it now."""
    NOT_BEGUN = "not_begun"
    """The cluster has no mark of it."""
    RESERVED = "reserved"
    """What a start needs is set aside for it durably, and the job does not run; `begin` confirms it."""
    ASKED = "asked"
    """The request is durable on the cluster, and nothing has changed yet."""
    UNDER_WAY = "under_way"
    """The cluster carries it out: a grace period passes, a node is provisioned, a job is starting."""
    LANDED = "landed"
    """It is done."""
    FAILED = "failed"
    """The cluster has given up, and the effect of the action is not there."""
    GONE = "gone"
    """
    The job or node is no longer on the cluster, and with it the mark of the action, if there was one. If the
    action is recorded as done, it was done.
    """

    @property
    def ended(self) -> bool:
        """True if nothing is under way, and nothing has landed."""
        return self in (ActionPhase.NOT_BEGUN, ActionPhase.FAILED, ActionPhase.GONE)

    @property
    def may_land(self) -> bool:
        """True if the cluster carries it out, or may do so."""
        return self in (ActionPhase.ASKED, ActionPhase.UNDER_WAY, ActionPhase.UNKNOWN)


class Pin(StrEnum):
    """What an executor decides exactly; the rest of a placement is what it expects."""

    NODE = "node"
    GPU = "gpu"
    MIG_SLICE = "mig_slice"


@dataclass(frozen=True, slots=True)
class ActionProgress:
    """What a cluster says about one action."""

    phase: ActionPhase
    reason: str = ""
    """Why the action failed, or what it waits for."""
    retryable: bool = False
    """True if an action that failed may succeed if it is begun again."""
    due_in: float | None = None
    """Seconds until the next step is due, which the next look after that does; None if none is due."""
    placement: Placement | None = None
    """Where the job of a landed action really runs, if that is not as planned."""


NOT_BEGUN: Final = ActionProgress(ActionPhase.NOT_BEGUN)
RESERVED: Final = ActionProgress(ActionPhase.RESERVED)
LANDED: Final = ActionProgress(ActionPhase.LANDED)
GONE: Final = ActionProgress(ActionPhase.GONE)


class ClusterReader(Protocol):
    """A source of snapshots of a live cluster."""

    def snapshot(self) -> Snapshot:
        """The present state of the cluster, at one point in time."""
        ...


class ClusterWriter(Protocol):
    """
    The methods that change a cluster; each may raise UnreachableError.

    A key permanently names one action of one plan. The cluster keeps the marks of keys itself, so that a lost
    audit log loses nothing.
    """

    @property
    def identity(self) -> str:
        """Unique id of this cluster; a cluster that is created again has another identity."""
        ...

    @property
    def can(self) -> frozenset[ActionKind]:
        """Kinds of action that the cluster can carry out."""
        ...

    @property
    def pins(self) -> frozenset[Pin]:
        """What of a placement the cluster can be told exactly."""
        ...

    def exclusively(self) -> AbstractContextManager[None]:
        """Lock the cluster against other applies; LockedError if one is running."""
        ...

    def looking(self) -> AbstractContextManager[None]:
        """
        Look at the cluster while no apply uses it; LockedError if one does.

        `observe` does nothing meanwhile, and no right to change the cluster is needed.
        """
        ...

    def begin(self, action: Change, key: str) -> ActionProgress:
        """
        Begin an action durably and return at once; do nothing if it is under way or landed under this key.

        Raises
        ------
        ExecutionError
            The cluster refuses the action, and nothing was changed.
        """
        ...

    def observe(self, keys: Collection[str]) -> Mapping[str, ActionProgress]:
        """
        Progress of the actions and promise steps of these keys; all keys are in the result.

        Of an action that has begun, the next step is done if its time has come: a job that was notified is
        stopped when its grace period is over. Before the first snapshot under a lock nothing is done.
        """
        ...

    def undo(self, key: str) -> None:
        """Withdraw an action that has begun and not landed; no effect on any other. Idempotent."""
        ...

    def reserve(self, action: Start, key: str) -> ActionProgress:
        """
        Do durably all of a start but to let the job run: the first phase of jobs that start together.

        RESERVED once nothing else can take its places; UNDER_WAY, with what it waits for, if that may come,
        and then it is asked again. A start that has begun under this key is left as it is. Reservations of
        other plans count for nothing: of all applies, one at a time uses a cluster.

        Raises
        ------
        ExecutionError
            The job cannot start there, and nothing was changed.
        """
        ...

    def abort(self, key: str, reason: str) -> None:
        """
        Take a start back, whatever its phase: a job that runs by it is stopped, and waits as before.

        Returns at once; the start is over once it is NOT_BEGUN, FAILED or GONE. Idempotent.
        """
        ...

    def keep_promises(self, promises: Mapping[str, Promise], key: str) -> None:
        """
        Set these promises on the jobs that are pending, and clear the promises of all other jobs.

        All or nothing, and landed on return; does nothing if it was done under this key before.
        """
        ...


class Executor(ClusterReader, ClusterWriter, Protocol):
    """A cluster that can be read and changed."""
