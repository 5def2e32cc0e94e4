"""What a plan leaves alone while actions of an earlier plan are still under way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpuplan.models.gang import Gang
from gpuplan.models.plan.actions import Grow, Migrate, NodeAction, PoolAction, Start
from gpuplan.planner.analysis.effects import nodes_touched, snapshot_after

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.job import Job
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.snapshot import Snapshot


_TAKING: Final = (Start, Grow, Migrate)


def left_alone(live: Snapshot, under_way: Collection[Change]) -> Snapshot:
    """
    The snapshot to plan while these actions are under way: nothing that they touch changes.

    What they take, places and quota, counts as taken; what they free is not free yet. Nothing starts on their
    nodes, their jobs neither start nor are disturbed, and their pools do not grow.
    """
    if not under_way:
        return live
    live = snapshot_after(live, [change for change in under_way if isinstance(change, _TAKING)])
    nodes = {name for change in under_way for name in nodes_touched(change)}
    jobs = {change.job for change in under_way if not isinstance(change, NodeAction)}
    pools = {change.pool for change in under_way if isinstance(change, PoolAction)}
    sizes = Counter(node.pool for node in live.cluster.nodes)
    cluster = live.cluster.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"cordoned": True}) if node.name in nodes else node
                for node in live.cluster.nodes
            ),
            "pools": tuple(
                pool.model_copy(update={"maximum": max(pool.minimum, min(pool.maximum, sizes[pool.name]))})
                if pool.name in pools
                else pool
                for pool in live.cluster.pools
            ),
        }
    )
    kept = tuple(_kept(job) if job.name in jobs else job for job in live.jobs)
    return live.model_copy(update={"cluster": cluster, "jobs": kept}).canonical()


def _kept(job: Job) -> Job:
    """The job as one that no plan changes."""
    if job.running is None:
        return job.model_copy(update={"held": True})
    count = len(job.running.replicas)
    return job.model_copy(update={"preemptible": False, "gang": Gang(minimum=count, maximum=count)})
