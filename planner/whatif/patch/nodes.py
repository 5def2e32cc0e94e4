"""Changes of a scenario to nodes and pools, and their effect on the jobs there."""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING

from gpuplan.models.cluster import NodeGpus, NodePool
from gpuplan.models.eligibility.node_eligibility import memory_per_gpu
from gpuplan.models.placement import MigSlice

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.planner.whatif.patch.scenario_changes import (
        AddNodes,
        DrainNodes,
        FailNodes,
        RemoveNodes,
        ReplaceGpus,
        SetPool,
    )
    from gpuplan.planner.whatif.world import Faults, SnapshotSections


def add_nodes(world: SnapshotSections, change: AddNodes) -> Faults:
    """Add nodes like an existing one, from a pool, or as described; raises the pool's `max` if needed."""
    pattern = change.node
    if change.like is not None:
        yield from world.unknown("node", change.like, world.nodes)
        if (like := world.nodes.get(change.like)) is not None:
            pattern = like.as_new()
    if change.pool is not None:
        yield from world.unknown("pool", change.pool, world.pools)
        if (pool := world.pools.get(change.pool)) is not None:
            pattern = pool.template.model_copy(update={"pool": pool.name})
    if pattern is None:
        return
    wanted = {level: getattr(change, level) for level in ("rack", "zone", "region")}
    moved = {level: name for level, name in wanted.items() if name is not None}
    names = (f"{pattern.name}-new-{number}" for number in count(1))
    for name in islice((name for name in names if name not in world.nodes), change.count):
        world.nodes[name] = pattern.model_copy(update={"name": name, **moved})
    if pattern.pool in world.pools:
        _make_room(world, world.pools[pattern.pool])


def _make_room(world: SnapshotSections, pool: NodePool) -> None:
    members = sum(node.pool == pool.name for node in world.nodes.values())
    world.pools[pool.name] = pool.model_copy(update={"maximum": max(pool.maximum, members)})


def remove_nodes(world: SnapshotSections, change: RemoveNodes) -> Faults:
    """Remove nodes, stop the jobs there, drop promises there, and take the nodes out of reservations."""
    before = set(world.nodes)
    yield from world.change_nodes(change.nodes, lambda _: None)
    gone = before - world.nodes.keys()
    world.stop(lambda job: _stands_on(job, gone))
    for name, job in world.jobs.items():
        if job.promise and any(replica.node in gone for replica in job.promise.replicas):
            world.jobs[name] = job.model_copy(update={"promise": None})
    for name, reservation in list(world.reservations.items()):
        left = tuple(node for node in reservation.nodes if node not in gone)
        if reservation.nodes and not left:
            del world.reservations[name]
        elif left != reservation.nodes:
            world.reservations[name] = reservation.model_copy(update={"nodes": left})


def fail_nodes(world: SnapshotSections, change: FailNodes) -> Faults:
    """Set nodes to not ready; the jobs there stop and wait."""
    down: set[str] = set()

    def fail(node: Node) -> Node:
        down.add(node.name)
        return node.model_copy(update={"ready": False})

    yield from world.change_nodes(change.nodes, fail)
    world.stop(lambda job: _stands_on(job, down))


def drain_nodes(world: SnapshotSections, change: DrainNodes) -> Faults:
    """Mark nodes for draining; jobs there keep running until the plan has another place for them."""
    yield from world.change_nodes(change.nodes, lambda node: node.model_copy(update={"drain": True}))


def replace_gpus(world: SnapshotSections, change: ReplaceGpus) -> Faults:
    """Replace the GPUs of nodes; jobs that cannot use the new ones stop and wait."""
    same = [node.gpus for node in world.nodes.values() if node.gpus and node.gpus.model == change.model]
    known = same[0] if same else None
    bare, touched = list[str](), set[str]()

    def replace(node: Node) -> Node:
        amount = change.count or node.gpu_count
        if not amount:
            bare.append(node.name)
            return node
        touched.add(node.name)
        memory_mib = known.memory_mib if known else 0
        gpus = NodeGpus(
            model=change.model,
            count=amount,
            memory_mib=memory_mib if change.memory_mib is None else change.memory_mib,
            watts=known.watts if known else 0,
            time_sliced=node.gpus is not None and node.gpus.time_sliced,
        )
        return node.model_copy(update={"gpus": gpus})

    yield from world.change_nodes(change.nodes, replace)
    for name in bare:
        yield f"node '{name}' has no GPUs to be replaced; expected a count beside the model."
    world.stop(lambda job: _stands_on(job, touched) and not _may_stay(world, job, touched))


def _stands_on(job: Job, nodes: Collection[str]) -> bool:
    return job.running is not None and any(replica.node in nodes for replica in job.running.replicas)


def _may_stay(world: SnapshotSections, job: Job, touched: Collection[str]) -> bool:
    """True if a running job may keep its changed nodes: its GPUs exist and are of one allowed model."""
    if job.running is None:
        return True
    models = set[str]()
    for replica in job.running.replicas:
        gpus = world.nodes[replica.node].gpus
        if not replica.gpus or gpus is None:
            continue
        models.add(gpus.model)
        if replica.node in touched and (
            any(isinstance(held, MigSlice) or held.index >= gpus.count for held in replica.gpus)
            or job.request.gpu_memory_mib > memory_per_gpu(gpus, job.request)
        ):
            return False
    return len(models) <= 1 and (not job.gpu_models or models <= job.gpu_models.keys())


def set_pool(world: SnapshotSections, change: SetPool) -> Faults:
    """Change the limits of a pool."""
    yield from world.unknown("pool", change.pool, world.pools)
    pool = world.pools.get(change.pool)
    if pool is None:
        return
    least = pool.minimum if change.minimum is None else change.minimum
    most = pool.maximum if change.maximum is None else change.maximum
    if least > most:
        yield f"pool '{pool.name}' would have min {least} and max {most}; expected min <= max."
        return
    world.pools[pool.name] = pool.model_copy(update={"minimum": least, "maximum": most})
