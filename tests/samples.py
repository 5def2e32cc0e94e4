"""One small plan with a bit of everything, for views and goldens."""

from __future__ import annotations

from datetime import timedelta

from build import job, node, placement, queue, replica, snapshot
from drafts import drafted

from planner.models.plan import Base
from planner.models.solution import SolveStatus

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


def small_plan(world=WORLD, started=STARTS, **claims):
    """A plan whose ids are always the same, whatever else becomes part of a plan."""
    defaults = {
        "status": SolveStatus.FEASIBLE,
        "objective": 45_900,
        "bound": 46_330,
        "greedy_objective": 43_790,
        "seconds": 6.04,
    }
    base = Base(snapshot="9f3a" * 16, policy="1d20" * 16)
    plan = drafted(world, *started, **defaults | claims)
    return plan.model_copy(update={"plan_id": "7c1e55aa01234567", "base": base})
