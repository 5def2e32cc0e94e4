"""So many more fit, and one more does not: against trying everything, and case by case."""

from __future__ import annotations

import functools

import pytest

from gpuplan.models.affinity import AntiAffinity, LocalityPreference, Spread
from gpuplan.models.calendar import Reservation
from gpuplan.models.cluster import Level, RackPower, Taint
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.answers import fit_text
from gpuplan.planner.whatif.fit import count_upper_bound, fit
from tests.support.builders.build import NOW, job, node, pool, queue, replica, snapshot
from tests.support.oracles import fit_oracle
from tests.support.strategies import instances

POLICY = Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))
SEEDS = 150
FIT = "gpuplan.planner.whatif.fit."


def fitted(world, wanted, policy=POLICY, **more):
    return fit(world, policy, wanted, seed=0, **more)


@functools.cache
def asked(seed):
    """A tiny instance, the first of its jobs, and how many of that fit; None if there is too much to try."""
    made = instances.tiny(seed)
    wanted = next(each for each in made.snapshot.jobs if not each.running)
    try:
        return made, wanted, fit_oracle.most_copies(made.snapshot, made.policy, wanted, 6)
    except fit_oracle.TooLargeError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_many_fit_as_trying_everything_finds(seed):
    case = asked(seed)
    if case is None:
        pytest.skip("too much to try")
    made, wanted, most = case

    found = fitted(made.snapshot, wanted, made.policy.model_copy(update={"budget": POLICY.budget}), most=6)

    assert found.fits <= most
    assert found.at_most is None or found.at_most >= most
    if most < 6:
        assert (found.fits, found.at_most) == (most, most)


@pytest.mark.slow
def test_enough_of_the_random_cases_are_small_and_some_are_of_each_kind():
    cases = [case for seed in range(SEEDS) if (case := asked(seed))]
    counts = [most for _, _, most in cases]

    assert len(cases) > SEEDS * 2 // 3
    assert min(counts.count(number) for number in (0, 1, 2)) >= SEEDS // 50


