"""Promises in the problem: slots, places and options; starving jobs; near deadlines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu, MigInstance
from gpuplan.models.placement import Promise
from gpuplan.models.problem.jobs import HeldResources
from tests.support.builders import build
from tests.support.strategies.time_strategies import HOUR, found, hours, posed, waits

AGGRESSIVE = {"mode": "aggressive", "max_delay": HOUR}


def promised(start=2, *places, **more):
    """A waiting job that was promised a start, on the second GPU of n0 unless said otherwise."""
    replicas = places or (build.replica("n0", gpus=(1,)),)
    return waits(promise=Promise(start=hours(start), replicas=replicas), **more)


def told(job, *, backfill=None, **more):
    """What the question says of the promise of a job."""
    policy = {"horizon": {"slots": 4, "length": HOUR, "backfill": backfill or {}}}
    return found(posed(job, policy=policy, **more)).promise


@pytest.mark.parametrize(("start", "slot"), [(-5, 0), (0, 0), (0.9, 0), (1, 1), (2.5, 2), (3, 3)])
def test_a_promise_is_a_slot(start, slot):
    found = told(promised(start))

    assert (found.start, found.latest) == (slot, slot)
    assert found.holds == (HeldResources(0, (1,)),)
    assert found.option == 0


@pytest.mark.parametrize(("start", "latest"), [(-5, 0), (-0.5, 0), (0, 1), (1, 2), (3, 3)])
def test_a_promise_may_be_delayed_where_the_policy_says_so(start, latest):
    assert told(promised(start), backfill=AGGRESSIVE).latest == latest


def test_a_promise_after_the_horizon_says_nothing_yet():
    assert told(promised(4)) is None


def test_with_one_slot_nothing_is_promised():
    assert found(posed(promised(), slots=1)).promise is None


@pytest.mark.parametrize(
    "nodes",
    [
        [build.node("n1")],
        [build.node("n0", cordoned=True), build.node("n1")],
        [build.node("n0", drain=True), build.node("n1")],
        [build.node("n0", ready=False), build.node("n1")],
        [build.node("n0", ready=False, ready_at=hours(2.5)), build.node("n1")],
        [build.node("n0", taints=({"key": "x"},)), build.node("n1")],
        [build.node("n0", gpus=0), build.node("n1")],
    ],
)
def test_a_promise_on_a_node_that_is_lost_has_no_places(nodes):
    found = told(promised(), nodes=nodes)

    assert (found.start, found.latest, found.holds) == (2, 2, ())


def test_a_promise_on_a_node_that_comes_in_time_is_kept():
    nodes = [build.node("n0", ready=False, ready_at=hours(1.5)), build.node("n1")]

    assert told(promised(), nodes=nodes).holds == (HeldResources(1, (1,)),)


def test_a_promise_on_a_node_that_a_window_closes_has_no_places():
    windows = [{"name": "m", "kind": "maintenance", "nodes": ["n0"], "start": hours(2.5), "duration": HOUR}]

    assert told(promised(), reservations=windows).holds == ()


@pytest.mark.parametrize(
    "places",
    [
        [build.replica("n0", gpus=(1, 2))],
        [build.replica("n0", gpus=(1,), milli=500)],
        [build.replica("n0", gpus=(1,)), build.replica("n0", gpus=(2,))],
        [build.replica("n0", mig=[(0, "1g.10gb", 0)])],
    ],
)
def test_places_for_something_else_than_the_job_asks_for_are_none(places):
    assert told(promised(2, *places)).holds == ()


def test_another_gpu_of_the_node_does_for_one_that_is_lost():
    sick = [Gpu(index=1, healthy=False), Gpu(index=2, mig=())]
    nodes = [build.node("n0", gpus=4, details=sick)]

    assert told(promised(), nodes=nodes).holds == (HeldResources(0, (0,)),)
    assert told(promised(2, build.replica("n0", gpus=(7,))), nodes=nodes).holds == (HeldResources(0, (0,)),)


def test_replicas_on_one_node_get_gpus_of_their_own():
    sick = [Gpu(index=1, healthy=False), Gpu(index=2, healthy=False)]
    places = [build.replica("n0", gpus=(1,)), build.replica("n0", gpus=(2,))]
    job = build.job("w", gpus=1, replicas=2, promise=Promise(start=hours(2), replicas=places))

    assert told(job, nodes=[build.node("n0", gpus=4, details=sick)]).holds == (
        HeldResources(0, (0,)),
        HeldResources(0, (3,)),
    )
    assert told(job, nodes=[build.node("n0", gpus=3, details=sick), build.node("n1")]).holds == ()


def test_a_share_or_an_instance_on_a_gpu_that_is_lost_has_no_place():
    share = build.job(
        "w",
        milli=500,
        promise=Promise(start=hours(2), replicas=(build.replica("n0", gpus=(1,), milli=500),)),
    )
    cut = build.job(
        "w",
        mig={"1g.10gb": 1},
        promise=Promise(start=hours(2), replicas=(build.replica("n0", mig=[(0, "1g.10gb", 2)]),)),
    )
    sick = [build.node("n0", details=[Gpu(index=1, healthy=False)]), build.node("n1", mig={0: []})]
    sound = [build.node("n0", mig={0: []})]

    assert told(share, nodes=sound).holds == (HeldResources(0, (1,)),)
    assert told(share, nodes=sick).holds == ()
    assert told(cut, nodes=sound).holds == (
        HeldResources(0, slices=((0, MigInstance(profile="1g.10gb", start=2)),)),
    )
    assert told(cut, nodes=sick).holds == ()


def test_a_promise_names_the_option_of_its_model():
    nodes = [build.node("n0", model="T4", gpu_memory_mib=15360), build.node("n1")]
    job = promised(gpu_models={build.MODEL: 1, "T4": 0.5})
    problem = posed(job, nodes=nodes)

    one = found(problem)

    assert [option.gpu_model for option in one.options] == [build.MODEL, "T4"]
    assert one.promise.option == 1


def test_an_elastic_job_is_promised_its_fewest():
    places = [build.replica("n0", gpus=(number,)) for number in (0, 1)]
    job = build.job("w", gpus=1, replicas=(2, 4), promise=Promise(start=hours(1), replicas=places))

    assert told(job).holds == (HeldResources(0, (0,)), HeldResources(0, (1,)))


def test_starving_jobs_are_numbered_by_when_they_came():
    jobs = [
        waits("a", waited=timedelta(hours=3)),
        waits("b", waited=timedelta(hours=5)),
        waits("c", waited=timedelta(hours=4)),
        waits("d", waited=timedelta(hours=1)),
        promised(name="e", waited=timedelta(hours=9)),
        waits("f", waited=timedelta(hours=9), not_before=hours(20)),
    ]
    policy = {"horizon": {"slots": 4, "length": HOUR, "backfill": {"starving": 3 * HOUR, "depth": 2}}}

    problem = posed(*jobs, policy=policy)

    numbers = {name: found(problem, name).starving for name in "abcde"}
    assert numbers == {"a": 2, "b": 0, "c": 1, "d": None, "e": None}
    assert problem.depth == 2
    assert all(found(problem, name).jobs == (name,) for name in "abce")


@pytest.mark.parametrize(
    ("deadline", "due"),
    [(2.4, int(2.4 * HOUR)), (3, None), (2.9, int(2.9 * HOUR)), (-1, None), (1.9, None), (20, None)],
)
@pytest.mark.parametrize("hard", [False, True])
def test_a_deadline_is_near_if_less_than_half_the_duration_is_to_spare(deadline, due, hard):
    about = {"deadline": hours(deadline), "hard_deadline": hard, "waited": timedelta(hours=5)}
    one = found(posed(waits(takes=2, **about)))

    if hard and deadline < 2:
        assert one is None
    else:
        assert one.due == due


@pytest.mark.parametrize("slots", [1, 4])
def test_no_job_starts_that_would_be_too_late_to_be_of_use(slots):
    def may(deadline):
        return found(posed(waits(deadline=hours(deadline), hard_deadline=True), slots=slots)) is not None

    assert may(1)
    assert not may(0.9)


def test_a_model_too_slow_for_a_hard_deadline_is_left_out():
    nodes = [build.node("n0", model="T4", gpu_memory_mib=15360), build.node("n1")]
    job = waits(gpu_models={build.MODEL: 1, "T4": 0.5}, deadline=hours(1.5), hard_deadline=True)

    assert [option.gpu_model for option in found(posed(job, nodes=nodes)).options] == [build.MODEL]
    assert found(posed(job, nodes=nodes)).options[0].later == (None,) * 4


def test_jobs_of_different_length_are_one_class_if_that_makes_no_difference():
    # Both go on beyond the horizon, and so little of them is done within it that they are worth the same.
    jobs = [waits("a", takes=4000), waits("b", takes=4001), waits("c", takes=1)]

    problem = posed(*jobs)

    assert [one.jobs for one in problem.classes] == [("a", "b"), ("c",)]
    assert problem.classes[0].seconds == 4001 * HOUR


@pytest.mark.parametrize("hard", [False, True])
def test_jobs_with_other_deadlines_are_other_classes_where_that_makes_a_difference(hard):
    # All have time to spare; the last two have it whenever they start.
    jobs = [
        waits(name, deadline=hours(deadline), hard_deadline=hard)
        for name, deadline in (("a", 1.8), ("b", 2.5), ("c", 7), ("d", 8))
    ]

    assert [one.jobs for one in posed(*jobs).classes] == [("a",), ("b",), ("c", "d")]


def test_jobs_that_start_together_start_in_a_slot_that_suits_all():
    # One may start in the first and third slot, the other in the second and third.
    window = {"name": "m", "kind": "reserved", "users": ["bob"], "nodes": ["n0"]}
    windows = [window | {"start": hours(1), "duration": HOUR}]
    jobs = [waits("a", co_start="x"), waits("b", co_start="x", user="bob", not_before=hours(1))]

    problem = posed(*jobs, nodes=[build.node("n0")], reservations=windows)

    assert {found(problem, name).earliest for name in "ab"} == {2}
