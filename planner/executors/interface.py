"""What apply needs from a cluster: a few methods that every backend brings, one backend a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from gpuplan.models.plan.plan import Change
    from gpuplan.models.promise import Promise
    from gpuplan.models.snapshot import Snapshot


class ExecutionError(PlannerError):
    """A cluster refuses an action; the message says why, and nothing was changed."""


class ClusterReader(Protocol):
    """Where snapshots of a live cluster come from."""

    def snapshot(self) -> Snapshot:
        """The cluster as it is now, at one instant."""
        ...


class ClusterWriter(Protocol):
    """
    What changes a cluster.

    A key names one action of one plan for ever: an action performed under a key is never performed again.
    """

    @property
    def identity(self) -> str:
        """Which cluster this is; another cluster, or one made anew, has another identity."""
        ...

    def exclusively(self) -> AbstractContextManager[None]:
        """Keep every other apply away from the cluster; LockedError if one is at work."""
        ...

    def perform(self, action: Change, key: str) -> None:
        """Do all of the action or raise ExecutionError; do nothing if it was done under this key before."""
        ...

    def keep_promises(self, promises: Mapping[str, Promise], key: str) -> None:
        """
        Promise these jobs, as far as they wait, what is said here, and every other job nothing any more.

        All at once or not at all; nothing if it was done under this key before.
        """
        ...

    def performed(self, key: str) -> bool:
        """True if the action of this key was done, or the promises of it made."""
        ...


class Executor(ClusterReader, ClusterWriter, Protocol):
    """A cluster that can be read and changed."""
