"""Jobs that must not share a domain (anti-affinity), while a plan's steps are ordered one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuplan.models.cluster import Level, Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica


@dataclass(frozen=True, slots=True)
class Turnover:
    """Replicas that one job gives up and takes in one step."""

    job: Job
    leaving: Sequence[Replica]
    arriving: Sequence[Replica]


_Rule: TypeAlias = "tuple[frozenset[tuple[str, str]], Level]"
"""Labels of the jobs to avoid, and the level of the domain that must not be shared with them."""

_Side: TypeAlias = tuple[_Rule, tuple[str, ...], bool]
"""A rule, a domain, and True for the jobs that avoid, False for the jobs that are avoided."""


class JobDistances:
    """Where jobs are that must not share a domain, as far as they change."""

    def __init__(
        self, nodes: Mapping[str, Node], turnovers: Collection[Turnover], lost: Collection[Turnover]
    ) -> None:
        self._nodes = nodes
        held = [(each.job, each.job.running.replicas) for each in turnovers if each.job.running]
        held += [(each.job, tuple(each.leaving)) for each in lost]
        self._rules = sorted(
            {rule for each in (*turnovers, *lost) for rule in _avoided(each.job)},
            key=lambda rule: (sorted(rule[0]), rule[1]),
        )
        self._there: dict[_Side, Counter[str]] = defaultdict(Counter)
        self._left: dict[_Side, list[tuple[str, str]]] = defaultdict(list)
        """(job, id of the step by which it left)."""
        for job, replicas in held if self._rules else ():
            for side, count in self._sides(job, replicas).items():
                self._there[side][job.name] += count

    def has_room_for(self, turnover: Turnover) -> bool:
        """True if the job comes to no domain with a job from which it must keep a distance."""
        return not any(
            count
            for side in self._sides(turnover.job, turnover.arriving)
            for name, count in self._there[_opposite(side)].items()
            if name != turnover.job.name
        )

    def change(self, turnover: Turnover, id_: str) -> list[str]:
        """Apply a step; returns the ids of the steps that it waits for."""
        if not self._rules:
            return []
        coming = self._sides(turnover.job, turnover.arriving)
        going = self._sides(turnover.job, turnover.leaving)
        name = turnover.job.name
        after = [step for side in coming for other, step in self._left[_opposite(side)] if other != name]
        for side, count in coming.items():
            self._there[side][name] += count
        for side, count in going.items():
            self._there[side][name] -= count
            if not self._there[side][name]:
                self._left[side].append((name, id_))
        return after

    def _sides(self, job: Job, replicas: Iterable[Replica]) -> Counter[_Side]:
        """Replicas of a job by the sides that it takes in the rules."""
        nodes = [self._nodes[replica.node] for replica in replicas if replica.node in self._nodes]
        avoided = _avoided(job) if self._rules else ()
        found: Counter[_Side] = Counter()
        for rule in self._rules:
            sides = [
                side
                for side, holds in ((True, rule in avoided), (False, rule[0] <= job.labels.items()))
                if holds
            ]
            for node in nodes if sides else ():
                domain = node.domain(rule[1]) or ("",) * 5 + (node.name,)
                found.update((rule, domain, side) for side in sides)
        return found


def _avoided(job: Job) -> list[_Rule]:
    return [(frozenset(each.labels.items()), each.level) for each in job.anti_affinity]


def _opposite(side: _Side) -> _Side:
    rule, domain, avoids = side
    return rule, domain, not avoids
