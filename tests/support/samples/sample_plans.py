"""One small plan with a bit of everything, for views and goldens."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.plan.plan import Base
from gpuplan.models.plan.solution import SolveStatus
from tests.support.builders.build import job, node, placement, pool, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted

NODES = [
    node(f"h100-{index:02d}", rack="r2" if index > 2 else "r1", price_per_hour=24.5) for index in range(1, 9)
]
QUEUES = [
    queue("all"),
    queue("research", parent="all", nominal=48, borrowing=0),
    queue("batch", parent="all"),
]
WAITED = timedelta(hours=3, minutes=10)
JOBS = [
    job(
        "train-llama",
        gpus=8,
        replicas=4,
        queue="research",
        waited=timedelta(hours=3, minutes=10),
        priority=10,
    ),
    job("infer-a", milli=460, queue="batch", gpu_models=["H100-80GB", "H200"]),
    job("prepare", cpus=16, queue="batch"),
    job("sweep-117", gpus=8, queue="batch", at=[replica("h100-01", gpus=range(8))]),
    job("sweep-118", gpus=4, queue="batch", at=[replica("h100-02", gpus=range(4))]),
    job("train-moe", gpus=8, replicas=8, queue="research"),
    job("train-next", gpus=8, replicas=3, queue="research"),
    job("notebook", gpus=1, queue="batch", held=True),
    job("render", gpus=8, replicas=3, queue="batch"),
]
WORLD = snapshot(nodes=NODES, queues=QUEUES, jobs=JOBS)
STARTS = (
    placement("train-llama", *(replica(f"h100-{index:02d}", gpus=range(8)) for index in range(3, 7))),
    placement("infer-a", replica("h100-02", gpus=[4], milli=460)),
    placement("prepare", replica("h100-02", cpus=16)),
)


def small_plan(world=WORLD, started=STARTS, **more):
    """A plan with ids that are always the same, whatever else becomes part of a plan."""
    defaults = {
        "status": SolveStatus.FEASIBLE,
        "objective": 45_900,
        "bound": 46_330,
        "greedy_objective": 43_790,
        "seconds": 6.04,
    }
    base = Base(snapshot="9f3a" * 16, policy="1d20" * 16)
    plan = drafted(world, *started, **defaults | more)
    return plan.model_copy(update={"plan_id": "7c1e55aa01234567", "base": base})


# A plan with every type of action.

POOLS = (
    pool("cloud", template=node("cloud", price_per_hour=40), provisioning="10m"),
    pool("old", template=node("old", price_per_hour=20)),
)
BUSY_NODES = [
    *(
        node(f"h100-{index:02d}", rack="r1" if index < 3 else "r2", price_per_hour=24.5)
        for index in (1, 2, 3, 5)
    ),
    node("h100-04", price_per_hour=24.5, drain=True),
    node("mig-1", gpus=2, price_per_hour=6, mig={0: [("3g.40gb", 0), ("3g.40gb", 4)]}),
    node("old-1", pool="old", price_per_hour=20),
    node("old-2", pool="old", price_per_hour=20),
]
BUSY_JOBS = [
    job("train-llama", gpus=8, replicas=2, queue="research", waited=WAITED, priority=10),
    job("distill", gpus=6, queue="research", priority=2),
    job("infer-a", queue="batch", mig={"1g.10gb": 2}),
    job("render", gpus=6, queue="batch"),
    job("train-moe", gpus=8, replicas=8, queue="research"),
    job("sweep-117", gpus=8, queue="batch", at=[replica("h100-01", gpus=range(8))]),
    job("sweep-118", gpus=4, queue="batch", at=[replica("h100-02", gpus=range(4))]),
    job(
        "tune",
        gpus=2,
        replicas=(1, 4),
        queue="batch",
        at=[replica("h100-02", gpus=[4, 5]), replica("h100-02", gpus=[6, 7])],
    ),
    job("embed", gpus=1, replicas=(1, 3), queue="batch", at=[replica("h100-03", gpus=[4])]),
    job("serve", mig={"3g.40gb": 1}, queue="batch", at=[replica("mig-1", mig=[(0, "3g.40gb", 0)])]),
    job("notebook", gpus=1, queue="batch", at=[replica("h100-04", gpus=[0])]),
    job("eval", gpus=1, queue="batch", at=[replica("old-1", gpus=[0])]),
]
BUSY_WORLD = snapshot(nodes=BUSY_NODES, queues=QUEUES, jobs=BUSY_JOBS, pools=POOLS)
BUSY = (
    placement("train-llama", replica("h100-01", gpus=range(8)), replica("h100-05", gpus=range(8))),
    placement("distill", replica("h100-02", gpus=(0, 1, 2, 3, 6, 7))),
    placement("infer-a", replica("mig-1", mig=[(0, "1g.10gb", 4), (0, "1g.10gb", 5)])),
    placement("render", replica("cloud-1", gpus=range(6))),
    placement("sweep-118", replica("h100-03", gpus=range(4))),
    placement("tune", replica("h100-02", gpus=[4, 5])),
    placement("embed", replica("h100-03", gpus=[4]), replica("h100-03", gpus=[5])),
    placement("notebook", replica("mig-1", gpus=[1])),
    placement("eval", replica("cloud-1", gpus=[7])),
)
NEW_NODE = POOLS[0].template.model_copy(update={"name": "cloud-1", "pool": "cloud"})


def busy_plan():
    """Everything that a plan can do, once."""
    return small_plan(
        BUSY_WORLD,
        BUSY,
        stopped=["sweep-117"],
        added=[NEW_NODE],
        removed=["old-1", "old-2"],
        objective=12_300,
        bound=13_000,
        greedy_objective=9_000,
        terms={"completion": 18_000, "preemption": -1_500, "nodes": -4_000, "resize": -200, "data": 0},
    )


def throng():
    """Dozens of running jobs stopped or moved, GPUs repartitioned, nodes added."""
    nodes = [
        *(node(f"n{index:02d}", gpus=8) for index in range(60)),
        *(node(f"m{index:02d}", gpus=1, mig={0: []}) for index in range(45)),
    ]
    clouds = [NEW_NODE.model_copy(update={"name": f"cloud-{index}"}) for index in range(45)]
    jobs = [
        *(
            job(f"old-{index:02d}", gpus=8, at=[replica(f"n{index:02d}", gpus=range(8))])
            for index in range(50)
        ),
        *(job(f"new-{index:02d}", gpus=8, priority=5) for index in range(25)),
        *(job(f"mig-{index:02d}", mig={"3g.40gb": 1}) for index in range(45)),
    ]
    placed = [
        *(placement(f"new-{index:02d}", replica(f"n{index:02d}", gpus=range(8))) for index in range(25)),
        *(placement(f"old-{index:02d}", replica(f"cloud-{index}", gpus=range(8))) for index in range(25, 45)),
        *(
            placement(f"mig-{index:02d}", replica(f"m{index:02d}", mig=[(0, "3g.40gb", 4)]))
            for index in range(45)
        ),
    ]
    world = snapshot(nodes=nodes, jobs=jobs, pools=[pool("cloud", template=NEW_NODE, most=100)])
    return small_plan(world, placed, stopped=[f"old-{index:02d}" for index in range(25)], added=clouds)
