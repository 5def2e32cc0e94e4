"""Keyword builders for tests: one obvious default each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpuplan.models.cluster import Cluster, Gpu, MigInstance, Node, NodeGpus, NodePool
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica, Running
from gpuplan.models.policy.policy import Policy, PriorityOrder, PriorityPolicy
from gpuplan.models.policy.settings import Goal, Objective
from gpuplan.models.queue import CpuQuota, MemoryQuota, Queue, Quota
from gpuplan.models.snapshot import Snapshot

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MODEL = "H100-80GB"

BY_WEIGHT = PriorityPolicy(order=PriorityOrder.WEIGHTS)
"""For what compares objectives of plans: among tiers a better plan may have the lower one."""


def by_value(**policy):
    """A policy under which jobs are worth a hundred points for each GPU, whatever the time they take."""
    return Policy(objective=Objective(goal=Goal.VALUE), **policy)


def node(
    name="n0",
    *,
    gpus=8,
    model=MODEL,
    cpus=None,
    memory_gib=None,
    gpu_memory_mib=81559,
    mig=None,
    details=(),
    watts=0,
    time_sliced=False,
    **more,
):
    """
    A node with 12 cores and 64 GiB a GPU (at least 32 cores and 128 GiB).

    `mig` has the layouts (see `layout`) by index of the GPUs in MIG mode; `details` are further `Gpu`s.
    """
    layouts = (Gpu(index=index, mig=layout(*given)) for index, given in (mig or {}).items())
    about = {"watts": watts, "time_sliced": time_sliced, "details": (*layouts, *details)}
    return Node(
        name=name,
        gpus=NodeGpus(model=model, count=gpus, memory_mib=gpu_memory_mib, **about) if gpus else None,
        cpus=cpus if cpus is not None else max(32, 12 * gpus),
        memory_mib=(memory_gib if memory_gib is not None else max(128, 64 * gpus)) * 1024,
        **more,
    )


def layout(*given):
    """MIG instances given as (profile, start)."""
    return tuple(MigInstance(profile=profile, start=start) for profile, start in given)


def pool(name="spot", *, template=None, most=4, least=0, **more):
    """A pool of up to four nodes of eight GPUs."""
    return NodePool(name=name, template=template or node(name), min=least, max=most, **more)


def cluster(count=2, **more):
    """So many equal nodes, n0, n1, …"""
    return tuple(node(f"n{index}", **more) for index in range(count))


def job(
    name="a",
    *,
    gpus=0,
    milli=0,
    mig=None,
    cpus=0,
    memory_gib=0,
    resources=None,
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
        request=ResourceRequest(
            gpus=gpus,
            gpu_milli=milli,
            mig=mig or {},
            cpus=cpus,
            memory_mib=memory_gib * 1024,
            resources=resources or {},
        ),
        replicas=Gang(min=minimum, max=maximum),
        submitted_at=NOW - waited,
        **more,
    )


def replica(node="n0", *, gpus=(), milli=1000, mig=(), cpus=0, memory_gib=0):
    """One replica on GPU indices, `milli` of each, or on MIG instances given as (index, profile, start)."""
    slices = (MigSlice(index=index, profile=profile, start=start) for index, profile, start in mig)
    return Replica(
        node=node,
        gpus=(*(GpuShare(index=index, milli=milli) for index in gpus), *slices),
        cpus=cpus,
        memory_mib=memory_gib * 1024,
    )


def placement(job, *replicas):
    """Placement of a job by name."""
    return Placement(job=job, replicas=replicas)


def queue(
    name="q",
    *,
    nominal=None,
    parent=None,
    borrowing=None,
    lending=None,
    guarantee=None,
    cpus=None,
    memory=None,
    **models,
):
    """
    A queue; without `nominal` it has no limit of GPUs. Further keywords are nominal quotas by GPU model.

    `cpus` and `memory` are nominal quotas, or (nominal, borrowing limit, lending limit).
    """
    limits = {"borrowing_limit": borrowing, "lending_limit": lending, "guarantee": guarantee}
    return Queue(
        name=name,
        parent=parent,
        quota=None if nominal is None else Quota(nominal=nominal, **limits),
        gpu_models={model: Quota(nominal=value) for model, value in models.items()},
        cpus=_limits(CpuQuota, cpus),
        memory=_limits(MemoryQuota, memory),
    )


def _limits(kind, given):
    nominal, borrowing, lending = given if isinstance(given, tuple) else (given, None, None)
    return None if given is None else kind(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)


def snapshot(*, nodes=None, jobs=(), queues=None, taken_at=NOW, measured=(), **about):
    """Two nodes of eight GPUs and the unlimited queue q unless said otherwise; `about` are pools and such."""
    return Snapshot(
        taken_at=taken_at,
        cluster=Cluster(nodes=tuple(cluster() if nodes is None else nodes), **about),
        queues=tuple((queue(),) if queues is None else queues),
        jobs=tuple(jobs),
        measured=tuple(measured),
    ).canonical()
