"""Plans that greedy makes, and what would make a job start that waits in them."""

from __future__ import annotations

from gpuplan.models.plan.solution import Solution, SolveStatus
from gpuplan.models.policy.policy import Disruption
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.remedies.minimal_remedies import remedies
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders.build import NOW, by_value, job, replica
from tests.support.strategies.random_targets import judged

CALM = by_value(disruption=Disruption(preempt=False, resize=False))
"""A policy under which no job is stopped or resized for another."""


def greedy_plan(snapshot, policy):
    """The plan that greedy makes."""
    target = target_of(greedy(build_problem(snapshot, policy)), snapshot.running_placements)
    found = judged(snapshot, policy, target)
    assert found.violations == ()
    answer = Solution(
        target=target,
        status=SolveStatus.FEASIBLE,
        solver="greedy",
        objective=found.objective,
        bound=None,
        greedy_objective=found.objective,
        seconds=0.0,
    )
    return draft(snapshot, policy, answer, found.terms, seed=0, created_at=NOW)


def remedies_of(plan, name):
    """What would make a job start."""
    return remedies(PlanFeasibility(plan), plan.snapshot.job_by_name[name])


def kinds(remedy):
    return tuple(part.kind for part in remedy.parts)


def found(snapshot, name="a", policy=CALM):
    """Remedies of one part by kind; of each kind the one worth most."""
    remedies = remedies_of(greedy_plan(snapshot, policy), name)
    return {each.parts[0].kind: each for each in reversed(remedies.found) if len(each.parts) == 1}


def runs(name, node, *gpus, **more):
    return job(name, gpus=len(gpus), at=[replica(node, gpus=gpus)], **more)


FULL = [runs("old", "n0", *range(8)), runs("older", "n1", *range(8))]
"""Jobs that fill both nodes."""
