"""How many replicas of a job fit within its required domain and its spread limit."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.planner.waiting.free_capacity import FreeCapacity

if TYPE_CHECKING:
    from gpuplan.models.cluster import Level
    from gpuplan.models.job import Job
    from gpuplan.planner.waiting.free_capacity import NodeRoom


def replicas_in_one_domain(job: Job, pool: FreeCapacity, needs: dict[str, int]) -> tuple[int, str]:
    """Return how many replicas fit within the best domain under the spread limit, and that domain's name."""
    level = job.locality.required
    if level is None or job.gang.minimum == 1:
        return _spread_out(job, pool, needs), ""
    found = ((_spread_out(job, domain, needs), name) for name, domain in _domains(pool, level).items())
    return max(found, default=(0, ""))


def _spread_out(job: Job, pool: FreeCapacity, needs: dict[str, int]) -> int:
    if job.spread is None:
        return pool.count_replicas(needs, job.gang.minimum)
    return sum(
        domain.count_replicas(needs, min(job.spread.most, job.gang.minimum))
        for domain in _domains(pool, job.spread.level).values()
    )


def _domains(pool: FreeCapacity, level: Level) -> dict[str, FreeCapacity]:
    """Nodes by domain; a node without a domain is a domain of its own."""
    members: dict[str, list[NodeRoom]] = defaultdict(list)
    for place in pool.places:
        domain = place.node.domain(level)
        members["/".join(part for part in domain if part) if domain else place.node.name].append(place)
    return {name: FreeCapacity(places) for name, places in members.items()}
