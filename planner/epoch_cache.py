"""
Remembered: what was found out about jobs in one epoch and is still true in the next.

Most of an epoch's question is that of the last one. What hangs on neither the clock nor other jobs is found
out once for each job, and the next snapshot takes it over (`gpuplan.planner.warm_start.recognized`), in which
jobs that have not changed are the same objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

_Found = TypeVar("_Found")


class Known(NamedTuple):
    """What was found out in one epoch, as a snapshot keeps it."""

    basis: object
    found: dict[str, tuple[Job, Any]]
    """By the name of a job."""


class Remembered(Generic[_Found]):
    """
    What `find` says of each job, as long as the job and all else it looks at, the `basis`, are the same.

    Kept with the snapshot under `kind`; what nobody asks for in one epoch is forgotten in the next.
    """

    def __init__(
        self, snapshot: Snapshot, kind: type[Any], *, basis: object, find: Callable[[Job], _Found]
    ) -> None:
        before = snapshot.findings.get(kind)
        self._before: dict[str, tuple[Job, _Found]] = before.found if before and before.basis == basis else {}
        self._known: dict[str, tuple[Job, _Found]] = {}
        self._find = find
        snapshot.findings[kind] = Known(basis, self._known)

    def of(self, job: Job) -> _Found:
        """What there is to say of a job."""
        known = self._before.get(job.name)
        if known is None or known[0] is not job:
            known = job, self._find(job)
        self._known[job.name] = known
        return known[1]


def take_over(last: Snapshot, live: Snapshot) -> None:
    """Have a snapshot remember what another one does."""
    for kind, found in last.findings.items():
        if isinstance(found, Known):
            live.findings[kind] = found
