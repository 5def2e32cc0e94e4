"""Places of running jobs, in the form that the problem uses; they do not depend on the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.placement import MigSlice
from gpuplan.models.problem.jobs import HeldResources

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.epoch_cache import EpochCache, JobFacts
    from gpuplan.planner.problem_builder.nodes.node_groups import NodeGroups


class RunningPlacement(NamedTuple):
    """Places of a running job with replicas that all hold the same amounts."""

    gpu_model: str | None
    drains: bool
    """One of its nodes is to be drained."""


def placements_of_running(snapshot: Snapshot, cache: EpochCache) -> JobFacts[RunningPlacement | None]:
    """
    The tenure of each running job.

    None if one of its nodes is missing, its GPUs are of several models, or its replicas differ in amounts.
    """
    cluster = snapshot.cluster
    draining = {node.name for node in cluster.nodes if node.drain}

    def find(job: Job) -> RunningPlacement | None:
        placement = job.placement
        if placement is None or not placement.nodes <= cluster.node_by_name.keys():
            return None
        models = {cluster.gpu_model_by_node.get(name) for name in placement.gpu_nodes}
        if len(models) != (1 if job.request.needs_gpu else 0) or not placement.is_even:
            return None
        return RunningPlacement(next(iter(models), None), not draining.isdisjoint(placement.nodes))

    return cache.job_facts(RunningPlacement, basis=cluster, find=find)


def held_resources(
    snapshot: Snapshot, sites: NodeGroups, cache: EpochCache
) -> JobFacts[tuple[HeldResources, ...]]:
    """What each replica of each running job holds; node indices are those of `sites`."""

    def find(job: Job) -> tuple[HeldResources, ...]:
        return tuple([_hold(replica, sites) for replica in job.running.replicas]) if job.running else ()

    return cache.job_facts(HeldResources, basis=(snapshot.cluster, sites.index), find=find)


def _hold(replica: Replica, sites: NodeGroups) -> HeldResources:
    index = sites.index.get(replica.node)
    if index is None:
        return HeldResources(None)
    gpus = sites.nodes[index].gpus
    if gpus and not gpus.details:
        return HeldResources(node=index, gpus=replica.shared_gpus)
    # No other job can use an unhealthy GPU.
    sound = [held for held in replica.gpus if gpus and gpus.by_index[held.index].healthy]
    return HeldResources(
        node=index,
        gpus=tuple(sorted(held.index for held in sound if not isinstance(held, MigSlice))),
        slices=tuple(
            sorted(
                ((held.index, held.instance) for held in sound if isinstance(held, MigSlice)),
                key=lambda held: (held[0], held[1].start),
            )
        ),
    )
