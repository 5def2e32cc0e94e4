"""The sentences about snapshots that make no sense, in messages.golden.txt; others assert names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gpuplan.models.cluster import Gpu
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.gang import Gang
from gpuplan.models.queue import Queue
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.input_warnings import input_warnings
from tests.support.builders.build import NOW, cluster, job, node, pool, queue, replica, snapshot
from tests.support.builders.invalid_snapshots import world
from tests.support.output.golden import golden

HOUR = timedelta(hours=1)
BEGUN = NOW + HOUR
TARIFF = {"name": "x", "start": NOW, "duration": 60, "price_per_gpu_hour": 1}
PROMISE = {"start": BEGUN, "replicas": [replica("gone", gpus=[0])]}


def reserved(name, **more):
    given = {"start": NOW, "duration": 3600, "queues": ["q"]} | (more or {"count": 1})
    return {"name": name} | given


def on(name, *gpus, **more):
    return job(name, at=[replica(*gpus, **more)])


def running(name, *, at=("n0",), replicas=1, more=(), **times):
    made = job(name, replicas=replicas, waited=HOUR, at=[replica(each) for each in at], **dict(more))
    return made.model_copy(update={"running": made.running.model_copy(update=times)})


def after(name, *names, **more):
    return job(name, depends_on=[{"job": each} for each in names], **more)


CLUSTER = world(
    nodes=[
        *cluster(1, rack="r12", zone="z1", region="eu"),
        node("n0", pool="spott", details=[Gpu(index=8), Gpu(index=1), Gpu(index=1)]),
        node("one", gpus=1, details=[Gpu(index=1)]),
        node("bad", mig={0: [("3g.40gb", 0), ("3g.40gb", 4), ("1g.10gb", 6)]}),
        node("old", model="T4", mig={0: []}),
    ],
    pools=[
        pool("spot").model_copy(update={"node_removed_at": BEGUN}),
        pool("spot", template=node("t", ready=False)),
        pool("shut", template=node("t", cordoned=True)),
        pool("drained", template=node("t", drain=True)),
        pool("long", template=node("t" * 241)),
        pool("cut", template=node("t", mig={1: [("3g.40gb", 2)]})),
    ],
    rack_power=[{"rack": "r12", "zone": "z1", "region": "eu", "watts": 9}] * 2
    + [{"rack": "r12", "zone": "z1", "watts": 9}],
    datasets=[{"name": "d"}, {"name": "d"}],
    tariffs=[TARIFF, TARIFF],
    reservations=[
        reserved("x"),
        reserved("x"),
        reserved("many", count=99),
        reserved("few", count=2, gpu_model="T4"),
        reserved("node", nodes=["n00"]),
        reserved("owner", queues=["p"], count=1),
    ],
)
QUEUES = (
    world(queues=[queue("research"), queue("q", parent="reserch"), queue("q")]),
    world(queues=[queue("c", parent="a"), queue("b", parent="c"), queue("a", parent="b")]),
    world(
        queues=[
            queue("top", nominal=4, guarantee=4.001),
            Queue(name="q", gpu_models={"T4": {"nominal": 2, "guarantee": 3}}),
        ]
    ),
)
JOBS = world(
    datasets=[{"name": "corpus"}],
    jobs=[
        job("twice"),
        job("twice"),
        job("queue", queue="p"),
        job("unknown-profile", mig={"2g20gb": 1}),
        job("no-such-profile", mig={"2g.10gb": 1}),
        job("data", datasets=["korpus"]),
        job("submitted", waited=-HOUR),
        job("deadline", deadline=NOW - HOUR),
        job("hard", hard_deadline=True),
        after("depends", "twicee"),
        after("least", "twice", depends_on_at_least=2),
        after("circle", "middle"),
        after("middle", "circle", co_start="g"),
        running("started", started_at=BEGUN),
        running("saved", last_checkpoint_at=BEGUN),
        running("resized", resized_at=BEGUN),
        running("killed", kill_at=NOW - HOUR),
        running("promised", more={"promise": PROMISE}),
    ],
    finished=[
        FinishedJob(name="early", queue="q", started_at=NOW - HOUR, ended_at=NOW - 2 * HOUR),
        FinishedJob(name="late", queue="q", started_at=NOW - HOUR, ended_at=BEGUN),
    ],
)
NO_MIG = world(nodes=[node(model="T4")], jobs=[job("mig", mig={"1g.10gb": 1})])
RUNNING = world(
    nodes=[
        *cluster(2, gpus=4),
        node("n2", gpus=1),
        node("n3", gpus=0),
        node("m0", mig={0: [("3g.40gb", 4)], 1: []}),
        node("sick", details=[Gpu(index=0, healthy=False)]),
        node("down", ready=False),
    ],
    jobs=[
        running("gang", replicas=(2, 4)),
        running("pair", replicas=1, at=("n0", "n0")),
        on("profile", "m0", mig=[(0, "no", 0)]),
        on("instance", "m0", mig=[(0, "3g.40gb", 0)]),
        on("none", "m0", mig=[(1, "3g.40gb", 0)]),
        on("whole", "m0", gpus=[0]),
        on("sliced", "n1", mig=[(1, "3g.40gb", 0)]),
        on("node", "n4"),
        *(on(f"index-on-{name}", name, gpus=[4]) for name in ("n1", "n2", "n3")),
        on("gpu-a", "n1", gpus=[0]),
        on("gpu-b", "n1", gpus=[0], milli=1),
        on("slice-a", "m0", mig=[(0, "3g.40gb", 4)]),
        on("slice-b", "m0", mig=[(0, "3g.40gb", 4)]),
        on("cpus", "n0", cpus=10_000),
        on("gpu", "sick", gpus=[0]),
        on("lost", "down"),
    ],
)
ODD = snapshot(
    queues=[queue("a", nominal=10), queue("b", nominal=10, **{"A100-80GB": 1}), queue("c", guarantee=20)],
    jobs=[
        job("model", gpus=1, gpu_models={"B300": 1}),
        job("large", gpus=9, cpus=10_000, resources={"rdma": 1}),
        job("scales", gpus=1).model_copy(
            update={"gang": Gang(min=1, max=4, scaling_by_model={"H100": {1: 1, 4: 3}})}
        ),
    ],
)


def lines():
    for given in (CLUSTER, *QUEUES, JOBS, NO_MIG, RUNNING):
        for one in inconsistencies(given):
            yield f"{'.'.join(map(str, one.location))}: {one.message}"
            if one.damage:
                yield f"    {one.damage.kind}: {one.damage.cause}"
    yield from input_warnings(ODD)


def test_the_sentences_about_snapshots():
    found = "".join(f"{line}\n" for line in lines())

    assert found == golden(Path(__file__).with_name("messages.golden.txt"), found)
