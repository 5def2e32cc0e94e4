"""
What is proven of worlds with quotas, guarantees and borrowers holds of the whole question.

Against everything that the verifier allows, not only what a problem offers; and against what `explain` finds.
"""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.planner.explain.explanation import RemedyKind
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.remedies.minimal_remedies import remedies
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.problem_builder.quotas import Reclaiming
from gpuplan.solvers import exact_run
from tests.support.builders import build
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.harness.portfolio_answers import answer, held_against_all_plans, without_neighbourhoods
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import reclaim_worlds
from tests.support.strategies.random_targets import judged, nothing_changed

CHUNKS = 4
SEEDS = 250 if EVERY_SEED else 5
"""Worlds a chunk."""

ALONE = {RemedyKind.STOP, RemedyKind.DEFER}
"""Changes that need nothing from outside."""


def drafted(snapshot, policy, solution):
    """The plan of an answer."""
    terms = judged(snapshot, policy, solution.target).terms
    return draft(snapshot, policy, solution, terms, seed=0, created_at=build.NOW)


def pays_by_itself(plan):
    """Changes of `ALONE`, allowed to a plan, that gain points; and starts that fit as things are."""
    ground, jobs = PlanFeasibility(plan), plan.snapshot.job_by_name
    may_be_stopped = reclaim_worlds.stoppable(plan.snapshot, plan.policy)
    for waiting in plan.waiting:
        found = remedies(ground, jobs[waiting.job])
        if found.fits is not None and found.fits.points > 0:
            yield waiting.job, found.fits
        for remedy in found.found:
            allowed = not remedy.by_hand and all(may_be_stopped(jobs[name], None) for name in remedy.stops)
            if {part.kind for part in remedy.parts} <= ALONE and allowed and remedy.points > 0:
                yield waiting.job, remedy


def worlds(chunk):
    """(seed, snapshot, policy, disruptions)"""
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        snapshot, policy = reclaim_worlds.world(seed)
        yield seed, snapshot, policy, reclaim_worlds.stoppable(snapshot, policy)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_proven_is_the_best_of_all_legal_plans(monkeypatch, chunk):
    without_neighbourhoods(monkeypatch)
    tally = Counter()
    for seed, snapshot, policy, best, solution in held_against_all_plans(worlds(chunk), tally):
        if solution.status is SolveStatus.OPTIMAL:
            assert list(pays_by_itself(drafted(snapshot, policy, solution))) == [], seed
        tally[solution.status] += 1
        tally["changed"] += best.target != nothing_changed(snapshot)
        tally["claims"] += build_problem(snapshot, policy).claims > 1
    assert tally[SolveStatus.OPTIMAL] >= SEEDS * 3 // 4, tally
    assert tally["changed"] >= SEEDS // 3, tally
    assert tally["claims"] >= SEEDS // 8, tally


@pytest.mark.slow
def test_what_is_proven_holds_where_jobs_are_in_their_turn(monkeypatch):
    without_neighbourhoods(monkeypatch)
    tally = Counter()

    def turns():
        for seed in range(SEEDS):
            snapshot, policy = reclaim_worlds.world_of_turns(seed)
            reclaiming = Reclaiming(snapshot, policy)
            tally["turns"] += any(
                reclaiming.keeps_turn(job, other.queue) and other.priority > job.priority
                for job in snapshot.jobs
                for other in snapshot.waiting
            )
            yield seed, snapshot, policy, reclaim_worlds.stoppable(snapshot, policy)

    for *_, solution in held_against_all_plans(turns(), tally):
        tally[solution.status] += 1
    assert tally[SolveStatus.OPTIMAL] >= SEEDS * 3 // 4, tally
    assert tally["turns"] >= SEEDS // 2, tally


def plan_of(monkeypatch, queues, *jobs, nodes=2, policy=None):
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
    snapshot = build.snapshot(nodes=build.cluster(nodes), jobs=jobs, queues=queues)
    policy = policy or Policy()
    return drafted(snapshot, policy, answer(snapshot, policy, seconds=30.0))


def placed(plan):
    return {each.job for each in plan.placements}


def test_a_queue_without_a_quota_gives_back_what_another_is_guaranteed(monkeypatch):
    places = [build.replica(node, gpus=range(first, first + 4)) for node in ("n0", "n1") for first in (0, 4)]
    running = [build.job(f"a{index}", gpus=4, queue="free", at=[at]) for index, at in enumerate(places)]
    owed = build.queue("owed", nominal=16, guarantee=16)

    plan = plan_of(monkeypatch, [owed, build.queue("free")], *running, build.job("w", gpus=8, queue="owed"))

    assert plan.solution.status == "OPTIMAL"
    assert "w" in placed(plan)
    assert len(placed(plan)) == 3


@pytest.mark.parametrize(("reclaim", "runs"), [(True, "w"), (False, "r")])
def test_a_nominal_quota_is_taken_back_unless_the_policy_says_otherwise(monkeypatch, reclaim, runs):
    running = build.job("r", gpus=8, queue="free", priority=3, at=[build.replica("n0", gpus=range(8))])
    queues = [build.queue("owner", nominal=8), build.queue("free")]
    policy = Policy(disruption=Disruption(reclaim=reclaim))
    waits = build.job("w", gpus=8, queue="owner")

    assert placed(plan_of(monkeypatch, queues, running, waits, nodes=1, policy=policy)) == {runs}


def test_a_job_too_large_for_its_guarantee_does_not_keep_that_of_a_sibling_unmet(monkeypatch):
    queues = [
        build.queue("root", nominal=0),
        build.queue("large", parent="root", nominal=4, guarantee=4),
        build.queue("small", parent="root", nominal=4, guarantee=4),
    ]
    jobs = [build.job("l", gpus=8, queue="large"), build.job("s", gpus=4, queue="small")]

    assert placed(plan_of(monkeypatch, queues, *jobs, nodes=1)) == {"s"}
