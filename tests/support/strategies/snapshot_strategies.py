"""
Hypothesis strategies for small, tight clusters with jobs that run and jobs that wait.

`tests/support/test_snapshot_strategies.py` holds floors on how often something runs, starts or finds no room.
"""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from gpuplan.models.affinity import AntiAffinity, LocalityPreference, Spread, Toleration
from gpuplan.models.cluster import Cluster, Gpu, Level, MigInstance, Node, NodeGpus, NodePool, Taint
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Ageing, Policy, SizeBasis, Weights
from gpuplan.models.queue import CpuQuota, MemoryQuota, Queue, Quota
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.validation.damage import survey_damage
from tests.support.builders.build import NOW
from tests.support.strategies.replica_strategies import placements_of

GPU_MEMORY_MIB = {"A100-80GB": 81920, "H100-80GB": 81559, "T4": 15360}
MODELS = (("H100-80GB",), ("A100-80GB", "T4"), ("H100-80GB", "T4"))
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb")
LAYOUTS = (
    (("3g.40gb", 0), ("3g.40gb", 4)),
    (("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 2), ("3g.40gb", 4)),
    (("2g.20gb", 0), ("2g.20gb", 2), ("1g.10gb", 6)),
    (),
)
TAINT = Taint(key="dedicated", value="research")
HCA = "rdma/hca"

# Strategies are made once, and one is drawn for several fields together: that is most of the time it takes.
COIN = st.booleans()
ONE_IN_THREE, ONE_IN_FOUR, ONE_IN_TWELVE = (st.sampled_from((False,) * (n - 1) + (True,)) for n in (3, 4, 12))
NODE_COUNTS = st.sampled_from((1, 2, 3, 4, 2, 3, 4))
KIND_COUNTS = st.sampled_from((1, 2, 3, 4, 3, 4))
JOB_COUNTS = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 4, 6, 8))
HOURS_WAITED = st.sampled_from((0, 0, 1, 7, 100))
NODE_SHAPES = st.sampled_from(  # GPUs, cores, memory in GiB
    ((4, 16, 64), (2, 8, 32), (4, 8, 64), (1, 8, 16), (2, 16, 32), (8, 32, 64), (0, 8, 32))
)
NODE_MARKS = st.sampled_from(
    (
        {},
        {"labels": {"pool": "a"}},
        {"resources": {HCA: 1}},
        {"labels": {"pool": "a"}, "resources": {HCA: 2}},
        {"labels": {"pool": "b"}, "resources": {HCA: 2}},
        {"labels": {"pool": "a"}, "resources": {HCA: 1}},
        {"labels": {"pool": "a"}, "resources": {HCA: 1}},
        {"labels": {"pool": "a"}, "taints": (TAINT,)},
        {"labels": {"pool": "b"}, "resources": {HCA: 1}},
        {},
        {"cordoned": True},
        {"ready": False},
    )
)
RACKS = st.sampled_from(("r0", "r1", "r0", ""))
GPU_REQUESTS = st.sampled_from(
    (
        {"gpus": 1},
        {"gpu_milli": 500},
        {"gpus": 2},
        {"gpu_milli": 300},
        {"gpu_milli": 700},
        {"gpus": 1},
        {"gpu_milli": 600},
        {"gpus": 4},
        {},
        {"gpus": 2, "gpu_memory_mib": 20000},
        {"gpu_milli": 500, "gpu_memory_mib": 20000},
    )
)
MIG_REQUESTS = st.sampled_from(({"1g.10gb": 1}, {"3g.40gb": 1}, {"2g.20gb": 1}, {"1g.10gb": 2}))
OTHER_REQUESTS = st.sampled_from(
    (
        {"cpus": 1, "memory_mib": 1024},
        {"cpus": 2, "memory_mib": 4096},
        {"cpus": 0.5, "memory_mib": 8192},
        {"cpus": 1, "memory_mib": 1024},
        {"cpus": 4, "memory_mib": 4096},
        {"cpus": 1, "memory_mib": 1024, "resources": {HCA: 1}},
        {"cpus": 1, "memory_mib": 1024, "disk_mib": 40 * 1024},
    )
)
GANGS = st.sampled_from(((1, 1), (1, 1), (2, 2), (1, 1), (3, 3), (1, 3), (2, 3)))
SCALINGS = st.sampled_from(({}, {}, {1: 1, 2: 1.6, 3: 2}, {2: 1, 3: 1.1}))
VALUES = st.sampled_from(
    ({}, {"priority": 3}, {"weight": 2.5}, {}, {"expected_duration": 7200}, {"weight": 0})
)
SPEEDS = st.sampled_from(((), (), (1,), (1, 0.5), (0.5, 1)))
FILTERS = st.sampled_from(
    (
        {},
        {"tolerations": (Toleration(key=TAINT.key),)},
        {},
        {"node_selector": {"pool": "a"}},
        {"tolerations": (Toleration(key=TAINT.key),)},
    )
)
LOCALITIES = st.sampled_from((Level.RACK, Level.NODE, None, Level.NODE, Level.RACK))
SPREADS = st.sampled_from((None, Spread(), None, Spread(level=Level.RACK, most=1), Spread(most=2)))
APPS = ({"app": "x"}, {"app": "y"})
COMPANY = st.sampled_from(  # labels, and what the job avoids
    (
        {},
        {"labels": APPS[0]},
        {"labels": APPS[1], "anti_affinity": (AntiAffinity(labels=APPS[0]),)},
        {"labels": APPS[0], "anti_affinity": (AntiAffinity(labels=APPS[0], level=Level.RACK),)},
        {"labels": APPS[1]},
    )
)
WATTS = 700
CAPS = st.sampled_from((WATTS, 0, WATTS, WATTS // 2, 2 * WATTS))
POOL_LIMITS = st.sampled_from(((0, 2), (1, 1), (0, 1), (1, 2)))
LIMITS = st.sampled_from((None, None, None, 2, 1, 0))
QUOTAS = st.builds(
    Quota,
    nominal=st.sampled_from((4, 2, 6, 1, 3, 8, 5, 0.5, 0)),
    borrowing_limit=LIMITS,
    lending_limit=LIMITS,
)


CPU_QUOTAS = st.builds(
    CpuQuota,
    nominal=st.sampled_from((8, 4, 16, 2, 32, 0.5, 0)),
    borrowing_limit=LIMITS,
    lending_limit=LIMITS,
)
MEMORY_LIMITS = st.sampled_from((None, None, 8 * 1024, 1000, 0))
MEMORY_QUOTAS = st.builds(
    MemoryQuota,
    nominal=st.sampled_from((32 * 1024, 8 * 1024, 64 * 1024, 1000, 0)),
    borrowing_limit=MEMORY_LIMITS,
    lending_limit=MEMORY_LIMITS,
)


@st.composite
def snapshots(draw, *, mig=False, locality=False):
    """
    At most 4 nodes and 8 jobs in a queue tree; `mig` and `locality` add jobs that ask for these.

    With `locality` jobs are also spread or avoid each other, power is capped, and some nodes are of a pool.
    """
    models = draw(st.sampled_from(MODELS))
    nodes = tuple(draw(_node(f"n{index}", models, mig, locality)) for index in range(draw(NODE_COUNTS)))
    pools = ()
    if locality:
        least, most = draw(POOL_LIMITS)
        pools = (
            NodePool(name="pool", template=nodes[0].model_copy(update={"name": "p"}), min=least, max=most),
        )
        nodes = (nodes[0].model_copy(update={"pool": "pool"}), *nodes[1:])
    queues = draw(queue_trees(models))
    names = st.sampled_from(tuple(queue.name for queue in queues))
    kinds = st.sampled_from(
        tuple(draw(_kind(models, names, mig, locality)) for _ in range(draw(KIND_COUNTS)))
    )
    careless = draw(ONE_IN_TWELVE)
    jobs, running = [], []
    for index in range(draw(JOB_COUNTS)):
        waited = timedelta(hours=draw(HOURS_WAITED))
        job = draw(kinds).model_copy(update={"name": f"j{index}", "submitted_at": NOW - waited})
        if draw(ONE_IN_THREE):
            placement = draw(
                placements_of(job, nodes, () if careless else tuple(running), only_if_it_fits=True)
            )
            if placement is not None:
                running.append(placement)
                runs = Running(started_at=NOW - timedelta(hours=1), replicas=placement.replicas)
                job = job.model_copy(update={"running": runs})
        elif draw(ONE_IN_TWELVE):
            job = job.model_copy(update={"held": True})
        jobs.append(job)
    cluster = Cluster(nodes=nodes, pools=pools)
    world = Snapshot(taken_at=NOW, cluster=cluster, queues=queues, jobs=tuple(jobs)).canonical()
    return survey_damage(world).sound


@st.composite
def _node(draw, name, models, mig, capped):
    (count, cpus, memory_gib), model = draw(NODE_SHAPES), draw(st.sampled_from(models))
    details = []
    if mig and model != "T4":
        for index in range(1, count, 2):
            instances = tuple(
                MigInstance(profile=profile, start=start) for profile, start in draw(st.sampled_from(LAYOUTS))
            )
            details.append(Gpu(index=index, mig=instances))
    if count and draw(ONE_IN_TWELVE):
        details.append(Gpu(index=0, healthy=False))
    gpus = {"model": model, "count": count, "memory_mib": GPU_MEMORY_MIB[model], "details": tuple(details)}
    gpus["watts"] = WATTS if capped else 0
    return Node(
        name=name,
        gpus=NodeGpus(**gpus) if count else None,
        cpus=cpus,
        memory_mib=memory_gib * 1024,
        disk_mib=100 * 1024,
        rack=draw(RACKS),
        power_cap_watts=draw(CAPS) if capped else 0,
        **draw(NODE_MARKS),
    )


@st.composite
def _kind(draw, models, queues, mig, locality):
    """What identical jobs have in common."""
    gpus = {"mig": draw(MIG_REQUESTS)} if mig and draw(COIN) else draw(GPU_REQUESTS)
    least, most = draw(GANGS)
    return Job(
        name="kind",
        queue=draw(queues),
        request=ResourceRequest(**gpus, **draw(OTHER_REQUESTS)),
        gpu_models=dict(zip(models, draw(SPEEDS), strict=False)),
        locality=LocalityPreference(required=draw(LOCALITIES) if locality else None),
        spread=draw(SPREADS) if locality else None,
        submitted_at=NOW,
        **(draw(COMPANY) if locality else {}),
        **draw(VALUES),
        **draw(FILTERS),
        gang=Gang(min=least, max=most, scaling=draw(SCALINGS)),
    )


@st.composite
def queue_trees(draw, models=("H100-80GB",), *, largest=5):
    """A forest of queues, each with or without quotas around what a small cluster has."""
    queues = []
    for index in range(draw(st.integers(1, largest))):
        parents = [None, *(queue.name for queue in queues)]
        queues.append(
            Queue(
                name=f"q{index}",
                parent=draw(st.sampled_from(parents)),
                quota=draw(QUOTAS) if draw(COIN) else None,
                gpu_models={model: draw(QUOTAS) for model in models if draw(ONE_IN_FOUR)},
                cpus=draw(CPU_QUOTAS) if draw(ONE_IN_FOUR) else None,
                memory=draw(MEMORY_QUOTAS) if draw(ONE_IN_FOUR) else None,
            )
        )
    return tuple(queues)


def policies():
    """Every size basis, with ageing fast, slow and off."""
    ageing = st.builds(
        Ageing,
        step=st.sampled_from((3600, 6 * 3600)),
        gain=st.sampled_from((1, 0, 3)),
        cap=st.sampled_from((10, 2)),
    )
    sizes = st.sampled_from((0.1, 1, 0))
    weights = st.builds(Weights, basis=st.sampled_from(SizeBasis), smallest_size=sizes, ageing=ageing)
    return st.builds(Policy, weights=weights)