CASES = {
    "whole GPUs": (3, [node("n0", gpus=8)], job(gpus=2, cpus=8), ReasonCode.RESOURCES),
    "a scarce second resource": (2, [node("n0", gpus=8, cpus=10)], job(gpus=1, cpus=5), ReasonCode.RESOURCES),
    "fragments": (2, [node("n0", gpus=3), node("n1", gpus=3)], job(gpus=2), ReasonCode.FRAGMENTED),
    "shares": (2, [node("n0", gpus=2)], job(milli=600), ReasonCode.FRAGMENTED),
    "gangs of one model": (
        1,
        [node("n0", gpus=3), node("n1", gpus=1, model="T4")],
        job(gpus=1, replicas=2),
        ReasonCode.RESOURCES,
    ),
    "spread": (
        3,
        [node("n0", gpus=8), node("n1", gpus=3)],
        job(gpus=1, replicas=2, spread=Spread(most=1)),
        ReasonCode.FRAGMENTED,
    ),
    "one rack": (
        2,
        [node("n0", gpus=3, rack="a"), node("n1", gpus=3, rack="b")],
        job(gpus=1, replicas=2, locality=LocalityPreference(required=Level.RACK)),
        ReasonCode.DOMAIN,
    ),
    "keeping apart": (
        2,
        [node("n0"), node("n1")],
        job(gpus=1, labels={"app": "x"}, anti_affinity=(AntiAffinity(labels={"app": "x"}),)),
        ReasonCode.NOT_CHOSEN,
    ),
    "nothing that matches": (
        0,
        [node("n0", taints=(Taint(key="k"),))],
        job(gpus=1),
        ReasonCode.NO_MATCHING_NODE,
    ),
    "MIG": (
        2,
        [node("n0", gpus=1, mig={0: []})],
        job(mig={"3g.40gb": 1}),
        ReasonCode.RESOURCES,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_limits_the_number_is_told(name):
    count, nodes, wanted, code = CASES[name]
    running = job("r", gpus=1, at=[replica("n0", gpus=[7])]) if name == "whole GPUs" else job("r", held=True)

    found = fitted(snapshot(nodes=nodes, jobs=[running, wanted]), wanted)

    assert (found.fits, found.at_most) == (count, count)
    assert found.exact
    assert found.limit.code == code
    assert sum(found.nodes.values()) == count * wanted.gang.minimum


def test_quotas_limit_in_all_by_model_and_at_parents():
    nodes = [node("n0", gpus=8), node("n1", gpus=8, model="T4")]
    wanted = job(gpus=1, queue="q")

    def most(*queues):
        return fitted(snapshot(nodes=nodes, jobs=[wanted], queues=queues), wanted)

    assert most(queue("q", nominal=5)).fits == 5
    assert most(queue("q", nominal=20, T4=3)).fits == 11
    assert most(queue("p", nominal=0), queue("q", parent="p", nominal=4, borrowing=0)).fits == 4
    assert most(queue("q", nominal=5)).limit.code is ReasonCode.WAITING_FOR_QUOTA


def test_power_caps_limit():
    nodes = [node(f"n{index}", gpus=4, watts=700, rack="r") for index in range(2)]
    wanted = job(gpus=1)

    found = fitted(snapshot(nodes=nodes, jobs=[wanted], rack_power=[RackPower(rack="r", watts=2100)]), wanted)

    assert (found.fits, found.at_most) == (3, 3)


def test_other_waiting_jobs_prices_and_times_are_not_in_the_way():
    wanted = job(
        gpus=2, held=True, weight=0, not_before=NOW.replace(hour=18), replicas=(1, 4), gpu_models=["T4"]
    )
    others = [job("first", gpus=8, priority=9, promise={"start": NOW, "replicas": [replica(gpus=range(8))]})]
    world = snapshot(nodes=[node("n0", model="T4", gpus=8)], jobs=[wanted, *others], pools=[pool()])

    found = fitted(world, wanted)

    assert (found.fits, found.at_most) == (4, 4)
    assert set(found.nodes) == {"n0"}


def test_reservations_of_others_are_in_the_way():
    course = Reservation(name="c", start=NOW.replace(hour=13), duration=3600, nodes=("n0",), queues=("p",))
    wanted = job(gpus=4, expected_duration=7200)
    world = snapshot(jobs=[wanted], queues=[queue(), queue("p")], reservations=[course])

    found = fitted(world, wanted)

    assert set(found.nodes) == {"n1"}
    assert (found.fits, found.at_most) == (2, 2)


def test_a_running_job_is_left_where_it_is():
    running = job("r", gpus=5, at=[replica("n0", gpus=range(5))])

    found = fitted(snapshot(nodes=[node("n0"), node("n1")], jobs=[running]), running)

    assert found.fits == 1
    assert found.nodes == {"n1": 1}


def test_no_more_are_counted_than_asked_for():
    wanted = job(cpus=1)

    found = fitted(snapshot(jobs=[wanted]), wanted, most=5)

    assert (found.fits, found.at_most, found.exact) == (5, None, False)


def test_counting_is_never_below_what_fits():
    for seed in range(SEEDS):
        if (case := asked(seed)) is not None:
            made, wanted, most = case
            running = [each for each in made.snapshot.jobs if each.running]
            alone = made.snapshot.model_copy(update={"jobs": tuple(running)})
            assert count_upper_bound(alone, made.policy, wanted, 6) >= most


def test_where_the_plan_falls_short_the_answer_is_an_interval(monkeypatch):
    def worse(*arguments, **more):
        plan = plan_epoch(*arguments, **more)
        lower = plan.solution.model_copy(update={"objective": plan.solution.objective - 100})
        return plan.model_copy(update={"placements": plan.placements[:-1], "solution": lower})

    monkeypatch.setattr(FIT + "plan_epoch", worse)
    wanted = job(gpus=2)

    found = fitted(snapshot(nodes=[node("n0", gpus=8)], jobs=[wanted]), wanted)

    assert (found.fits, found.at_most, found.exact) == (3, 4, False)
    shown = fit_text(found, Style(width=80))
    assert "Between 3 and 4 more fit beside what runs, disturbing no job: 3 were placed, 5" in shown


def test_the_bound_of_a_solver_counts_where_counting_says_more(monkeypatch):
    monkeypatch.setattr(FIT + "count_upper_bound", lambda *_: 6)
    wanted = job(gpus=2)

    found = fitted(snapshot(nodes=[node("n0", gpus=8)], jobs=[wanted]), wanted)

    assert (found.fits, found.at_most) == (4, 4)
    assert found.proof != "counting"


def test_the_search_ends_as_soon_as_enough_are_placed():
    wanted = job(gpus=2)
    seen = []

    found = fitted(snapshot(nodes=[node("n0", gpus=8)], jobs=[wanted]), wanted, watch=seen.append)

    assert found.exact
    assert {milestone.stage for milestone in seen} == {"greedy", "draft"}
