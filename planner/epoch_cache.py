"""
What one epoch finds out that the next one may still use.

Most of the question of an epoch is that of the last one. What depends on neither the clock nor other jobs is
found out once for each job: `gpuplan.planner.warm_start.recognized` makes unchanged jobs the same objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import NodeState

_Found = TypeVar("_Found")


class _Known(NamedTuple):
    """Facts about jobs, and what they rest on beside the job."""

    basis: object
    found: dict[str, tuple[Job, Any]]
    """By the name of a job."""


class EpochCache:
    """
    The memory of one sequence of epochs: it changes with each epoch, and no plan depends on it.

    An empty one is always right; it makes an epoch slower, never another.
    """

    def __init__(self) -> None:
        self._by_kind: dict[type[Any], _Known] = {}
        self.node_states: dict[str, tuple[object, NodeState]] = {}
        """By the name of a node: what its state in the last plan was made from, and the state."""

    def job_facts(self, kind: type[Any], *, basis: object, find: Callable[[Job], _Found]) -> JobFacts[_Found]:
        """Facts of one kind about jobs; `basis` is all that `find` looks at beside the job."""
        before = self._by_kind.get(kind)
        known = before.found if before and before.basis == basis else {}
        facts = JobFacts(known, find)
        self._by_kind[kind] = _Known(basis, facts.asked)
        return facts


class JobFacts(Generic[_Found]):
    """
    What `find` says of each job, found again only for a job that is another object than before.

    Facts that one epoch does not ask for are forgotten in the next.
    """

    def __init__(self, known: dict[str, tuple[Job, _Found]], find: Callable[[Job], _Found]) -> None:
        self._known, self._find = known, find
        self.asked: dict[str, tuple[Job, _Found]] = {}
        """By the name of a job: the job and the fact, of all that were asked for."""

    def of(self, job: Job) -> _Found:
        """The fact about a job."""
        known = self._known.get(job.name)
        if known is None or known[0] is not job:
            known = job, self._find(job)
        self.asked[job.name] = known
        return known[1]
