"""Run in child processes only: a periodic run that dies by SIGKILL at one point of an epoch."""

from __future__ import annotations

from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.service.history import History
from gpuplan.planner.service.prometheus import MetricsRegistry
from gpuplan.planner.service.run_files import PlanStore
from tests.support.builders.build import cluster, job, snapshot
from tests.support.children.kill_apply import die
from tests.support.doubles.periodic_service import Bench

WORLD = snapshot(nodes=cluster(3), jobs=[job(name, gpus=8) for name in "abcd"])

POINTS = {
    "before the plan is saved": (PlanStore, "save", 0, "before"),
    "once the plan is saved": (PlanStore, "save", 0, "after"),
    "before the first action": (SimulatedCluster, "begin", 0, "before"),
    "after the first action": (SimulatedCluster, "begin", 0, "after"),
    "before the last action": (SimulatedCluster, "begin", 2, "before"),
    "after the last action": (SimulatedCluster, "begin", 2, "after"),
    "before the epoch is recorded": (History, "add", 0, "before"),
    "once the epoch is recorded": (History, "add", 0, "after"),
    "before the metrics are shown": (MetricsRegistry, "show", 0, "before"),
    "when the second epoch is recorded": (History, "add", 1, "before"),
}


def run_dying(folder, point):
    """Run epochs, and die at one point of them."""
    owner, name, which, when = POINTS[point]
    method, count = getattr(owner, name), iter(range(1000))

    def deadly(self, *arguments, **named):
        mine = next(count) == which
        if mine and when == "before":
            die()
        found = method(self, *arguments, **named)
        if mine:
            die()
        return found

    setattr(owner, name, deadly)
    Bench(folder, WORLD).epochs(2)
