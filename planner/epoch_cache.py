"""
Cache of what one epoch computes and the next one may still use.

Most of an epoch's problem equals that of the last epoch. Results that depend on neither the clock nor other
jobs are computed once per job: `gpuplan.planner.warm_start.reuse_equal_nouns` makes unchanged jobs the same
objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import NodeState

_Found = TypeVar("_Found")


class _Known(NamedTuple):
    """Facts about jobs, and the inputs beside the job that they were computed from."""

    basis: object
    found: dict[str, tuple[Job, Any]]
    """By job name."""


class EpochCache:
    """
    The cache of one sequence of epochs. Each epoch updates it; no plan depends on it.

    With an empty cache an epoch is slower, and its plan is the same.
    """

    def __init__(self) -> None:
        self._by_kind: dict[type[Any], _Known] = {}
        self.node_states: dict[str, tuple[object, NodeState]] = {}
        """By node name: the inputs of its state in the last plan, and the state."""

    def job_facts(self, kind: type[Any], *, basis: object, find: Callable[[Job], _Found]) -> JobFacts[_Found]:
        """Facts of one kind about jobs; `basis` holds all inputs of `find` beside the job."""
        before = self._by_kind.get(kind)
        known = before.found if before and before.basis == basis else {}
        facts = JobFacts(known, find)
        self._by_kind[kind] = _Known(basis, facts.asked)
        return facts


class JobFacts(Generic[_Found]):
    """
    Results of `find` for each job; computed again only for a job that is another object than before.

    Facts that are not used in one epoch are dropped in the next.
    """

    def __init__(self, known: dict[str, tuple[Job, _Found]], find: Callable[[Job], _Found]) -> None:
        self._known, self._find = known, find
        self.asked: dict[str, tuple[Job, _Found]] = {}
        """By job name: the job and the fact, of all facts used in this epoch."""

    def of(self, job: Job) -> _Found:
        """The fact about a job."""
        known = self._known.get(job.name)
        if known is None or known[0] is not job:
            known = job, self._find(job)
        self.asked[job.name] = known
        return known[1]
