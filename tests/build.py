"""Keyword builders for tests: one obvious default each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from planner.models.cluster import Cluster, Node, NodeGpus
from planner.models.job import Gang, Job, ResourceRequest, Running
from planner.models.placement import GpuShare, Placement, Replica
from planner.models.queue import Queue, Quota
from planner.models.snapshot import Snapshot

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MODEL = "H100-80GB"


def node(name="n0", *, gpus=8, model=MODEL, cpus=None, memory_gib=None, gpu_memory_mib=81559, **more):
    """A node with 12 cores and 64 GiB a GPU (at least 32 cores and 128 GiB)."""
    return Node(
        name=name,
        gpus=NodeGpus(model=model, count=gpus, memory_mib=gpu_memory_mib) if gpus else None,
        cpus=cpus if cpus is not None else max(32, 12 * gpus),
        memory_mib=(memory_gib if memory_gib is not None else max(128, 64 * gpus)) * 1024,
        **more,
    )


def cluster(count=2, **more):
    """So many equal nodes, n0, n1, …"""
    return tuple(node(f"n{index}", **more) for index in range(count))


def job(
    name="a",
    *,
    gpus=0,
    milli=0,
    cpus=0,
    memory_gib=0,
    replicas=1,
    queue="q",
    waited=timedelta(0),
    at=None,
    **more,
):
    """A waiting job; `at` = replicas (see `replica`) makes it a running one, started an hour ago."""
    minimum, maximum = replicas if isinstance(replicas, tuple) else (replicas, replicas)
    if at is not None:
        more["running"] = Running(started_at=NOW - timedelta(hours=1), replicas=tuple(at))
    return Job(
        name=name,
        queue=queue,
        request=ResourceRequest(gpus=gpus, gpu_milli=milli, cpus=cpus, memory_mib=memory_gib * 1024),
        replicas=Gang(min=minimum, max=maximum),
        submitted_at=NOW - waited,
        **more,
    )


def replica(node="n0", *, gpus=(), milli=1000, cpus=0, memory_gib=0):
    """One replica on GPU indices, `milli` of each."""
    return Replica(
        node=node,
        gpus=tuple(GpuShare(index=index, milli=milli) for index in gpus),
        cpus=cpus,
        memory_mib=memory_gib * 1024,
    )


def placement(job, *replicas):
    """Placement of a job by name."""
    return Placement(job=job, replicas=replicas)


def queue(name="q", *, nominal=None, parent=None, borrowing=None, lending=None, **models):
    """A queue; without `nominal` it has no limit. Further keywords are nominal quotas by GPU model."""
    limits = {"borrowing_limit": borrowing, "lending_limit": lending}
    return Queue(
        name=name,
        parent=parent,
        quota=None if nominal is None else Quota(nominal=nominal, **limits),
        gpu_models={model: Quota(nominal=value) for model, value in models.items()},
    )


def snapshot(*, nodes=None, jobs=(), queues=None, taken_at=NOW):
    """Two nodes of eight GPUs and the unlimited queue q, unless said otherwise."""
    return Snapshot(
        taken_at=taken_at,
        cluster=Cluster(nodes=tuple(cluster() if nodes is None else nodes)),
        queues=tuple((queue(),) if queues is None else queues),
        jobs=tuple(jobs),
    ).canonical()
