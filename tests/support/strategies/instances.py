"""
Seeded random instances for cross-checks between solvers, small enough for exhaustive proofs.

`divisible` ones have sizes that each divide the next and CPU in the same proportion as GPUs: there the block
model is exact. `mixed` ones have any sizes and scarce CPU: there it is a bound. Both are plain: nothing that
runs may be disturbed, and nothing but GPUs, CPU, memory and quotas matters.

`everything` and `everything_mixed` are the same two with all that a cluster may have, a random part of it in
each instance; what running jobs may be subjected to is up to the policy that comes with them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuplan.models.mig import mig_geometry
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.queue import ALL_MODELS, CpuQuota, MemoryQuota, Queue, Quota, queue_limits
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI
from gpuplan.models.validation.damage import survey_damage
from tests.support.builders import build
from tests.support.strategies import cluster_strategies, job_strategies
from tests.support.strategies.instance_sizes import CORES_PER_GPU, MODELS, TINY, Kit

POLICY = build.by_value(priority=build.BY_WEIGHT, disruption=Disruption(preempt=False, resize=False))
"""That of plain instances."""

FEATURES = (
    "anti_affinity",
    "data",
    "drain",
    "filters",
    "fragmentation",
    "guarantees",
    "interference",
    "mig",
    "overcommit",
    "pools",
    "power",
    "racks",
    "sharing",
    "spread",
)
"""What may be mixed into an instance."""


@dataclass(frozen=True)
class Instance:
    """A snapshot with the policy it is planned under."""

    snapshot: Snapshot
    policy: Policy
    features: frozenset[str]


def divisible(seed):
    """Snapshot with GPU sizes 1, 2, 4, 8 and shares of 250 and 500, tight enough that not all fits."""
    return _plain(random.Random(seed), gpus=(1, 1, 2, 4, 8), shares=(250, 500, 500), fair=True)


def mixed(seed):
    """Snapshot with any sizes, any shares, and CPU and memory that bind."""
    return _plain(random.Random(seed), gpus=(1, 1, 2, 3, 5, 6), shares=(300, 470, 810), fair=False)


def everything(seed, *, features=FEATURES, share=0.3):
    """Instance with divisible sizes and each of the features with a probability of `share`."""
    draw = random.Random(f"divisible {seed}")
    chosen = frozenset(feature for feature in features if draw.random() < share)
    return _full(draw, chosen, Kit(gpus=(1, 1, 2, 4), shares=(250, 500, 500), fair=True))


def everything_mixed(seed, *, features=FEATURES, share=0.3):
    """Instance with any sizes and each of the features with a probability of `share`."""
    draw = random.Random(f"mixed {seed}")
    chosen = frozenset(feature for feature in features if draw.random() < share)
    return _full(draw, chosen, Kit(gpus=(1, 1, 2, 3), shares=(300, 470, 810), fair=False))


def tiny(seed):
    """Instance with four of the features, small enough to try everything."""
    draw = random.Random(f"tiny {seed}")
    return _full(draw, frozenset(draw.sample(FEATURES, 4)), TINY, waiting=3, most=4)


def _plain(draw, *, gpus, shares, fair):
    nodes = [_node(draw, f"n{index}", fair=fair) for index in range(draw.randint(1, 4))]
    running = _running(draw, nodes, shares, fair=fair)
    jobs = [_job(draw, f"j{index}", gpus, shares, fair=fair) for index in range(draw.randint(2, 8))]
    return build.snapshot(nodes=nodes, jobs=[*jobs, *running], queues=_queues(draw))


def _node(draw, name, *, fair):
    gpus = draw.choice((0, 2, 4, 8, 8))
    labels = {"tier": draw.choice(("gold", "iron"))}
    cpus = CORES_PER_GPU * max(gpus, 2) if fair else draw.choice((8, 24, 40, 64))
    return build.node(
        name, gpus=gpus, model=draw.choice(MODELS), cpus=cpus, memory_gib=cpus * 8, labels=labels
    )


def _job(draw, name, gpus, shares, *, fair):
    kind = draw.choice(("whole", "whole", "whole", "share", "share", "cpu"))
    size = draw.choice(gpus) if kind == "whole" else 0
    milli = draw.choice(shares) if kind == "share" else 0
    cpus = CORES_PER_GPU * (size + milli / 1000) if fair else draw.choice((0, 1, 5, 9, 14))
    # CPU-only work would break the fixed proportion of CPU to GPU.
    if fair and kind == "cpu":
        size, cpus = 1, CORES_PER_GPU
    replicas = draw.choice((1, 1, 1, 2, 3, (1, 3), (2, 4)))
    more = {}
    if draw.random() < 0.3:
        more["gpu_models"] = {draw.choice(MODELS): 1}
    elif draw.random() < 0.3:
        more["gpu_models"] = dict(zip(MODELS, (1, 0.5), strict=True))
    if draw.random() < 0.15:
        more["node_selector"] = {"tier": draw.choice(("gold", "iron"))}
    return build.job(
        name,
        gpus=size,
        milli=milli,
        cpus=cpus,
        memory_gib=int(cpus * 8) if fair else draw.choice((0, 8, 60)),
        replicas=replicas,
        queue=draw.choice(("a", "b", "c")),
        priority=draw.choice((0, 0, 1, 3)),
        waited=timedelta(hours=draw.choice((0, 0, 7))),
        **more,
    )


def _running(draw, nodes, shares, *, fair):
    """Running jobs that hold some GPUs, whole or in part, in their fair proportion of CPU."""
    running = []
    for node in nodes:
        for index in range(node.gpu_count):
            if draw.random() < 0.25:
                milli = draw.choice((1000, 1000, *shares))
                cpus = CORES_PER_GPU * milli / 1000 if fair else draw.choice((0, 2))
                place = build.replica(
                    node.name, gpus=(index,), milli=milli, cpus=cpus, memory_gib=int(cpus * 8)
                )
                request = {"gpus": 1} if milli == 1000 else {"milli": milli}
                running.append(
                    build.job(
                        f"r-{node.name}-{index}",
                        **request,
                        cpus=cpus,
                        memory_gib=int(cpus * 8),
                        queue=draw.choice(("a", "b", "c")),
                        at=[place],
                    )
                )
    return running


def _queues(draw, *, guarantees=False):
    def quota(*values):
        nominal = draw.choice(values)
        guarantee = draw.choice((None, 1, 2, 4)) if guarantees else None
        if nominal is None and guarantee is None:
            return None
        return Quota(
            nominal=100 if nominal is None else nominal,
            borrowing_limit=draw.choice((None, 0, 2)),
            lending_limit=draw.choice((None, None, 1)),
            guarantee=guarantee,
        )

    model = Quota(nominal=2, guarantee=draw.choice((None, 1)) if guarantees else None)
    return _possible(
        Queue(name="root", quota=quota(None, 0, 4)),
        Queue(name="a", parent="root", quota=quota(None, 2, 4, 8)),
        Queue(name="b", parent="root", quota=quota(None, 1, 6)),
        Queue(name="c", quota=quota(None, 3), gpu_models={MODELS[0]: model}),
    )


def with_cpu_quotas(snapshot, seed, *, most=3 * CORES_PER_GPU):
    """The same, with quotas of up to `most` CPU cores in most queues, of 8 GiB for each core, or of both."""
    draw = random.Random(f"cpu quotas {seed}")
    which = draw.choice(("cpus", "memory", "both"))

    def limits(kind, unit):
        if draw.random() < 0.3:
            return None
        return kind(
            nominal=unit * draw.choice((0, most // 3, most // 3, most)),
            borrowing_limit=draw.choice((None, None, 0, unit * most // 3)),
            lending_limit=draw.choice((None, None, 0, unit * most // 3)),
        )

    queues = (
        queue.model_copy(
            update={
                "cpus": limits(CpuQuota, 1) if which != "memory" else None,
                "memory": limits(MemoryQuota, 8 * 1024) if which != "cpus" else None,
            }
        )
        for queue in snapshot.queues
    )
    return snapshot.model_copy(update={"queues": tuple(queues)}).canonical()


def cpu_limited(make):
    """What makes the same instances with quotas of CPU cores and memory."""

    def made(seed, **about):
        world = make(seed, **about)
        if isinstance(world, Instance):
            return replace(world, snapshot=with_cpu_quotas(world.snapshot, seed))
        return with_cpu_quotas(world, seed)

    return made


def quotas_of_cores(snapshot):
    """The same limits on jobs of whole GPUs: each GPU comes with a core, and quotas of GPUs are of cores."""
    jobs = []
    for job in snapshot.jobs:
        about = {"request": job.request.model_copy(update={"cpu_milli": MILLI * job.request.gpus})}
        if job.running is not None:
            about["running"] = with_cores(job.running)
        jobs.append(job.model_copy(update=about))
    queues = [
        queue.model_copy(update={"quota": None, "cpus": _of_cores(queue.quota)}) for queue in snapshot.queues
    ]
    return snapshot.model_copy(update={"jobs": tuple(jobs), "queues": tuple(queues)}).canonical()


def with_cores(placement):
    """A placement, or what runs, with a CPU core for each GPU."""
    replicas = (each.model_copy(update={"cpu_milli": MILLI * len(each.gpus)}) for each in placement.replicas)
    return placement.model_copy(update={"replicas": tuple(replicas)})


def _of_cores(quota):
    return quota and CpuQuota(**quota.model_dump(mode="json", exclude={"guarantee"}))


def _possible(*queues):
    """The queues without guarantees of more than they may hold."""
    limits = queue_limits(queues, ALL_MODELS).limit
    return tuple(
        queue.model_copy(update={"quota": queue.quota.model_copy(update={"guarantee": None})})
        if queue.quota and (queue.quota.guarantee or 0) > (limits[queue.name] or 0)
        else queue
        for queue in queues
    )


# --- everything --------------------------------------------------------------------------------------------


def _full(draw, features, kit, *, waiting=5, most=8):
    cluster = cluster_strategies.cluster(draw, features, kit)
    if not any(mig_geometry(node.gpu_model or "") for node in cluster.nodes):
        features -= {"mig"}
    jobs = [
        job_strategies.job(draw, f"j{index}", features, kit)
        for index in range(draw.randint(min(2, waiting), waiting))
    ]
    running = job_strategies.running(
        draw, cluster, features, kit, most=draw.choice((0, most // 2, most, most))
    )
    queues = _queues(draw, guarantees="guarantees" in features)
    policy = cluster_strategies.policy(draw, features)
    if limited := draw.random() < 0.25:
        policy = cluster_strategies.sparing(policy, draw.choice((1, 2)))
    jobs = (*jobs, *(job_strategies.stopped_before(draw, job) if limited else job for job in running))
    snapshot = Snapshot(taken_at=build.NOW, cluster=cluster, queues=queues, jobs=jobs)
    return Instance(survey_damage(snapshot.canonical()).sound, policy, features)
