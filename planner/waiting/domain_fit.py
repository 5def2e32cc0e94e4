"""How many replicas of a job fit within its required domain and its spread limit."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.planner.waiting.free_capacity import FreePool

if TYPE_CHECKING:
    from gpuplan.models.cluster import Level
    from gpuplan.models.job import Job
    from gpuplan.planner.waiting.free_capacity import Place


def together(job: Job, pool: FreePool, needs: dict[str, int]) -> tuple[int, str]:
    """Return how many replicas fit within the best domain under the spread limit, and that domain's name."""
    level = job.locality.required
    if level is None or job.gang.minimum == 1:
        return _spread_out(job, pool, needs), ""
    found = ((_spread_out(job, domain, needs), name) for name, domain in _domains(pool, level).items())
    return max(found, default=(0, ""))


def _spread_out(job: Job, pool: FreePool, needs: dict[str, int]) -> int:
    if job.spread is None:
        return pool.fitting(needs, job.gang.minimum)
    return sum(
        domain.fitting(needs, min(job.spread.most, job.gang.minimum))
        for domain in _domains(pool, job.spread.level).values()
    )


def _domains(pool: FreePool, level: Level) -> dict[str, FreePool]:
    """Nodes by domain; a node without a domain is a domain of its own."""
    members: dict[str, list[Place]] = defaultdict(list)
    for place in pool.places:
        domain = place.node.domain(level)
        members["/".join(part for part in domain if part) if domain else place.node.name].append(place)
    return {name: FreePool(places) for name, places in members.items()}
