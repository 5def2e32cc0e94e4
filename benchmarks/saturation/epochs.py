"""
Fill the same cluster with gpuplan, epoch by epoch, through its public path: pose, solve, verify.

In each epoch more pods have arrived; pods that do not fit continue to wait. Placed pods stay, unless
migration is allowed. The weight of a pod is the GPUs it asks for and all pods have one priority, so that the
objective is the number of allocated GPUs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.saturation.trace import MILLI
from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.epoch import limits_of
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import portfolio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.saturation.trace import Arrivals, Machine, Shape, Trace
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import Solution

NOW: Final = datetime(2023, 1, 1, tzinfo=UTC)
"""All epochs are at one instant: no pod ages and no pod ends."""

QUEUE: Final = "openb"
GPUS_ONLY: Final[dict[str, Any]] = {
    "objective": {"goal": "value"},
    "weights": {"basis": "gpu", "smallest_size": 0, "ageing": {"gain": 0}},
    "disruption": {"preempt": False, "resize": False, "checkpoint": 0, "restart": 0},
    "prices": {"disruption": 0, "migration": 1},
}
"""100 points per GPU, one point for a pod without GPUs, and a cost of one point per moved pod."""


def policy_of(*, solvers: Iterable[str] = (), seconds: float = 10.0, migrate: bool = False) -> Policy:
    """The policy of all epochs."""
    settings = GPUS_ONLY | {
        "disruption": GPUS_ONLY["disruption"] | {"migrate": migrate},
        "solvers": list(solvers),
        "budget": {"time_limit": f"{round(MILLI * seconds)}ms"},
    }
    return Policy.model_validate(settings)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Figures of one epoch."""

    arrived: int
    """Number of pods that have arrived so far."""
    arrived_milli: int
    allocated_milli: int
    placed: int
    waiting: int
    moved: int
    seconds: float
    solver: str
    bound_milli: int | None
    """Upper bound on the allocation of any plan of this epoch, if CPU-only pods gave no points."""


def cluster_of(machines: Iterable[Machine]) -> Cluster:
    """Nodes with names that sort in the given order, which breaks ties."""
    return Cluster(
        name="openb",
        nodes=tuple(
            Node(
                name=f"{rank:04d}-{machine.name}",
                gpus=NodeGpus(model=machine.model, count=machine.gpus),
                cpu_milli=f"{machine.cpu_milli}m",
                memory_mib=machine.memory_mib,
            )
            for rank, machine in enumerate(machines)
        ),
    )


def job_of(name: str, shape: Shape) -> Job:
    """A waiting pod."""
    return Job(
        name=name,
        queue=QUEUE,
        request=ResourceRequest(
            gpus=0 if shape.is_share else shape.gpus,
            gpu_milli=shape.gpu_milli if shape.is_share else 0,
            cpu_milli=f"{shape.cpu_milli}m",
            memory_mib=shape.memory_mib,
        ),
        gpu_models=dict.fromkeys(shape.models, MILLI),
        submitted_at=NOW,
    )


def solve(snapshot: Snapshot, policy: Policy, *, seed: int = 0) -> Solution:
    """Solve one epoch; every plan that the portfolio keeps is verified."""
    check = partial(verify_target, snapshot, policy)
    problem = build_problem(snapshot, policy)
    return portfolio.solve(problem, snapshot.running_placements, limits_of(policy, seed), check)


@dataclass
class World:
    """The cluster while it fills up."""

    cluster: Cluster
    jobs: dict[str, Job] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        """Snapshot of the current state."""
        return Snapshot(
            taken_at=NOW, cluster=self.cluster, queues=(Queue(name=QUEUE),), jobs=tuple(self.jobs.values())
        ).canonical()

    def carry_out(self, placements: Iterable[Placement]) -> int:
        """Start and move the pods that a plan places; return the number of moved pods."""
        moved = 0
        for placement in placements:
            job = self.jobs[placement.job]
            if job.running and job.running.replicas == placement.replicas:
                continue
            moved += job.running is not None
            running = Running(started_at=NOW, replicas=placement.replicas)
            self.jobs[placement.job] = job.model_copy(update={"running": running})
        return moved

    @property
    def allocated_milli(self) -> int:
        return sum(job.request.total_gpu_milli for job in self.jobs.values() if job.running)


def fill(
    trace: Trace,
    arrivals: Arrivals,
    *,
    pods: int,
    batch: int,
    policy: Policy,
    seed: int = 0,
    progress: Callable[[Epoch, World], None] = lambda _epoch, _world: None,
) -> list[Epoch]:
    """Plan epochs of `batch` arriving pods until `pods` have arrived."""
    world = World(cluster_of(trace.machines[index] for index in arrivals.nodes))
    epochs = []
    for first in range(0, pods, batch):
        last = min(pods, first + batch)
        for number in range(first, last):
            name = f"pod-{number:05d}"
            world.jobs[name] = job_of(name, trace.shapes[arrivals.shapes[number]])
        began = time.monotonic()
        before = world.allocated_milli
        solution = solve(world.snapshot(), policy, seed=seed)
        moved = world.carry_out(solution.target.placements)
        placed = sum(job.running is not None for job in world.jobs.values())
        epochs.append(
            Epoch(
                arrived=last,
                arrived_milli=int(arrivals.arrived[last - 1]),
                allocated_milli=world.allocated_milli,
                placed=placed,
                waiting=last - placed,
                moved=moved,
                seconds=time.monotonic() - began,
                solver=solution.solver,
                bound_milli=None if solution.bound is None else before + 10 * solution.bound,
            )
        )
        progress(epochs[-1], world)
    return epochs
