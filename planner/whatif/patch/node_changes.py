"""Changes of nodes and pools: add, remove, fail, drain, replace GPUs, set limits."""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.cluster import Node, NodeGpus, NodePool
from gpuplan.models.eligibility.node_eligibility import memory_per_gpu
from gpuplan.models.placement import MigSlice
from gpuplan.models.units import AtLeastOne, Count, Label, Mib, Name
from gpuplan.planner.whatif.patch.world import (
    Faults,
    NodeChoice,
    SnapshotSections,
    expect_one_of,
    expect_some_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.job import Job


class AddNodes(Noun):
    """Add equal new nodes: like an existing one, from a pool, or as described."""

    change: Literal["add_nodes"]
    count: AtLeastOne = 1
    """Nodes to add."""
    like: Name | None = None
    """Existing node to copy; the copies are healthy and empty even if it is not."""
    pool: Name | None = None
    """Pool of the new nodes; its `max` is raised if needed."""
    node: Node | None = None
    """Description of the new nodes; its name is the prefix of their names."""
    rack: Label | None = None
    """Rack of the new nodes, instead of the pattern's."""
    zone: Label | None = None
    """Zone of the new nodes, instead of the pattern's."""
    region: Label | None = None
    """Region of the new nodes, instead of the pattern's."""

    @model_validator(mode="after")
    def _one_pattern(self) -> AddNodes:
        expect_one_of(self, "like", "pool", "node")
        return self

    def apply(self, world: SnapshotSections) -> Faults:
        """Add nodes like an existing one, from a pool, or as described; raises the pool's `max` if needed."""
        pattern = self.node
        if self.like is not None:
            yield from world.unknown("node", self.like, world.nodes)
            if (like := world.nodes.get(self.like)) is not None:
                pattern = like.as_new()
        if self.pool is not None:
            yield from world.unknown("pool", self.pool, world.pools)
            if (pool := world.pools.get(self.pool)) is not None:
                pattern = pool.template.model_copy(update={"pool": pool.name})
        if pattern is None:
            return
        wanted = {level: getattr(self, level) for level in ("rack", "zone", "region")}
        moved = {level: name for level, name in wanted.items() if name is not None}
        names = (f"{pattern.name}-new-{number}" for number in count(1))
        for name in islice((name for name in names if name not in world.nodes), self.count):
            world.nodes[name] = pattern.model_copy(update={"name": name, **moved})
        if pattern.pool in world.pools:
            _make_room(world, world.pools[pattern.pool])


class RemoveNodes(Noun):
    """Remove nodes; jobs there stop, lose their unsaved work and wait again."""

    change: Literal["remove_nodes"]
    nodes: NodeChoice
    """Nodes to remove."""

    def apply(self, world: SnapshotSections) -> Faults:
        """Remove nodes, stop the jobs there, drop promises there, and take the nodes out of reservations."""
        before = set(world.nodes)
        yield from world.change_nodes(self.nodes, lambda _: None)
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


class FailNodes(Noun):
    """Fail nodes; jobs there stop, lose their unsaved work and wait again."""

    change: Literal["fail_nodes"]
    nodes: NodeChoice
    """Nodes that are down."""

    def apply(self, world: SnapshotSections) -> Faults:
        """Set nodes to not ready; the jobs there stop and wait."""
        down: set[str] = set()

        def fail(node: Node) -> Node:
            down.add(node.name)
            return node.model_copy(update={"ready": False})

        yield from world.change_nodes(self.nodes, fail)
        world.stop(lambda job: _stands_on(job, down))


class DrainNodes(Noun):
    """Drain nodes: nothing new may start there, and running jobs should move away."""

    change: Literal["drain_nodes"]
    nodes: NodeChoice
    """Nodes to drain."""

    def apply(self, world: SnapshotSections) -> Faults:
        """Mark nodes for draining; jobs there keep running until the plan has another place for them."""
        yield from world.change_nodes(self.nodes, lambda node: node.model_copy(update={"drain": True}))


class ReplaceGpus(Noun):
    """
    Replace the GPUs of nodes; the new GPUs are not in MIG mode.

    Jobs that may not use the new GPUs, or hold a GPU that no longer exists, stop and wait again.
    """

    change: Literal["replace_gpus"]
    nodes: NodeChoice
    """Nodes that get other GPUs."""
    model: Name
    """The new GPU model."""
    count: Annotated[int, Field(strict=True, ge=1, le=128)] | None = None
    """GPUs in each node; if absent, as many as before."""
    memory_mib: Mib | None = None
    """Memory of one GPU in MiB; if absent, that of the same model in the cluster, or unknown."""

    def apply(self, world: SnapshotSections) -> Faults:
        """Replace the GPUs of nodes; jobs that cannot use the new ones stop and wait."""
        same = [node.gpus for node in world.nodes.values() if node.gpus and node.gpus.model == self.model]
        known = same[0] if same else None
        bare, touched = list[str](), set[str]()

        def replace(node: Node) -> Node:
            amount = self.count or node.gpu_count
            if not amount:
                bare.append(node.name)
                return node
            touched.add(node.name)
            memory_mib = known.memory_mib if known else 0
            gpus = NodeGpus(
                model=self.model,
                count=amount,
                memory_mib=memory_mib if self.memory_mib is None else self.memory_mib,
                watts=known.watts if known else 0,
                time_sliced=node.gpus is not None and node.gpus.time_sliced,
            )
            return node.model_copy(update={"gpus": gpus})

        yield from world.change_nodes(self.nodes, replace)
        for name in bare:
            yield f"node '{name}' has no GPUs to be replaced; expected a count beside the model."
        world.stop(lambda job: _stands_on(job, touched) and not _may_stay(world, job, touched))


class SetPool(Noun):
    """Change the limits of a pool."""

    change: Literal["set_pool"]
    pool: Name
    """Pool to change."""
    minimum: Count | None = Field(default=None, alias="min")
    """Its new minimum of nodes."""
    maximum: Count | None = Field(default=None, alias="max")
    """Its new maximum of nodes."""

    @model_validator(mode="after")
    def _changes_something(self) -> SetPool:
        expect_some_of(self, "minimum", "maximum")
        return self

    def apply(self, world: SnapshotSections) -> Faults:
        """Change the limits of a pool."""
        yield from world.unknown("pool", self.pool, world.pools)
        pool = world.pools.get(self.pool)
        if pool is None:
            return
        least = pool.minimum if self.minimum is None else self.minimum
        most = pool.maximum if self.maximum is None else self.maximum
        if least > most:
            yield f"pool '{pool.name}' would have min {least} and max {most}; expected min <= max."
            return
        world.pools[pool.name] = pool.model_copy(update={"minimum": least, "maximum": most})


def _make_room(world: SnapshotSections, pool: NodePool) -> None:
    members = sum(node.pool == pool.name for node in world.nodes.values())
    world.pools[pool.name] = pool.model_copy(update={"maximum": max(pool.maximum, members)})


def _stands_on(job: Job, nodes: Collection[str]) -> bool:
    return any(replica.node in nodes for replica in job.running_replicas)


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
