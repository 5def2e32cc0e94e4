"""Worlds to which something has happened: nodes gone or down, GPUs failed or removed, replicas lost."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Gpu
from gpuplan.models.timing.progress import job_after_stop

if TYPE_CHECKING:
    from gpuplan.models.snapshot import Snapshot

HAPPENINGS = ("node gone", "node down", "GPU unhealthy", "GPUs gone", "replica lost")


@dataclass(frozen=True)
class Damaged:
    """A world before and after, and the jobs that lost something, by what is left of them."""

    found: Snapshot
    pending: Snapshot
    """The same, with the jobs that lost something as they wait, or go on, once they have given it up."""
    lost: frozenset[str]


def damaged(world, seed):
    """One to three things happen to a world in which jobs run."""
    draw = random.Random(f"damaged {seed}")
    for _ in range(draw.randint(1, 3)):
        happens = draw.choice(HAPPENINGS)
        if happens == "replica lost":
            world = _without_a_replica(world, draw)
        else:
            world = _with_nodes(world, draw, happens)
    world = world.canonical()
    left = {job.name: _left(job, world) for job in world.jobs if job.running}
    lost = {
        job.name
        for job in world.jobs
        if job.running and (len(left[job.name]) < len(job.running.replicas) or _is_short(job))
    }
    jobs = tuple(_pending(job, left[job.name], world) if job.name in lost else job for job in world.jobs)
    pending = world.model_copy(update={"jobs": jobs}).canonical()
    # Of those that may not be interrupted some are left on unhealthy GPUs: they are named as well.
    named = {job.name for job in world.jobs if job.running and _is_sick(job, world)}
    return Damaged(world, pending, frozenset(lost | named))


def _with_nodes(world, draw, happens):
    used = sorted({replica.node for placement in world.running_placements for replica in placement.replicas})
    names = [name for name in used if name in world.cluster.node_by_name] or [world.cluster.nodes[0].name]
    name = draw.choice(names)
    nodes = []
    for node in world.cluster.nodes:
        changed = node if node.name != name else _changed(node, draw, happens)
        nodes += [changed] if changed else []
    cluster = world.cluster.model_copy(update={"nodes": tuple(nodes or world.cluster.nodes)})
    return world.model_copy(update={"cluster": cluster})


def _changed(node, draw, happens):
    if happens == "node gone":
        return None
    if happens == "node down" or node.gpus is None:
        return node.model_copy(update={"ready": False})
    if happens == "GPUs gone":
        count = draw.randint(1, node.gpus.count)
        details = tuple(gpu for gpu in node.gpus.details if gpu.index < count)
        return node.model_copy(
            update={"gpus": node.gpus.model_copy(update={"count": count, "details": details})}
        )
    index = draw.randrange(node.gpus.count)
    known = {gpu.index: gpu for gpu in node.gpus.details}
    known[index] = known.get(index, Gpu(index=index)).model_copy(update={"healthy": False})
    return node.model_copy(
        update={"gpus": node.gpus.model_copy(update={"details": tuple(known[at] for at in sorted(known))})}
    )


def _without_a_replica(world, draw):
    gangs = [job for job in world.jobs if job.running and len(job.running.replicas) > 1]
    if not gangs:
        return world
    name = draw.choice(gangs).name
    return world.model_copy(
        update={"jobs": tuple(_with_fewer(job) if job.name == name else job for job in world.jobs)}
    )


def _with_fewer(job):
    return job.model_copy(
        update={"running": job.running.model_copy(update={"replicas": job.running.replicas[:-1]})}
    )


def _left(job, world):
    """The replicas of a running job on places that hold."""
    return [replica for replica in job.running.replicas if _holds(job, replica, world)]


def _holds(job, replica, world):
    node = world.cluster.node_by_name.get(replica.node)
    if node is None or not node.ready:
        return False
    if any(held.index >= node.gpu_count for held in replica.gpus):
        return False
    return all(node.gpus.by_index[held.index].healthy or _stays(job, world) for held in replica.gpus)


def _stays(job, world):
    """True of a job that may not be interrupted and has lost nothing but the health of GPUs."""
    nodes = world.cluster.node_by_name
    return (
        not job.preemptible
        and not _is_short(job)
        and all(
            (node := nodes.get(replica.node)) is not None
            and node.ready
            and all(held.index < node.gpu_count for held in replica.gpus)
            for replica in job.running.replicas
        )
    )


def _is_sick(job, world):
    nodes = world.cluster.node_by_name
    return any(
        not nodes[replica.node].gpus.by_index[held.index].healthy
        for replica in _left(job, world)
        for held in replica.gpus
    )


def _is_short(job):
    return len(job.running.replicas) < job.gang.minimum


def _pending(job, left, world):
    if job.gang.elastic and len(left) >= job.gang.minimum:
        running = job.running.model_copy(update={"replicas": tuple(left)})
        return job.model_copy(update={"running": running})
    nodes = [world.cluster.node_by_name.get(replica.node) for replica in job.running.replicas if replica.gpus]
    speeds = [job.speed_milli(node.gpu_model) for node in nodes if node and node.gpu_model]
    return job_after_stop(job, min(speeds, default=1000), world.taken_at)
