"""What would make a waiting job start: enough, no more than that, and the best first."""

from __future__ import annotations

import pytest

from gpuplan.models.affinity import NodeMatch, PreferredNodes
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.planner.explain import verify_trial
from gpuplan.planner.explain.explanation import RemedyKind
from tests.support.builders.build import job, node, queue, snapshot
from tests.support.harness.explain_helpers import CALM, FULL, greedy_plan, kinds, remedies_of, runs
from tests.support.oracles.brute_force import TooLargeError
from tests.support.oracles.remedy_oracle import as_planned, changed, lesser
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.instances import everything, everything_mixed, tiny
from tests.support.strategies.schedule_instances import timely

STEP, PARTS = (6, 6) if EVERY_SEED else (12, 1)
"""Of the tiny instances, which have more than 500 waiting jobs together."""
TIMELY = 40 if EVERY_SEED else 12


def checked(plan, name):
    """Check with nothing but the verifier what is said of a job; how many remedies, and how many doubts."""
    remedies = remedies_of(plan, name)
    assert as_planned(plan, name).may_start() == (remedies.fits is not None)
    assert not (remedies.fits and remedies.found)
    slots = TimeSlots.of(plan.policy.horizon, plan.epoch)
    horizon = slots.end if slots.count > 1 else 0
    planned = {each.job: each.projected_start for each in plan.waiting if each.projected_start}
    for remedy in remedies.found:
        if RemedyKind.PRIORITY in kinds(remedy):
            continue
        if remedy.parts[0].subject == name and remedy.points == 0 and name in planned:
            assert remedy.starts_at == planned[name]
            continue
        assert changed(plan, name, remedy.parts).may_start(), f"not enough: {remedy}"
        for parts in lesser(remedy.parts, waits_from=horizon):
            assert not changed(plan, name, parts).may_start(), (
                f"not the least: {remedy}, as {parts} is enough"
            )
    return len(remedies.found), remedies.unconfirmed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "seeds", "least"),
    [(tiny, range(part, 360, STEP), 480 // STEP) for part in range(PARTS)]
    + [(everything_mixed, range(12), 20), (timely, (*range(TIMELY), 101), 2 * TIMELY)],
)
def test_each_remedy_is_enough_and_nothing_less_is(make, seeds, least):
    jobs, too_large, said = 0, 0, []
    for seed in seeds:
        instance = make(seed)
        plan = greedy_plan(instance.snapshot, instance.policy)
        for waiting in plan.waiting:
            if plan.snapshot.job_by_name[waiting.job].running is None:
                jobs += 1
                try:
                    said.append(checked(plan, waiting.job))
                except TooLargeError:
                    too_large += 1

    assert jobs >= least
    assert too_large <= jobs // 10
    assert sum(remedies for remedies, _ in said) >= jobs // 2
    assert sum(doubts for _, doubts in said) <= jobs // 25


def test_nothing_is_told_that_the_verifier_does_not_accept(monkeypatch):
    monkeypatch.setattr(verify_trial.TargetCheck, "keeps_rules", lambda _: False)

    remedies = remedies_of(greedy_plan(snapshot(jobs=[*FULL, job("a", gpus=8)]), CALM), "a")

    assert remedies.found == ()
    assert remedies.unconfirmed >= 3


def test_room_without_places_is_told_apart_from_changes_that_do_not_help(monkeypatch):
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=1, weight=0)])
    plan = greedy_plan(world, CALM)
    monkeypatch.setattr(verify_trial.TargetCheck, "keeps_rules", lambda _: False)

    remedies = remedies_of(plan, "a")

    assert remedies.unplaced
    assert (remedies.found, remedies.fits, remedies.unconfirmed) == ((), None, 0)


def test_nothing_is_to_be_changed_for_a_job_that_fits_and_costs_too_much():
    elsewhere = PreferredNodes(match=NodeMatch(key="disk", values=("nvme",)), points=1000)
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=1, preferred_nodes=(elsewhere,))])

    remedies = remedies_of(greedy_plan(world, CALM), "a")

    assert remedies.fits.nodes == ("n0",)
    assert remedies.fits.points == 100 - 1000
    assert remedies.found == ()


def test_pairs_where_no_single_change_is_enough():
    queues = [queue("q", nominal=8)]
    jobs = [FULL[0], job("a", gpus=8, gpu_models={"H100-80GB": 1})]
    world = snapshot(nodes=[node("n0"), node("t0", model="T4")], queues=queues, jobs=jobs)

    remedies = remedies_of(greedy_plan(world, CALM), "a").found
    pairs = [set(kinds(each)) for each in remedies if len(each.parts) == 2]

    assert {RemedyKind.QUOTA, RemedyKind.GPU_MODEL} in pairs


def test_more_than_two_changes_where_no_pair_is_enough():
    queues = [queue("q", nominal=1), queue("r")]
    old = [runs("old", "n0", *range(8), queue="r"), runs("older", "n1", *range(8), queue="r")]
    picky = job("a", gpus=2, held=True, node_selector={"disk": "nvme"})
    world = snapshot(queues=queues, nodes=[node("n0"), node("n1"), node("n2")], jobs=[*old, picky])

    remedies = remedies_of(greedy_plan(world, CALM), "a").found

    assert [set(kinds(each)) for each in remedies] == [
        {RemedyKind.RELEASE, RemedyKind.SELECTOR, RemedyKind.QUOTA}
    ]


def test_remedies_come_in_the_order_of_their_points_and_few_of_a_kind():
    jobs = [runs(f"r{index}", "n0", index) for index in range(8)]
    remedies = remedies_of(
        greedy_plan(snapshot(nodes=[node("n0")], jobs=[*jobs, job("a", gpus=1)]), CALM), "a"
    )

    points = [each.points for each in remedies.found]

    assert points == sorted(points, reverse=True)
    assert sum(kinds(each) == (RemedyKind.STOP,) for each in remedies.found) == 2
    assert remedies.more == 6


def test_a_spread_limit_and_power_caps_of_racks_are_counted_together():
    world = everything(364, features=("racks", "power", "spread"), share=1.0)

    remedies = remedies_of(greedy_plan(world.snapshot, world.policy), "j1")

    # Counted apart they have room, so that the job seemed to fit, and no place was found.
    assert not remedies.unplaced
    assert RemedyKind.SPREAD in {kinds(remedy)[0] for remedy in remedies.found}


@pytest.mark.slow
def test_a_higher_priority_may_bring_a_job_to_a_node_that_the_plan_adds():
    world = everything_mixed(383)
    plan = greedy_plan(world.snapshot, world.policy)

    remedies = remedies_of(plan, "j0")

    (raised,) = (remedy for remedy in remedies.found if kinds(remedy) == (RemedyKind.PRIORITY,))
    assert set(raised.nodes) <= {node.name for node in plan.target.added}
