"""The jobs of random instances: those that wait, and those that run where there was room."""

from __future__ import annotations

from datetime import timedelta
from zlib import crc32

from gpuplan.models.affinity import (
    AntiAffinity,
    LocalityPreference,
    MatchOperator,
    NodeMatch,
    PreferredNodes,
    Spread,
    Toleration,
)
from gpuplan.models.cluster import Level, QosClass
from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import GpuShare, MigSlice, Replica, Running
from gpuplan.models.units import MILLI, print_milli
from tests.support.builders import build
from tests.support.strategies.instance_sizes import APPS, CLASSES, CORES_PER_GPU, HCA, TAINT


def job(draw, name, features, kit):
    """A waiting job."""
    request = _request(draw, features, kit)
    # Where replicas stand matters only to jobs that have several.
    several = tuple(each for each in kit.gangs if each != 1)
    replicas = draw.choice(several if features & {"racks", "spread"} else kit.gangs)
    minimum, maximum = replicas if isinstance(replicas, tuple) else (replicas, replicas)
    more = _wishes(draw, features)
    if draw.random() < 0.2:
        more["gpu_models"] = {draw.choice(kit.models): 1}
    elif draw.random() < 0.3:
        more["gpu_models"] = dict(zip(kit.models, (1, *[draw.choice((0.5, 0.25))] * 2), strict=False))
    return Job(
        name=name,
        queue=draw.choice(("a", "b", "c")),
        priority=draw.choice((0, 1, 3, 6)),
        weight=draw.choice((1, 1, 1, 1, 2.5, 0)),
        request=request,
        gang=Gang(min=minimum, max=maximum, **_scaling(name, elastic=minimum < maximum)),
        submitted_at=build.NOW - timedelta(hours=draw.choice((2, 2, 9))),
        preemptible=draw.random() < 0.85,
        **more,
    )


def _scaling(name, *, elastic):
    """Of every second elastic job further replicas bring less; no draw, so that worlds stay what they are."""
    if not elastic or crc32(name.encode()) % 2:
        return {}
    return {"scaling": {1: 1, 2: 1.7, 4: 2.5}, "scaling_by_model": {build.MODEL: {1: 1, 2: 1.4, 3: 1.5}}}


def _request(draw, features, kit):
    kinds = ["whole"] * 4 + ["share"] * 2 + (["mig"] * 4 if "mig" in features else [])
    kind = draw.choice([*kinds, *([] if kit.fair else ["cpu"])])
    held, size = {}, 0.0
    match kind:
        case "whole":
            held["gpus"] = draw.choice(kit.gpus)
            size = held["gpus"]
        case "share":
            held["gpu_milli"] = draw.choice(kit.shares)
            size = held["gpu_milli"] / MILLI
        case "mig":
            held["mig"] = dict(draw.choice(kit.mig))
    cpus = CORES_PER_GPU * size if kit.fair else draw.choice((0, 1, 5, 9))
    memory_gib = int(cpus * 8) if kit.fair else draw.choice((0, 8, 60))
    if "filters" in features:
        held["resources"] = {HCA: 1} if draw.random() < 0.2 else {}
        held["disk_mib"] = 60 * 1024 if draw.random() < 0.2 else 0
    return ResourceRequest(cpus=cpus, memory_mib=memory_gib * 1024, **held)


def _wishes(draw, features):
    more = {}
    if "filters" in features:
        more |= draw.choice(
            (
                {},
                {},
                {"node_selector": {"tier": "gold"}},
                {"tolerations": (Toleration(key=TAINT.key),)},
                {"affinity": (NodeMatch(key="tier", operator=MatchOperator.NOT_IN, values=("iron",)),)},
                {"regions": ("eu",)},
            )
        )
    if "racks" in features:
        more["locality"] = draw.choice(
            (
                LocalityPreference(required=Level.RACK),
                LocalityPreference(required=Level.NODE),
                LocalityPreference(preferred=Level.NODE),
                LocalityPreference(preferred=Level.NODE),
                LocalityPreference(required=Level.ZONE, preferred=Level.RACK),
                LocalityPreference(preferred=Level.RACK),
            )
        )
    if "spread" in features and draw.random() < 0.5:
        more["spread"] = Spread(level=draw.choice((Level.NODE, Level.RACK)), most=draw.choice((1, 1, 2)))
    if "anti_affinity" in features:
        more["labels"] = draw.choice(APPS)
        if draw.random() < 0.4:
            level = draw.choice((Level.NODE, Level.NODE, Level.RACK))
            more["anti_affinity"] = (AntiAffinity(labels=draw.choice(APPS), level=level),)
    if "interference" in features:
        more["workload_class"] = draw.choice(CLASSES)
    if "data" in features:
        more["datasets"] = draw.choice(((), ("d0",), ("d1",), ("d0", "d1")))
        if draw.random() < 0.3:
            match = NodeMatch(key="tier", values=("gold",))
            more["preferred_nodes"] = (PreferredNodes(match=match, points=draw.choice((5, 60))),)
    if "overcommit" in features:
        more["qos"] = draw.choice(tuple(QosClass))
    if "sharing" in features:
        more["time_slicing"] = draw.random() < 0.6
    return more


