"""How many replicas find room as close together, and as far apart, as their job requires."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.planner.waiting.free_capacity import FreePool

if TYPE_CHECKING:
    from gpuplan.models.cluster import Level
    from gpuplan.models.job import Job
    from gpuplan.planner.waiting.free_capacity import Place


def together(job: Job, pool: FreePool, needs: dict[str, int]) -> tuple[int, str]:
    """Replicas that find room as close, and as far apart, as the job requires; and the domain of the most."""
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
    """The nodes by domain; one without a domain is one of its own."""
    members: dict[str, list[Place]] = defaultdict(list)
    for place in pool.places:
        domain = place.node.domain(level)
        members["/".join(part for part in domain if part) if domain else place.node.name].append(place)
    return {name: FreePool(places) for name, places in members.items()}
