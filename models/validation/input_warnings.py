"""
Warnings: valid input that is probably a mistake.

A plan can still be made: such jobs wait, such quotas have no effect. Running jobs that could do with less, by
what was measured, are told too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.mig import MEDIA_EXTENSIONS, mig_geometry, profile_milli
from gpuplan.models.placement import GpuShare
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, Queue, queue_and_above, quota_resources
from gpuplan.models.units import MILLI, print_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.health.measurement import Measurement
    from gpuplan.models.job import Job, ResourceRequest
    from gpuplan.models.snapshot import Snapshot


def input_warnings(snapshot: Snapshot) -> tuple[str, ...]:
    """One sentence per warning, with the value found and the remedy; jobs first, then quotas."""
    return (
        *_jobs_that_fit_nowhere(snapshot),
        *unused_scaling(snapshot),
        *oversized_jobs(snapshot),
        *_quotas_beyond_the_cluster(snapshot),
    )


def _jobs_that_fit_nowhere(snapshot: Snapshot) -> Iterator[str]:
    """Pending jobs of which no empty node could hold one replica; nodes of pools count too."""
    cluster = snapshot.cluster
    shapes = {_shape(node): node for node in (*cluster.nodes, *(pool.template for pool in cluster.pools))}
    nodes = tuple(shapes.values())
    models = {node.gpu_model for node in nodes if node.gpu_model}
    known: dict[tuple[ResourceRequest, frozenset[str]], bool] = {}
    for job in snapshot.jobs:
        if job.running is not None:
            continue
        allowed = frozenset(job.gpu_models)
        if strange := job.gang.scaling_by_model.keys() - (allowed or models):
            names, known_models = ", ".join(sorted(strange)), _listed(set(allowed) or models)
            yield (
                f"job '{job.name}' says how it scales on {names}, where it cannot run; expected one of "
                f"{known_models}."
            )
        if allowed and job.request.needs_gpu and not allowed & models:
            names = ", ".join(sorted(allowed))
            yield (
                f"job '{job.name}' allows only {names}, which no node has; expected one of {_listed(models)}."
            )
            continue
        key = job.request, allowed
        if key not in known:
            known[key] = any(_holds(node, job) for node in nodes)
        if not known[key]:
            yield (
                f"job '{job.name}': no node is large enough for one replica, even if it is empty "
                f"({_asked(job.request)}); ask for less on a node, or for more replicas."
            )


def unused_scaling(snapshot: Snapshot) -> Iterator[str]:
    """Pending jobs with speeds by number of replicas that no plan uses."""
    for job in snapshot.jobs:
        gang = job.gang
        if job.running is not None or not (gang.scaling or gang.scaling_by_model):
            continue
        if not gang.elastic:
            # Speeds by GPU model still tell how fast the job is on each of them.
            if not gang.scaling_by_model:
                yield (
                    f"job '{job.name}' says how it scales, but always has {gang.maximum:,} "
                    f"{'replica' if gang.maximum == 1 else 'replicas'}, so that scaling has no effect; state "
                    f"replicas with a min below max, or leave scaling out."
                )
            continue
        tables = (gang.scaling, *gang.scaling_by_model.values())
        if (largest := max(max(table, default=0) for table in tables)) > gang.maximum:
            yield (
                f"job '{job.name}' says how it scales up to {largest:,} replicas, but has at most "
                f"{gang.maximum:,}; raise max, or leave out the speeds beyond it."
            )


def _shape(node: Node) -> tuple[object, ...]:
    gpus = node.gpus
    model = (gpus.model, gpus.count, gpus.memory_mib, gpus.time_sliced) if gpus else ()
    return (model, node.cpu_milli, node.memory_mib, node.disk_mib, frozenset(node.resources.items()))


def _holds(node: Node, job: Job) -> bool:
    """True if one replica would fit on the empty node, regardless of its labels and state."""
    request, gpus = job.request, node.gpus
    amounts = (
        (request.cpu_milli, node.cpu_milli),
        (request.memory_mib, node.memory_mib),
        (request.disk_mib, node.disk_mib),
        *((amount, node.resources.get(name, 0)) for name, amount in request.resources.items()),
    )
    if any(asked > there for asked, there in amounts):
        return False
    if not request.needs_gpu:
        return True
    if gpus is None or (job.gpu_models and gpus.model not in job.gpu_models):
        return False
    if request.mig:
        # Each profile alone: whether several fit together depends on the layout, which planning chooses.
        geometry = mig_geometry(gpus.model)
        profiles = geometry.profiles if geometry else {}
        return all(
            name in profiles and count <= profiles[name].most * gpus.count
            for name, count in request.mig.items()
        )
    share = request.gpu_milli or MILLI
    return request.gpus <= gpus.count and request.gpu_memory_mib * MILLI <= gpus.memory_mib * share


def _quotas_beyond_the_cluster(snapshot: Snapshot) -> Iterator[str]:
    """Nominal quotas and guarantees that exceed what the cluster has with all pools at their maximum."""
    there: dict[str, int] = defaultdict(int)
    in_pool: dict[str | None, int] = defaultdict(int)
    for node in snapshot.cluster.nodes:
        in_pool[node.pool] += 1
        _add(there, node, 1)
    for pool in snapshot.cluster.pools:
        _add(there, pool.template, max(0, pool.maximum - in_pool[pool.name]))
    for resource in quota_resources(snapshot.queues):
        for word, stated in _stated(snapshot.queues, resource):
            if stated > there[resource]:
                unit, noun = _UNITS.get(resource, (MILLI, f"{resource} GPUs"))
                yield (
                    f"{word} of all queues add up to {stated / unit:g} {noun}, the cluster has "
                    f"{there[resource] / unit:g}; they cannot all be used in full at the same time."
                )


_UNITS: Final = {ALL_MODELS: (MILLI, "GPUs"), CPUS: (MILLI, "CPUs"), MEMORY: (1024, "GiB of memory")}


def _add(there: dict[str, int], node: Node, times: int) -> None:
    """Add what some equal nodes offer to the resources with quotas."""
    for resource in (ALL_MODELS, node.gpu_model) if node.gpu_model else ():
        there[resource] += node.gpu_count * MILLI * times
    there[CPUS] += node.cpu_milli * times
    there[MEMORY] += node.memory_mib * times


def _stated(queues: tuple[Queue, ...], resource: str) -> Iterator[tuple[str, int]]:
    """Sums over all queues; a guarantee includes those of the queues below, which are not added again."""
    limits = (queue.limits_for(resource) for queue in queues)
    yield "nominal quotas", sum(each.nominal for each in limits if each is not None)
    quotas = [(queue, quota) for queue in queues if (quota := queue.quota_for(resource)) is not None]
    guaranteed = {queue.name for queue, quota in quotas if quota.guarantee}
    parents = {queue.name: queue.parent for queue in queues}
    topmost = (
        quota
        for queue, quota in quotas
        if not any(name in guaranteed for name in queue_and_above(queue.name, parents) if name != queue.name)
    )
    yield "guarantees", sum(quota.guarantee or 0 for quota in topmost)


def _listed(models: set[str]) -> str:
    return ", ".join(sorted(models)) if models else "none: no node has GPUs"


def _asked(request: ResourceRequest) -> str:
    """Request of one replica, such as `8 GPUs, 96 CPUs, 1,024 MiB`."""
    parts = [f"{request.gpus} GPU{'s' if request.gpus > 1 else ''}"] if request.gpus else []
    parts += [f"{request.gpu_milli / MILLI:g} GPU"] if request.gpu_milli else []
    parts += [f"{count} x {profile}" for profile, count in request.mig.items()]
    parts += [f"{request.gpu_memory_mib:,} MiB on each GPU"] if request.gpu_memory_mib else []
    parts += [f"{request.cpu_milli / MILLI:g} CPUs"] if request.cpu_milli else []
    parts += [f"{request.memory_mib:,} MiB"] if request.memory_mib else []
    parts += [f"{request.disk_mib:,} MiB of disk"] if request.disk_mib else []
    parts += [f"{count} {name}" for name, count in request.resources.items()]
    return ", ".join(parts)


# Right size: running jobs that could do with fewer GPUs, or with less of one, by what was measured.


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
            for replica in job.running_replicas
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