# --- what runs ---------------------------------------------------------------------------------------------


def running(draw, cluster, features, kit, *, most):
    """Up to so many running jobs, each where there was room."""
    free = {node.name: FreeResources.of(node) for node in cluster.nodes}
    found = []
    for index in range(most):
        one = job(draw, f"r{index}", features, kit)
        count = draw.randint(one.gang.minimum, one.gang.maximum)
        replicas = _places(draw, one, count, cluster, free)
        if replicas:
            hours = draw.choice((0, 1, 1, 3))
            runs = Running(
                started_at=build.NOW - timedelta(hours=hours),
                last_checkpoint_at=build.NOW - timedelta(minutes=10)
                if hours and draw.random() < 0.5
                else None,
                replicas=replicas,
            )
            found.append(one.model_copy(update={"running": runs, "priority": draw.choice((0, 0, 1, 3))}))
    return found


def stopped_before(draw, job):
    """The job, preempted now and then before."""
    return job.model_copy(update={"preemptions": draw.choice((0, 0, 0, 1, 2))})


def _places(draw, one, count, cluster, free):
    """Replicas of a job on nodes of one GPU model, close together and spread as it wants; () if no room."""
    nodes = [node for node in cluster.nodes if bool(node.gpus) or not one.request.needs_gpu]
    draw.shuffle(nodes)
    model = nodes[0].gpu_model if nodes else None
    domain = nodes[0].domain(one.locality.required) if nodes and one.locality.required else None
    replicas = []
    taken = {name: _copy(room) for name, room in free.items()}
    for node in nodes:
        if one.request.needs_gpu and node.gpu_model != model:
            continue
        if one.locality.required and (domain is None or node.domain(one.locality.required) != domain):
            continue
        here = one.spread.most if one.spread and one.spread.level is Level.NODE else count
        if one.spread and one.spread.level is not Level.NODE and replicas:
            here = 0
        while len(replicas) < count and here > 0:
            replica = _replica(draw, one, node, taken[node.name])
            charge = charged_cpu_memory(replica, one.qos, cluster) if replica else None
            if replica is None or not taken[node.name].holds(replica, charge):
                break
            taken[node.name].take(replica, charge)
            replicas.append(replica)
            here -= 1
            if draw.random() < 0.4:
                break
    if len(replicas) < count or (
        one.spread and one.spread.level is not Level.NODE and count > one.spread.most
    ):
        return ()
    free.update(taken)
    return tuple(replicas)


def _copy(room):
    return FreeResources(
        gpu_milli=list(room.gpu_milli),
        cpu_milli=room.cpu_milli,
        memory_mib=room.memory_mib,
        disk_mib=room.disk_mib,
        resources=dict(room.resources),
        mig_used=set(room.mig_used),
        geometry=room.geometry,
    )


def _replica(draw, one, node, room):
    """A replica on GPUs of a node that have room; None if there are too few."""
    request = one.request
    held = []
    if request.gpus or request.gpu_milli:
        milli = MILLI if request.gpus else request.gpu_milli
        able = [index for index, left in enumerate(room.gpu_milli) if left >= milli]
        if len(able) < (request.gpus or 1):
            return None
        held = [GpuShare(index=index, milli=milli) for index in sorted(draw.sample(able, request.gpus or 1))]
    for profile, count in request.mig.items():
        present = [
            MigSlice(index=index, profile=profile, start=instance.start)
            for index, gpu in node.gpus.by_index.items()
            for instance in (gpu.mig or ())
            if instance.profile == profile and (index, instance.start) not in room.mig_used
        ]
        if len(present) < count:
            return None
        held += draw.sample(present, count)
    return Replica(
        node=node.name,
        gpus=tuple(held),
        cpus=print_milli(request.cpu_milli),
        memory_mib=request.memory_mib,
        disk_mib=request.disk_mib,
        resources=request.resources,
    )
