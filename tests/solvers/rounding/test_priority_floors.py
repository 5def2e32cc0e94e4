"""Where an answer, once placed, misses the floor of a priority, starts of lower priority give way."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.cluster import Level
from gpuplan.models.formulation.decode import Aggregate, Batch
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Disruption, Policy, PriorityOrder, PriorityPolicy
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.list_scheduling import ListScheduler
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts, start_firm_reservations
from gpuplan.solvers.params.placement import PlacementParams, RoundingParams
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.rounding.priority_floors import meet_priority_floors
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.builders.aggregate_builders import Question
from tests.support.strategies import instances

WITHOUT = PlacementParams(rounding=RoundingParams(meet_floors=False))


def starts(question, aggregate, floors, **options):
    """Slot of each job that starts, once the answer is placed under these floors."""
    problem = replace(question.problem, floors=floors)
    ledger, _ = disaggregate(problem, aggregate, **options)
    target = target_of(ledger, question.snapshot.running_placements)
    found = verify(question.snapshot, question.policy, target.placements, planned=target.planned)
    # Whether a higher priority comes first is what floors decide.
    assert {each.rule for each in found.violations} <= {Rule.PRIORITY}
    now = [each.job for each in target.placements if question.snapshot.job_by_name[each.job].running is None]
    return dict.fromkeys(now, 0) | {each.job: each.slot for each in target.planned}


def promised_too_much(*others):
    """An answer that has a large job and one of higher priority on a node with room for one of them."""
    jobs = [
        build.job("large", gpus=2),
        build.job("high", gpus=1, priority=5),
        build.job("other", gpus=2),
        *others,
    ]
    question = Question(build.snapshot(nodes=build.cluster(2, gpus=2), jobs=jobs))
    batches = question.batch(("large", 2), n0_n1=4), question.batch(("high", 1), n0=1)
    worth = question.problem.classes[question.job_class("high")].most_points
    return question, Aggregate(batches=batches), worth


def test_job_of_higher_priority_takes_the_place_of_one_job_and_the_others_return():
    question, aggregate, worth = promised_too_much()

    found = starts(question, aggregate, ((5, worth),), known=1)

    assert found.keys() in ({"high", "large"}, {"high", "other"})


def test_no_more_gives_way_than_the_floor_needs():
    jobs = [build.job(name, gpus=2, priority=5 * (name in "ab")) for name in "abcd"]
    question = Question(build.snapshot(nodes=build.cluster(2, gpus=2), jobs=jobs))
    aggregate = Aggregate(batches=(question.batch(("c", 2), n0_n1=4),))
    worth = question.problem.classes[question.job_class("a")].most_points

    found = starts(question, aggregate, ((5, worth),), once=True)

    assert ("a" in found) + ("b" in found) == 1
    assert ("c" in found) + ("d" in found) == 1


def test_what_is_left_of_a_place_is_filled():
    question, aggregate, worth = promised_too_much(build.job("small", gpus=1))

    assert starts(question, aggregate, ((5, worth),), once=True).keys() >= {"high", "small"}


@pytest.mark.parametrize(
    ("floor", "options"),
    [(0, {}), (10**9, {"params": WITHOUT}), (10**9, {"deadline": 0.0}), (10**9, {"known": 10**9})],
    ids=["met", "off", "late", "in vain"],
)
def test_nothing_gives_way_to_a_met_floor_nor_for_a_plan_that_is_worse_or_late(floor, options):
    question, aggregate, _ = promised_too_much()

    assert starts(question, aggregate, ((5, floor),), **options).keys() == {"large", "other"}


@pytest.mark.parametrize(("floor", "lost"), [(0, 0), (10**9, 1)])
def test_job_that_gave_way_and_found_no_other_place_counts_as_missed(floor, lost):
    question, aggregate, _ = promised_too_much()

    before = disaggregate(replace(question.problem, floors=((5, 0),)), aggregate)[1]
    after = disaggregate(replace(question.problem, floors=((5, floor),)), aggregate)[1]

    assert after == before + lost


def test_running_job_and_job_of_equal_priority_do_not_give_way():
    jobs = [
        build.job("runs", gpus=2, at=[build.replica("n0", gpus=range(2))]),
        build.job("large", gpus=2, priority=5),
        build.job("high", gpus=1, priority=5),
    ]
    policy = Policy(disruption=Disruption(preempt=False))
    question = Question(build.snapshot(nodes=build.cluster(2, gpus=2), jobs=jobs), policy)
    aggregate = Aggregate(batches=(question.batch(("large", 1), n1=2),))

    assert starts(question, aggregate, ((5, 10**9),)).keys() == {"large"}


def test_plan_stays_as_it_is_where_nothing_can_be_gained():
    """The waiting job asks for more than there is, so the others keep their sites."""
    jobs = [build.job("high", gpus=8, priority=5), *(build.job(name, gpus=1) for name in "abc")]
    question = Question(build.snapshot(nodes=build.cluster(1, gpus=4), jobs=jobs))
    aggregate = Aggregate(batches=(question.batch(("a", 3), n0=3),))

    placed = [
        target_of(disaggregate(replace(question.problem, floors=floors), aggregate)[0], ())
        for floors in ((), ((5, 10**9),))
    ]

    assert placed[0] == placed[1]
    assert len(placed[0].placements) == 3


@pytest.mark.parametrize(("asked", "met"), [(0, False), (1, True)])
def test_gang_that_starts_later_gets_its_rack_from_a_job_of_lower_priority(asked, met):
    """The rack is free in slot 1 for the gang, or for a job that begins now and runs on."""
    rack = [build.node(f"n{number}", region="eu", zone="a", rack="r") for number in range(2)]
    both = LocalityPreference(required=Level.RACK)
    jobs = [
        build.job("runs", gpus=8, expected_duration="1h", at=[build.replica("n0", gpus=range(8))]),
        build.job("gang", gpus=8, replicas=2, priority=5, locality=both, expected_duration="2h"),
        build.job("low", gpus=8, expected_duration="4h"),
    ]
    policy = Policy(horizon=HorizonPolicy(slots=4), disruption=Disruption(preempt=False))
    question = Question(build.snapshot(nodes=rack, jobs=jobs), policy)
    gang, low = question.job_class("gang"), question.job_class("low")
    aggregate = Aggregate(batches=(Batch(((low, 1),), (0,), (((1,), 1),)),), later=((gang, 0, 1, 1),))

    found = starts(question, aggregate, ((5, asked),), once=True)

    assert (found.get("gang") == 1) == met
    assert (found.get("low") == 0) == (not met)


def test_reserved_job_of_higher_priority_is_pulled_forward_in_place_of_a_lower_one():
    """Both have a start, the higher priority the later one; its floor is the worth of the earlier one."""
    jobs = [
        build.job("runs", gpus=8, expected_duration="1h", at=[build.replica("n0", gpus=range(8))]),
        build.job("high", gpus=8, priority=5, expected_duration="1h"),
        build.job("low", gpus=8, expected_duration="1h"),
    ]
    policy = Policy(horizon=HorizonPolicy(slots=4), disruption=Disruption(preempt=False))
    question = Question(build.snapshot(nodes=build.cluster(1), jobs=jobs), policy)
    high, low = question.job_class("high"), question.job_class("low")
    aggregate = Aggregate(later=((high, 0, 2, 1), (low, 0, 1, 1)))
    worth = question.problem.classes[high].options[0].later[1]

    assert starts(question, aggregate, ()) == {"low": 1, "high": 2}
    assert starts(question, aggregate, ((5, worth),)) == {"high": 1, "low": 2}


class Upside:
    """A random world where the lowest priority started first, and each higher one asks for more."""

    def __init__(self, make, seed):
        world = make(seed, share=0.5)
        horizon = HorizonPolicy(slots=1 + 3 * (seed % 2))
        update = {"horizon": horizon, "priority": PriorityPolicy(order=PriorityOrder.TIERS)}
        self.snapshot, self.policy = world.snapshot.canonical(), world.policy.model_copy(update=update)
        problem = build_problem(self.snapshot, self.policy)
        if problem.slots > 1:
            problem = reserve_promised_starts(problem)
        floors = tuple((priority, 10**9) for priority in problem.priorities[:-1])
        self.ledger = Ledger(replace(problem, floors=floors))
        start_firm_reservations(self.ledger)
        listing = ListScheduler(self.ledger, now=True, most=None)
        for index in reversed(problem.placement_order):
            while problem.classes[index].starts_alone and listing.plan_one(index):
                pass
        self.highest = max(problem.priorities, default=0)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("make", [instances.everything, instances.everything_mixed])
def test_rules_hold_in_random_worlds_and_the_highest_priority_never_loses(make, seed):
    world = Upside(make, seed)
    ledger, running = world.ledger, world.snapshot.running_placements
    before = ledger.served[world.highest]

    meet_priority_floors(ledger)

    target = target_of(ledger, running)
    changes = {"added": target.added, "removed": target.removed, "planned": target.planned}
    found = verify(world.snapshot, world.policy, target.placements, **changes)
    unchanged = verify(world.snapshot, world.policy, running)
    # Not all that greedy does to keep the order of priorities is done here.
    assert {each.rule for each in found.violations} <= {Rule.PRIORITY}
    assert found.objective - unchanged.objective == ledger.objective
    assert ledger.served[world.highest] >= before


def test_the_highest_priority_gains_in_some_random_worlds():
    gained = 0
    for seed in range(40):
        world = Upside(instances.everything_mixed, seed)
        before = world.ledger.served[world.highest]
        meet_priority_floors(world.ledger)
        gained += world.ledger.served[world.highest] > before
    assert gained >= 3


def test_deadline_in_the_future_leaves_time_for_it():
    question, aggregate, worth = promised_too_much()

    assert "high" in starts(question, aggregate, ((5, worth),), deadline=time.monotonic() + 60)
