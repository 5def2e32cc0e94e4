"""The methods of a cluster that apply uses; every executor implements them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from gpuplan.models.placement import Promise
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.snapshot import Snapshot


class ExecutionError(PlannerError):
    """A cluster refuses an action; the message gives the reason, and nothing was changed."""


class ClusterReader(Protocol):
    """A source of snapshots of a live cluster."""

    def snapshot(self) -> Snapshot:
        """The present state of the cluster, at one point in time."""
        ...


class ClusterWriter(Protocol):
    """
    The methods that change a cluster.

    A key permanently names one action of one plan: an action performed under a key is never performed again.
    """

    @property
    def identity(self) -> str:
        """Unique id of this cluster; a cluster that is created again has another identity."""
        ...

    def exclusively(self) -> AbstractContextManager[None]:
        """Lock the cluster against other applies; LockedError if one is running."""
        ...

    def perform(self, action: Change, key: str) -> None:
        """Do all of the action or raise ExecutionError; do nothing if it was done under this key before."""
        ...

    def keep_promises(self, promises: Mapping[str, Promise], key: str) -> None:
        """
        Set these promises on the jobs that are pending, and clear the promises of all other jobs.

        All or nothing; does nothing if it was done under this key before.
        """
        ...

    def performed(self, key: str) -> bool:
        """True if the action or the promise step of this key was done."""
        ...


class Executor(ClusterReader, ClusterWriter, Protocol):
    """A cluster that can be read and changed."""
