"""Right size: running jobs that could do with fewer GPUs, or with less of one, by what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.mig import MEDIA_EXTENSIONS, mig_geometry, profile_milli
from gpuplan.models.placement import GpuShare
from gpuplan.models.units import MILLI, print_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.health.measurement import Measurement
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

_MOST_NAMED: Final = 8
"""GPUs that a sentence names."""
_SHARE_STEP: Final = 50
"""Shares of a GPU are told in steps of this, in thousandths."""


@dataclass(frozen=True, slots=True)
class RightSizeRules:
    """When a running job could do with less."""

    least_period: int = 30
    """Seconds for which all GPUs of a job must have been watched: shorter ones may be a pause in its work."""
    idle_percent: int = 2
    """Utilization in percent up to which a GPU does nothing for its job."""
    small_percent: int = 25
    """Utilization and memory in percent up to which a share of a GPU, or a MIG instance, would do."""
    reserve_percent: int = 20
    """What a smaller size has beyond what was used, in percent of that: the next minutes may need more."""


def oversized_jobs(snapshot: Snapshot, rules: RightSizeRules | None = None) -> Iterator[str]:
    """One sentence for each running job with whole GPUs of which it uses few, or little."""
    if not snapshot.measured:
        return
    rules = rules or RightSizeRules()
    known = {(each.node, each.index): each for each in snapshot.measured}
    nodes = snapshot.cluster.node_by_name
    for job in snapshot.jobs:
        held = [
            known.get((replica.node, part.index))
            for replica in (job.running.replicas if job.running else ())
            for part in replica.gpus
            if isinstance(part, GpuShare) and part.milli == MILLI
        ]
        seen = [each for each in held if each is not None and each.utilization is not None]
        # A GPU without a reading may be the one that works.
        if seen and len(seen) == len(held) and min(each.period for each in seen) >= rules.least_period:
            yield from _oversized(job, seen, nodes, rules)


def _oversized(
    job: Job, seen: list[Measurement], nodes: dict[str, Node], rules: RightSizeRules
) -> Iterator[str]:
    """The sentence about a job, given the measurements of all its GPUs."""
    count, period = len(seen), print_seconds(min(each.period for each in seen))
    idle = [each for each in seen if (each.utilization or 0) <= rules.idle_percent]
    gpus = "its GPU" if count == 1 else f"its {count} GPUs"
    if len(idle) == count:
        yield (f"job '{job.name}' did nothing on {gpus} in {period}; find out whether it hangs, or stop it.")
    elif idle:
        which = ", ".join(f"GPU {each.index} of {each.node}" for each in idle[:_MOST_NAMED])
        more = f" and {len(idle) - _MOST_NAMED} more" if len(idle) > _MOST_NAMED else ""
        yield (
            f"job '{job.name}' did nothing on {len(idle)} of {gpus} in {period} ({which}{more}); ask for "
            f"{count - len(idle)}."
        )
    elif count == 1 and (small := _small(seen[0], nodes, rules)):
        yield f"job '{job.name}' used {small} in {period}; {_enough(seen[0], nodes, rules)} may do."


def _small(seen: Measurement, nodes: dict[str, Node], rules: RightSizeRules) -> str:
    """How little of its only GPU a job used; empty if that is not known to be little."""
    node = nodes.get(seen.node)
    memory = node.gpus.memory_mib if node and node.gpus else 0
    if seen.memory_mib is None or not memory or seen.utilization is None:
        return ""
    little = max(seen.utilization, 100 * seen.memory_mib // memory) <= rules.small_percent
    return f"{seen.utilization} % of its GPU and {seen.memory_mib:,} of {memory:,} MiB" if little else ""


def _enough(seen: Measurement, nodes: dict[str, Node], rules: RightSizeRules) -> str:
    """A share of the GPU, and the smallest MIG instance of it, with room for what was used and a reserve."""
    gpus = nodes[seen.node].gpus
    whole = gpus.memory_mib if gpus else 0
    memory = (seen.memory_mib or 0) * (100 + rules.reserve_percent) // 100
    busy = (seen.utilization or 0) * (100 + rules.reserve_percent)  # in hundredths of a percent
    milli = max(busy // 10, MILLI * memory // whole if whole else 0, 1)
    share = f"{-(-milli // _SHARE_STEP) * _SHARE_STEP / MILLI:g} GPU"
    geometry = mig_geometry(gpus.model) if gpus else None
    instances = [
        (profile.memory_slices, profile.name)
        for profile in (geometry.profiles.values() if geometry else ())
        if not profile.name.endswith(MEDIA_EXTENSIONS)
        and whole * profile.memory_slices // (geometry.memory_slices if geometry else 1) >= memory
        and profile_milli(profile.name) * 10 >= busy
    ]
    return f"{share} or a MIG instance {min(instances)[1]}" if instances else share
