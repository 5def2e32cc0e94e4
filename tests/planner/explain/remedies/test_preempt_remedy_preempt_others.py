"""Other jobs beside one that waits: which are stopped or wait instead, and which start with it."""

from __future__ import annotations

from gpuplan.models.affinity import AntiAffinity
from gpuplan.models.cluster import Level
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.policy.settings import DisruptionBudget
from gpuplan.planner.explain.explanation import RemedyKind
from tests.support.builders.build import by_value, job, node, placement, queue, replica, snapshot
from tests.support.harness.explain_helpers import CALM, FULL, found, greedy_plan, kinds, remedies_of, runs
from tests.support.strategies.random_targets import judged


def test_the_lowest_priority_that_pays_and_the_jobs_it_stops():
    jobs = [*FULL, job("a", gpus=8)]
    policy = Policy()

    remedy = found(snapshot(jobs=jobs), policy=policy)[RemedyKind.PRIORITY]

    assert len(remedy.stops) == 1
    assert remedy.points > 0
    # A running job is worth 800 points and its 8 GPU-hours since the last checkpoint as many again.
    assert 1 <= remedy.parts[0].after <= 3


def test_the_jobs_it_pays_to_stop_at_the_lowest_priority_not_the_first_stoppable_ones():
    dear = runs("dear", "n0", *range(8), weight=5)
    cheap = runs("cheap", "n1", *range(8), weight=0.1, priority=2)

    remedy = found(snapshot(jobs=[dear, cheap, job("a", gpus=8)]), policy=by_value())[RemedyKind.PRIORITY]

    assert (remedy.stops, remedy.parts[0].after) == (("cheap",), 3)


def test_no_priority_where_no_job_may_be_stopped():
    world = snapshot(jobs=[*FULL, job("a", gpus=8)])
    spared = Policy(disruption=Disruption(max_preemptions=0))

    assert RemedyKind.PRIORITY not in found(world)
    assert RemedyKind.PRIORITY not in found(world, policy=spared)


def test_no_priority_where_a_disruption_budget_lets_only_an_operator_stop_jobs():
    world = snapshot(jobs=[*FULL, job("a", gpus=8, queue="p")], queues=[queue(), queue("p")])
    budget = DisruptionBudget(name="all", queue="q", max_unavailable=0)
    bound = Policy(disruption=Disruption(budgets=(budget,)))

    assert RemedyKind.PRIORITY in found(world, policy=Policy())
    offered = found(world, policy=bound)
    assert RemedyKind.PRIORITY not in offered
    assert offered[RemedyKind.STOP].by_hand


def test_the_running_job_that_loses_least():
    idle = job("idle", gpus=8, weight=0.1, at=[replica("n1", gpus=range(8))])

    remedy = found(snapshot(jobs=[FULL[0], idle, job("a", gpus=8)]))[RemedyKind.STOP]

    assert remedy.parts[0].subject == "idle"
    assert remedy.stops == ("idle",)
    assert remedy.lost_gpu_hours == 8


def test_a_job_that_must_not_meet_another_may_start_without_it():
    apart = AntiAffinity(level=Level.NODE, labels={"kind": "noisy"})
    noisy = runs("noisy", "n0", 0, labels={"kind": "noisy"})
    world = snapshot(nodes=[node("n0")], jobs=[noisy, job("a", gpus=1, anti_affinity=(apart,))])

    assert found(world)[RemedyKind.STOP].stops == ("noisy",)


def test_a_job_that_the_plan_starts_may_wait_instead():
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=8), job("b", gpus=8, priority=1)])

    remedies = found(world)
    remedy = remedies[RemedyKind.DEFER]

    assert remedy.parts[0].subject == "b"
    assert remedy.points == -800
    assert remedy.lost_gpu_hours is None
    # Once b is over no job loses anything.
    assert remedies[RemedyKind.WAIT].parts[0].subject == "b"
    assert remedies[RemedyKind.WAIT].points == 800


def test_points_are_the_plans_own_where_a_nominal_quota_counts_once_the_plan_is_carried_out():
    """What b borrows may be reclaimed as soon as it runs; while it waits, no nominal quota counts."""
    policy = by_value(disruption=Disruption(reclaim=True))
    queues = [
        queue("root"),
        queue("a", nominal=4, parent="root"),
        queue("b", nominal=0, parent="root"),
    ]
    jobs = [job("a", gpus=3, queue="a"), job("b", gpus=2, queue="b", priority=1)]
    world = snapshot(nodes=[node("n0", gpus=4)], queues=queues, jobs=jobs)

    remedies = found(world, policy=policy)
    plan = greedy_plan(world, policy)
    instead = judged(world, policy, DesiredState((placement("a", replica("n0", gpus=(0, 1, 2))),)))

    assert [each.job for each in plan.placements] == ["b"]
    assert remedies[RemedyKind.DEFER].points == instead.objective - plan.solution.objective
    assert remedies[RemedyKind.WAIT].points == instead.objective


def test_a_job_that_waits_instead_waits_with_its_companions():
    first = [job("x", gpus=4, priority=5, co_start="g"), job("y", gpus=4, priority=5, co_start="g")]
    world = snapshot(nodes=[node("n0")], jobs=[*first, job("a", gpus=4)])

    remedy = found(world)[RemedyKind.DEFER]

    text = "let x (queue q, priority 5), and y with it, wait instead of starting in this plan"
    assert remedy.parts[0].text == text


def company(**more):
    """Two jobs of four GPUs each that start together."""
    return [job("a", gpus=4, co_start="g"), job("b", gpus=4, co_start="g", **more)]


def test_a_change_makes_the_whole_company_start():
    world = snapshot(nodes=[node("n0")], jobs=[runs("old", "n0", 0), *company()])

    remedies = remedies_of(greedy_plan(world, CALM), "a")
    by_kind = {kinds(each): each for each in remedies.found}

    assert remedies.together_with == ("b",)
    assert by_kind[RemedyKind.NODE,].points == 800 - 5
    assert by_kind[RemedyKind.STOP,].stops == ("old",)
    assert by_kind[RemedyKind.WAIT,].parts[0].subject == "old"


def test_what_is_changed_in_another_member_is_told_of_that_one():
    world = snapshot(nodes=[node("n0")], jobs=company(node_selector={"disk": "nvme"}))

    (part,) = found(world)[RemedyKind.SELECTOR].parts

    assert (part.job, part.before) == ("b", "disk=nvme")
    assert part.text == "for b: drop its condition on nodes: disk=nvme"


def test_quota_is_raised_by_what_the_company_needs_together():
    world = snapshot(queues=[queue("q", nominal=6)], jobs=[runs("old", "n0", 0), *company()])

    assert found(world)[RemedyKind.QUOTA].parts[0].after == 9
