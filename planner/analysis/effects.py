"""
Effects of actions on a cluster: what each one changes, whether it shows, how it is undone, and the cluster
once all are done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, assert_never

from gpuplan.models.eligibility.free_resources import layout_after
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import Placement, Running, mig_instances_in_use, same_holdings
from gpuplan.models.plan.actions import (
    Change,
    Cordon,
    Drain,
    Grow,
    JobChangeAction,
    Migrate,
    NodeAction,
    PoolAction,
    Preempt,
    Release,
    Repartition,
    ScaleDown,
    ScaleUp,
    Shrink,
    Start,
    Uncordon,
)
from gpuplan.models.validation.damage import survey_damage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, MigInstance, Node, NodePool
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.snapshot import Snapshot


class World(Protocol):
    """A cluster that actions change: a view of a live one, or one that is simulated."""

    def node(self, name: str) -> Node | None:
        """The node of this name."""

    def put_node(self, node: Node) -> None:
        """Add a node, or replace the one of its name."""

    def delete_node(self, name: str) -> None:
        """Remove a node; none of this name is no error."""

    def pool(self, name: str) -> NodePool | None:
        """The pool of this name."""

    def put_pool(self, pool: NodePool) -> None:
        """Replace the pool of its name."""

    def clock(self) -> datetime:
        """The present time of the cluster."""

    def ready_at(self, action: ScaleUp) -> datetime | None:
        """When a new node is ready; None if the world does not model the time until then."""

    def change_job(self, action: JobChangeAction) -> None:
        """Change where a job runs, and what follows for its work."""


def apply_action(world: World, action: Change) -> None:
    """Carry out an action in a world, which has checked that it is possible."""
    match action:
        case Repartition():
            if (node := world.node(action.node)) is not None:
                world.put_node(with_layout(node, action.gpu, action.after))
        case Cordon():
            if (node := world.node(action.node)) is not None:
                world.put_node(node.model_copy(update={"cordoned": True}))
        case Uncordon():
            if (node := world.node(action.node)) is not None:
                world.put_node(node.model_copy(update={"cordoned": False}))
        case Drain():
            pass  # it confirms that the node is empty
        case ScaleUp():
            ready_at = world.ready_at(action)
            new = action.after if ready_at is None else action.after.model_copy(update={"ready_at": ready_at})
            world.put_node(new)
            _note_scaling(world, action, "node_added_at")
        case ScaleDown():
            world.delete_node(action.node)
            _note_scaling(world, action, "node_removed_at")
        case Start() | Shrink() | Grow() | Migrate() | Preempt() | Release():
            world.change_job(action)
        case _:
            assert_never(action)


def shows(action: Change, live: Snapshot, busy: Collection[str]) -> bool:
    """True if the snapshot already has the effect of the action; `busy` are the nodes on which jobs run."""
    nodes = live.cluster.node_by_name
    match action:
        case Start() | Shrink() | Grow() | Migrate():
            job = live.job_by_name.get(action.job)
            return (
                job is not None
                and job.running is not None
                and same_holdings(job.running.replicas, action.after.replicas)
            )
        case Release():
            return action.job not in survey_damage(live).losses
        case Preempt():
            job = live.job_by_name.get(action.job)
            return job is not None and job.running is None
        case Repartition():
            node = nodes.get(action.node)
            gpu = node.gpus.by_index.get(action.gpu) if node and node.gpus else None
            return gpu is not None and gpu.mig is not None and set(gpu.mig) == set(action.after)
        case Cordon():
            return action.node not in nodes or nodes[action.node].cordoned
        case Uncordon():
            return action.node in nodes and not nodes[action.node].cordoned
        case Drain():
            return action.node not in busy
        case ScaleUp():
            return action.node in nodes
        case ScaleDown():
            return action.node not in nodes
        case _:
            assert_never(action)


def undo_node_action(nodes: dict[str, Node], action: NodeAction, base: Mapping[str, Node]) -> None:
    """
    Take back the effect of an action on the nodes, by name; `base` are the nodes before the plan.

    Added nodes stay, because only the cluster knows when they are ready.
    """
    node = nodes.get(action.node)
    match action:
        case Repartition() if node is not None:
            nodes[action.node] = with_layout(node, action.gpu, action.before)
        case Cordon() if node is not None and not base[action.node].cordoned:
            nodes[action.node] = node.model_copy(update={"cordoned": False})
        case Uncordon() if node is not None and base[action.node].cordoned:
            nodes[action.node] = node.model_copy(update={"cordoned": True})
        case ScaleDown() if node is None:
            nodes[action.node] = base[action.node]
        case _:
            pass


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


def with_layout(node: Node, gpu: int, instances: tuple[MigInstance, ...] | None) -> Node:
    """The node with these MIG instances on one of its GPUs; None: with MIG mode off."""
    if node.gpus is None or gpu not in node.gpus.by_index:
        return node
    changed = node.gpus.by_index[gpu].model_copy(update={"mig": instances})
    details = (changed, *(other for other in node.gpus.details if other.index != gpu))
    ordered = tuple(sorted(details, key=lambda detail: detail.index))
    return node.model_copy(update={"gpus": node.gpus.model_copy(update={"details": ordered})})


def nodes_touched(action: Change) -> set[str]:
    """Names of the nodes of an action: those of the job before and after, or the node itself."""
    if isinstance(action, NodeAction):
        return {action.node}
    placements = (action.before, action.after)
    return {replica.node for placement in placements if placement for replica in placement.replicas}


def _note_scaling(world: World, action: PoolAction, field: str) -> None:
    if (pool := world.pool(action.pool)) is not None:
        world.put_pool(pool.model_copy(update={field: world.clock()}))


# The cluster once a target is applied: nodes added and removed, MIG layouts changed.


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """The MIG layout of one GPU, before and after."""

    node: str
    gpu: int
    before: tuple[MigInstance, ...] | None
    """None if MIG mode is off."""
    after: tuple[MigInstance, ...]


def layout_changes(
    nodes: Iterable[Node], *, before: Iterable[Placement], after: Iterable[Placement]
) -> tuple[LayoutChange, ...]:
    """
    Find the GPUs that get another MIG layout, by node and GPU index.

    A layout changes only if it gets new instances in use; instances that become idle stay.
    """
    used, running = mig_instances_in_use(after), mig_instances_in_use(before)
    return tuple(
        LayoutChange(node.name, index, gpu.mig, layout)
        for node in sorted((node for node in nodes if node.name in used), key=lambda node: node.name)
        if node.gpus
        for index, instances in sorted(used[node.name].items())
        if not instances <= running[node.name][index]
        and (gpu := node.gpus.by_index.get(index))
        and (layout := layout_after(gpu, mig_geometry(node.gpus.model), instances)) is not None
        and (gpu.mig is None or set(layout) != set(gpu.mig))
    )


def target_layouts(snapshot: Snapshot, target: DesiredState) -> tuple[LayoutChange, ...]:
    """The GPUs that get another MIG layout by a target: what its jobs need, and what a rollback puts back."""
    staying = {
        node.name: node
        for node in (*snapshot.cluster.nodes, *target.added)
        if node.name not in target.removed
    }
    needed = layout_changes(staying.values(), before=snapshot.running_placements, after=target.placements)
    if not target.undo.layouts:
        return needed
    found = {(change.node, change.gpu): change for change in needed}
    for back in target.undo.layouts:
        gpus = staying[back.node].gpus
        present = gpus.by_index[back.gpu].mig if gpus else None
        found.pop((back.node, back.gpu), None)
        if present is None or set(present) != set(back.instances):
            found[back.node, back.gpu] = LayoutChange(back.node, back.gpu, present, back.instances)
    return tuple(found[key] for key in sorted(found))


def cluster_after(
    snapshot: Snapshot, target: DesiredState, layouts: Sequence[LayoutChange] | None = None
) -> Cluster:
    """
    Return the snapshot's cluster once the target is applied; a changed cluster has its nodes sorted by name.

    `layouts` are the changes of MIG layouts, if they are known already.
    """
    cluster, removed = snapshot.cluster, set(target.removed)
    staying = [node for node in (*cluster.nodes, *target.added) if node.name not in removed]
    if layouts is None:
        layouts = target_layouts(snapshot, target)
    opened = target.undo.opened
    if not removed and not target.added and not layouts and not opened:
        return cluster
    nodes = {node.name: node for node in staying}
    for name in opened:
        nodes[name] = nodes[name].model_copy(update={"cordoned": False})
    for change in layouts:
        nodes[change.node] = with_layout(nodes[change.node], change.gpu, change.after)
    return cluster.model_copy(update={"nodes": tuple(nodes[name] for name in sorted(nodes))})


def likely_executor(snapshot: Snapshot) -> str:
    """Name of the executor that a snapshot is probably of, by the labels of its nodes."""
    labels = {name for node in snapshot.cluster.nodes for name in node.labels}
    return "slurm" if "slurm/node" in labels else "local" if "gpuplan/local" in labels else "simulated"
