"""Dependencies, data and co-starts in the problem: which job may start from when on, and after which."""

from __future__ import annotations

import pytest

from gpuplan.models.dependency import DependencyKind, FinishedJob, JobOutcome
from gpuplan.models.problem.jobs import ClassRole, Predecessor
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.strategies import time_strategies
from tests.support.strategies.time_strategies import found, hours, posed, runs, waits

KINDS = list(DependencyKind)
STARTED, SUCCEEDED, COMPLETED, CHECKPOINTED = KINDS


def over(name="x", outcome=JobOutcome.SUCCEEDED):
    return FinishedJob(name=name, queue="q", outcome=outcome, started_at=hours(-2), ended_at=hours(-1))


@pytest.mark.parametrize(
    ("kind", "outcome", "may"),
    [
        (STARTED, JobOutcome.SUCCEEDED, True),
        (STARTED, JobOutcome.FAILED, True),
        (SUCCEEDED, JobOutcome.SUCCEEDED, True),
        (SUCCEEDED, JobOutcome.FAILED, False),
        (COMPLETED, JobOutcome.SUCCEEDED, True),
        (COMPLETED, JobOutcome.FAILED, True),
        (CHECKPOINTED, JobOutcome.SUCCEEDED, True),
        (CHECKPOINTED, JobOutcome.FAILED, False),
    ],
)
@pytest.mark.parametrize("slots", [1, 4])
def test_what_has_ended_keeps_no_job_waiting_or_for_ever(kind, outcome, may, slots):
    one = found(posed(waits(on=[("x", kind)]), finished=[over(outcome=outcome)], slots=slots))

    assert (one is not None) == may
    assert one is None or (one.startable and one.predecessors == ())


def test_a_job_of_the_snapshot_hides_one_that_ended_under_its_name():
    one = found(posed(waits(on=["x"]), waits("x"), finished=[over()]))

    assert not one.startable


def test_of_two_that_ended_under_one_name_the_last_counts():
    failed = FinishedJob(
        name="x", queue="q", outcome=JobOutcome.FAILED, started_at=hours(-9), ended_at=hours(-8)
    )

    assert found(posed(waits(on=["x"]), finished=[over(), failed])).startable


@pytest.mark.parametrize(
    ("kind", "earliest"), [(STARTED, 0), (SUCCEEDED, 2), (COMPLETED, 2), (CHECKPOINTED, 2)]
)
def test_what_runs_has_started_and_ends_with_a_slot(kind, earliest):
    one = found(posed(runs(left=1.5), waits(on=[("r", kind)])))

    assert one.earliest == earliest
    assert one.needed == 0
    assert [points is not None for points in one.options[0].later[1:]] == [
        slot >= earliest for slot in (1, 2, 3)
    ]
    assert bool(one.options[0].groups) == (earliest == 0)


def test_a_checkpoint_is_enough_where_it_is_asked_for():
    job = runs(checkpoint=hours(-0.5))

    assert found(posed(job, waits(on=[("r", CHECKPOINTED)]))).startable
    assert not found(posed(job, waits(on=[("r", SUCCEEDED)]))).startable


def test_no_job_waits_within_the_horizon_for_what_ends_after_it():
    assert found(posed(runs(left=3.5), waits(on=["r"]))) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_of_this_plan_counts_from_the_next_slot_on(kind):
    problem = posed(waits("a", takes=1.5), waits(on=[("a", kind)]))
    before, after = found(problem, "a"), found(problem)

    assert before.startable
    assert after.predecessors == (
        Predecessor(job_class=problem.classes.index(before), ended=kind is not STARTED),
    )
    assert after.needed == 1
    assert not after.startable
    assert after.earliest == (1 if kind is STARTED else 2)


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_slot_no_job_starts_after_a_start(kind):
    assert found(posed(waits("a"), waits(on=[("a", kind)]), slots=1)) is None


def test_a_held_job_is_never_over():
    assert found(posed(waits("a", held=True), waits(on=["a"]))) is None


def test_a_job_that_waits_for_one_without_a_place_waits_for_ever():
    assert found(posed(waits("a", gpu_models={"none": 1}), waits(on=["a"]))) is None


def test_chains_add_up_and_end_with_the_horizon():
    chain = [waits("a"), *(waits(name, on=[before]) for before, name in ("ab", "bc", "cd", "de"))]

    problem = posed(*chain)

    assert {name: found(problem, name).earliest for name in "abcd"} == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert found(problem, "e") is None


@pytest.mark.parametrize(("least", "earliest"), [(1, 1), (2, 2), (3, 3), (None, 3)])
def test_so_many_of_them_are_enough(least, earliest):
    problem = posed(
        runs("r1", left=1),
        runs("r2", left=3, first=1),
        waits("a", takes=2),
        waits(on=["r1", "a", "r2"], least=least),
    )
    one = found(problem)

    assert one.earliest == earliest
    assert one.needed == (least or 3)
    assert {(each.slot, each.job_class) for each in one.predecessors} == {
        (1, None),
        (3, None),
        (0, problem.classes.index(found(problem, "a"))),
    }


def test_what_has_come_counts_towards_so_many_and_what_never_comes_does_not():
    on = ["x", "y", "a"]
    ended = [over("x"), over("y", JobOutcome.FAILED)]

    assert found(posed(waits("a"), waits(on=on, least=1), finished=ended)).startable
    assert found(posed(waits("a"), waits(on=on, least=2), finished=ended)).needed == 1
    assert found(posed(waits("a"), waits(on=on, least=3), finished=ended)) is None


