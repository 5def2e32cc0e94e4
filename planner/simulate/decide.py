"""Decision of one epoch of a simulation, by the planner or by a baseline."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.errors import PlannerError
from gpuplan.models.units import print_timestamp
from gpuplan.planner.analysis.metrics import (
    allocation_ratio,
    fragmentation_ratio,
    hourly_cost,
    jain_index,
)
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.simulate.apply_actions import apply_placements, apply_plan_to_world
from gpuplan.planner.simulate.baselines import decide
from gpuplan.planner.warm_start import is_settled

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.simulated_job import JobEvent
    from gpuplan.planner.simulate.world import SimulatedWorld

SETTLED: Final = "settled"
"""In place of a solver's name: nothing changed since the last plan, so no new plan was made."""


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """One epoch: the world after the decision is carried out, and the recorded figures."""

    world: SimulatedWorld
    happened: tuple[JobEvent, ...]
    solver: str
    seconds: float
    """Duration of the decision."""
    gpu_allocation_ratio: float
    fragmentation_ratio: float
    jain_index: float
    hourly_cost: float
    objective: int | None = None
    bound: int | None = None
    changes: bool = False
    """True if the decision changes anything."""


class Decider(Protocol):
    """Decides the epochs one after the other, each from the present world."""

    def decide(self, world: SimulatedWorld, number: int) -> EpochDecision:
        """Decide the epoch with this number, and carry out the decision."""


@dataclass
class PlannerDecider:
    """The production planner; each plan gets the last one."""

    policy: Policy
    seed: int
    _last: Plan | None = field(default=None, init=False)
    _cache: EpochCache = field(default_factory=EpochCache, init=False)

    def decide(self, world: SimulatedWorld, number: int) -> EpochDecision:
        """
        Plan, and carry out the plan.

        Raises
        ------
        PlannerError
            The epoch could not be planned; the message names it.
        """
        began = time.monotonic()
        snapshot, plan = world.snapshot(), self._last
        happened: tuple[JobEvent, ...] = ()
        # If nothing has changed since the last plan, a new plan would change nothing.
        settled = plan is not None and is_settled(snapshot, self.policy, plan)
        if plan is None or not settled:
            plan = self._last = self._planned(snapshot, number)
            world, happened = apply_plan_to_world(world, plan)
        return EpochDecision(
            world,
            happened,
            solver=SETTLED if settled else plan.solution.solver,
            seconds=time.monotonic() - began,
            gpu_allocation_ratio=plan.metrics.gpu_allocation_ratio,
            fragmentation_ratio=plan.metrics.fragmentation_ratio,
            jain_index=plan.metrics.jain_index,
            hourly_cost=plan.metrics.hourly_cost,
            objective=plan.solution.objective,
            bound=plan.solution.bound,
            changes=plan.has_changes and not settled,
        )

    def _planned(self, snapshot: Snapshot, number: int) -> Plan:
        now = snapshot.taken_at
        try:
            return plan_epoch(
                snapshot, self.policy, seed=self.seed, created_at=now, last=self._last, cache=self._cache
            )
        except PlannerError as error:
            when = f"epoch {number} at {print_timestamp(now)}"
            raise PlannerError(f"{when} could not be planned: {error}") from error


@dataclass(frozen=True)
class BaselineDecider:
    """A baseline, given by its name."""

    name: str
    policy: Policy

    def decide(self, world: SimulatedWorld, number: int) -> EpochDecision:  # noqa: ARG002 - as the planner is asked
        """Run the baseline, and carry out its placements."""
        began = time.monotonic()
        snapshot = world.snapshot()
        attained = {name: task.attained(world.now) for name, task in world.tasks.items()}
        placements = decide(self.name, snapshot, self.policy, attained)
        seconds = time.monotonic() - began
        world, happened = apply_placements(world, snapshot, placements)
        cluster = world.cluster
        free = free_resources_by_node(cluster.nodes, placements)
        return EpochDecision(
            world,
            happened,
            solver=self.name,
            seconds=seconds,
            gpu_allocation_ratio=allocation_ratio(cluster, placements),
            fragmentation_ratio=fragmentation_ratio(cluster, free),
            jain_index=jain_index(snapshot, placements),
            hourly_cost=hourly_cost(cluster),
            changes=bool(happened),
        )
