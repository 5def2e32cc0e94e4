"""
Effects of actions on a cluster: what each one changes, whether it shows, and the cluster once all are done.

What actions about nodes do is in `gpuplan.planner.analysis.node_actions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from gpuplan.models.placement import Running, same_holdings
from gpuplan.models.plan.actions import Change, Grow, Migrate, NodeAction, Preempt, Release, Shrink, Start
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.analysis.node_actions import rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, Node, NodePool
    from gpuplan.models.plan.actions import JobChangeAction, ScaleUp
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.analysis.node_rules import World


def apply_action(world: World, action: Change) -> None:
    """Carry out an action in a world, which has checked that it is possible."""
    if isinstance(action, NodeAction):
        rules_of(action).apply(world, action)
    else:
        world.change_job(action)


def shows(action: Change, live: Snapshot, busy: Collection[str]) -> bool:
    """True if the snapshot already has the effect of the action; `busy` are the nodes on which jobs run."""
    if isinstance(action, NodeAction):
        node = live.cluster.node_by_name.get(action.node)
        return rules_of(action).shows(action, node, busy=action.node in busy)
    job = live.job_by_name.get(action.job)
    match action:
        case Start() | Shrink() | Grow() | Migrate():
            return (
                job is not None
                and job.running is not None
                and same_holdings(job.running.replicas, action.after.replicas)
            )
        case Release():
            return action.job not in survey_damage(live).losses
        case Preempt():
            return job is not None and job.running is None
        case _:
            assert_never(action)


class NodesByName:
    """The part of a world in memory that is about nodes and pools."""

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        self.nodes = dict(cluster.node_by_name)
        self.pools = {pool.name: pool for pool in cluster.pools}
        self.now = now

    def node(self, name: str) -> Node | None:
        """See `World`."""
        return self.nodes.get(name)

    def put_node(self, node: Node) -> None:
        """See `World`."""
        self.nodes[node.name] = node

    def delete_node(self, name: str) -> None:
        """See `World`."""
        self.nodes.pop(name, None)

    def pool(self, name: str) -> NodePool | None:
        """See `World`."""
        return self.pools.get(name)

    def put_pool(self, pool: NodePool) -> None:
        """See `World`."""
        self.pools[pool.name] = pool

    def clock(self) -> datetime:
        """See `World`."""
        return self.now


class ClusterView(NodesByName):
    """A world without time: nodes, pools, and placements of running jobs, by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot.cluster, snapshot.taken_at)
        self.placements = {placement.job: placement for placement in snapshot.running_placements}

    def ready_at(self, action: ScaleUp) -> datetime | None:  # noqa: ARG002 - no job waits for a node here
        """See `World`."""
        return None

    def change_job(self, action: JobChangeAction) -> None:
        """See `World`."""
        if action.after is None:
            self.placements.pop(action.job, None)
        else:
            self.placements[action.job] = action.after


def snapshot_after(live: Snapshot, changes: Sequence[Change]) -> Snapshot:
    """The snapshot as if these changes had landed, whatever of them it shows already; canonical."""
    if not changes:
        return live
    view, jobs = ClusterView(live), dict(live.job_by_name)
    for change in changes:
        apply_action(view, change)
    kill_at = {change.job: change.kill_at for change in changes if isinstance(change, Start)}
    for name in {change.job for change in changes if not isinstance(change, NodeAction)} & jobs.keys():
        at, job = view.placements.get(name), jobs[name]
        if at is None:
            jobs[name] = job.model_copy(update={"running": None})
            continue
        started = Running(started_at=live.taken_at, kill_at=kill_at.get(name), replicas=at.replicas)
        runs = (job.running or started).model_copy(update={"replicas": at.replicas})
        jobs[name] = job.model_copy(update={"running": runs, "promise": None})
    nodes, pools = tuple(view.nodes.values()), tuple(view.pools.values())
    cluster = live.cluster.model_copy(update={"nodes": nodes, "pools": pools})
    return live.model_copy(update={"cluster": cluster, "jobs": tuple(jobs.values())}).canonical()


def nodes_touched(action: Change) -> set[str]:
    """Names of the nodes of an action: those of the job before and after, or the node itself."""
    if isinstance(action, NodeAction):
        return {action.node}
    placements = (action.before, action.after)
    return {replica.node for placement in placements if placement for replica in placement.replicas}


def likely_executor(snapshot: Snapshot) -> str:
    """Name of the executor that a snapshot is probably of, by the labels of its nodes."""
    labels = {name for node in snapshot.cluster.nodes for name in node.labels}
    return "slurm" if "slurm/node" in labels else "local" if "gpuplan/local" in labels else "simulated"