def test_jobs_with_dependents_are_left_alone():
    rival = build.job("rival", gpus=8, priority=9)
    nodes = [build.node("n0")]

    alone = posed(runs(left=2), rival, waits(priority=0), nodes=nodes)
    waited_for = posed(runs(left=2), rival, waits(on=["r"]), nodes=nodes)
    held = posed(runs(left=2), rival, waits(on=["r"], held=True), nodes=nodes)

    assert [len(each.incumbents) for each in (alone, waited_for, held)] == [1, 0, 1]


def test_jobs_are_left_alone_that_do_by_running_what_a_later_start_waits_for():
    rival = build.job("rival", gpus=8, priority=9)
    about = {"nodes": [build.node("n0")]}

    ahead = posed(runs(left=2), rival, waits(on=[("r", STARTED)]), **about)
    now = posed(runs(left=2), rival, waits(on=[("r", STARTED)]), slots=1, **about)

    assert [len(each.incumbents) for each in (ahead, now)] == [0, 1]


def test_a_job_that_has_to_leave_may_and_then_its_end_is_unknown():
    nodes = [build.node("n0", drain=True), build.node("n1")]

    problem = posed(runs(left=1), waits(on=["r"]), nodes=nodes)

    assert [one.job for one in problem.incumbents] == ["r"]
    assert found(problem) is None


def test_a_job_that_should_leave_but_may_not_ends_when_it_does():
    nodes = [build.node("n0", drain=True), build.node("n1")]

    problem = posed(runs(left=1, preemptible=False), waits(on=["r"]), nodes=nodes)

    assert problem.incumbents == ()
    assert found(problem).earliest == 1


@pytest.mark.parametrize(("when", "earliest"), [(-1, 0), (0, 0), (0.1, 1), (1, 1), (1.1, 2), (3, 3)])
def test_no_job_starts_before_its_time_or_that_of_its_data(when, earliest):
    data = [{"name": "d", "available_at": hours(when)}]

    assert found(posed(waits(not_before=hours(when)))).earliest == earliest
    assert found(posed(waits(datasets=["d"]), datasets=data)).earliest == earliest


@pytest.mark.parametrize("slots", [1, 3])
def test_a_job_that_comes_after_the_horizon_is_not_in_the_problem(slots):
    assert found(posed(waits(not_before=hours(3)), slots=slots)) is None


def test_no_node_is_opened_and_no_job_stopped_for_a_job_that_cannot_start_now():
    pools = [build.pool()]
    nodes = [build.node("n0", gpus=1)]
    about = {"nodes": nodes, "pools": pools}
    later = waits(not_before=hours(1), priority=9)

    assert posed(waits(priority=9), runs(), **about).pools
    assert posed(waits(priority=9), runs(), **about).incumbents
    assert posed(later, runs(), **about).pools == ()
    assert posed(later, runs(), **about).incumbents == ()


def test_jobs_that_start_together_are_numbered_together():
    jobs = [waits(name, co_start=group) for name, group in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))]

    problem = posed(*jobs, waits("e", co_start="z"))

    numbers = {name: found(problem, name).co_start for name in "abcde"}
    assert numbers["a"] == numbers["c"] != numbers["b"] == numbers["d"]
    assert numbers["e"] is None


def test_together_starts_no_earlier_than_the_last():
    problem = posed(waits("a", co_start="x"), waits("b", co_start="x", not_before=hours(2)))

    assert {found(problem, name).earliest for name in "ab"} == {2}
    assert all(found(problem, name).options[0].groups == () for name in "ab")


@pytest.mark.parametrize("slots", [1, 3])
def test_one_that_cannot_start_keeps_the_others(slots):
    never = waits("b", co_start="x", gpu_models={"none": 1})

    assert posed(waits("a", co_start="x"), never, slots=slots).classes == ()


def test_one_that_runs_or_is_held_lets_the_others_go():
    running = runs("b", co_start="x")
    held = waits("b", co_start="x", held=True, not_before=hours(9))

    assert found(posed(waits("a", co_start="x"), running), "a").co_start is None
    assert found(posed(waits("a", co_start="x"), held), "a").co_start is None


def test_a_job_that_cannot_start_with_the_one_it_waits_for_starts_never():
    problem = posed(waits("a", co_start="x"), waits("b", co_start="x", on=[("a", STARTED)]))

    assert problem.classes == ()


def test_jobs_tied_to_others_are_classes_of_their_own():
    problem = posed(waits("a"), waits("b"), waits("c"), waits("d", on=["b"]))

    assert [one.jobs for one in problem.classes] == [("a", "c"), ("b",), ("d",)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_tied_classes_have_one_job_and_predecessors_that_are_in_the_question(seed):
    instance = time_strategies.instance(seed)
    problem = build_problem(instance.snapshot, instance.policy)
    companies = {}
    for one in problem.classes:
        before = [each.job_class for each in one.predecessors if each.job_class is not None]
        for each in before:
            assert len(problem.classes[each].jobs) == 1
            assert problem.classes[each].role is ClassRole.START
        if one.predecessors or one.co_start is not None or one.firm:
            assert len(one.jobs) == 1
        assert one.needed <= len(one.predecessors)
        assert not one.predecessors or one.needed > 0
        assert all(0 < each.slot < problem.slots for each in one.predecessors if each.job_class is None)
        if one.co_start is not None:
            companies.setdefault(one.co_start, []).append(one)
    for members in companies.values():
        assert len(members) > 1
        assert len({one.earliest for one in members}) == 1
    assert set(companies) == set(range(len(companies)))
    assert all(one.earliest < problem.slots for one in problem.classes)
