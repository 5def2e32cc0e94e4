"""Greedy's plan of a snapshot, verified, with what tests ask about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders.build import by_value

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState


@dataclass(frozen=True)
class Planned:
    """What shall run and which nodes there shall be."""

    places: dict[str, Placement]
    target: DesiredState
    points: int
    """Compared to doing nothing."""
    terms: dict[str, int]

    def nodes(self, job):
        """Nodes of a job's replicas, sorted."""
        return sorted(replica.node for replica in self.places[job].replicas)

    def held(self, job):
        """What the first replica of a job holds: GPU indices, or (GPU index, profile, start)."""
        return [
            (held.index, held.profile, held.start) if hasattr(held, "profile") else held.index
            for held in self.places[job].replicas[0].gpus
        ]


def plan(snapshot, policy=None):
    """Plan with greedy alone; the plan breaks no rule and is worth what the ledger says."""
    policy = policy or by_value()
    return realized(snapshot, policy, greedy(build_problem(snapshot, policy)))


def realized(snapshot, policy, ledger):
    """A ledger's plan, verified."""
    running = snapshot.running_placements
    target = target_of(ledger, running)
    before = verify(snapshot, policy, running)
    after = verify(snapshot, policy, target.placements, added=target.added, removed=target.removed)
    assert after.violations == ()
    assert after.objective - before.objective == ledger.objective
    places = {placement.job: placement for placement in target.placements}
    return Planned(places, target, ledger.objective, after.terms)
