"""
Cache of results about single jobs from one epoch to the next.

Most of an epoch's problem equals that of the last epoch. Results that depend on neither the clock nor other
jobs are computed once per job. The next snapshot takes them over (`gpuplan.planner.warm_start.recognized`);
jobs that have not changed are the same objects there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

_Found = TypeVar("_Found")


class Known(NamedTuple):
    """Results of one epoch, as stored with a snapshot."""

    basis: object
    found: dict[str, tuple[Job, Any]]
    """By job name."""


class Remembered(Generic[_Found]):
    """
    Cached results of `find` for each job, valid while the job and the other inputs (`basis`) are the same.

    Stored with the snapshot under `kind`. Results that are not used in one epoch are dropped in the next.
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
        """Result for a job, from the cache or from `find`."""
        known = self._before.get(job.name)
        if known is None or known[0] is not job:
            known = job, self._find(job)
        self._known[job.name] = known
        return known[1]


def take_over(last: Snapshot, live: Snapshot) -> None:
    """Copy the cached results of one snapshot to another."""
    for kind, found in last.findings.items():
        if isinstance(found, Known):
            live.findings[kind] = found
