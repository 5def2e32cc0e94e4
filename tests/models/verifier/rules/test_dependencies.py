"""What has to happen before a job starts: to other jobs, to its data, on the calendar, to its group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.cluster import Dataset
from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, Retry
from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import node, placement, replica, snapshot
from tests.support.builders.time_builders import ahead, at, later, runs, waits
from tests.support.harness.verify_helpers import broken, judge

ONE, TWO, THREE = (replica("n0", gpus=(index,)) for index in range(3))


def after(kind, *names, hours=1, name="a", **more):
    """A job that starts after others."""
    return waits(name, hours=hours, depends_on=[Dependency(job=each, kind=kind) for each in names], **more)


def finished(name, outcome="succeeded", ended=-1):
    return FinishedJob(name=name, queue="q", outcome=outcome, started_at=at(ended - 1), ended_at=at(ended))


def judged(jobs, slot, *others, now=(), policy=None, over=(), gone=(), **about):
    """What is wrong if a starts in a slot; running jobs stay but those that are gone."""
    world = snapshot(nodes=[node()], jobs=jobs, **about)
    world = world.model_copy(update={"finished": tuple(over)})
    held = [each for each in world.running_placements if each.job not in gone]
    held += [*now, *([] if slot else [placement("a", ONE)])]
    planned = (*others, *([later("a", slot, ONE)] if slot else []))
    return judge(world, *held, policy=policy or ahead(), planned=planned)


def wrong(found, allowed="after 1 more of them", subject="job a"):
    return broken(Rule.DEPENDENCIES, subject, found, allowed)


def earliest(jobs, *others, **more):
    """The first slot in which a may start; None if it may in none."""
    fits = [slot for slot in range(6) if judged(jobs, slot, *others, **more) == ()]
    assert fits == list(range(fits[0], 6)) if fits else True
    return fits[0] if fits else None


# --- on jobs that are over ---------------------------------------------------------------------------------


def test_what_is_over_is_over():
    for kind in DependencyKind:
        assert earliest([after(kind, "x")], over=[finished("x")]) == 0


def test_what_failed_has_started_and_ended_but_not_well():
    over = [finished("x", "failed")]

    assert earliest([after("started", "x")], over=over) == 0
    assert earliest([after("completed", "x")], over=over) == 0
    assert earliest([after("succeeded", "x")], over=over) is None
    assert earliest([after("checkpointed", "x")], over=over) is None


def test_of_several_ends_of_one_name_the_last_counts():
    well, badly = finished("x", ended=-3), finished("x", "failed", ended=-1)

    assert earliest([after("succeeded", "x")], over=[well, badly]) is None
    assert earliest([after("succeeded", "x")], over=[badly, finished("x", ended=0)]) == 0


def test_a_job_that_runs_again_is_not_over():
    assert earliest([runs("x", TWO, hours=2), after("succeeded", "x")], over=[finished("x")]) == 2


# --- on running jobs ---------------------------------------------------------------------------------------


def test_a_running_job_has_started():
    assert earliest([runs("x", TWO, hours=9), after("started", "x")]) == 0


def test_it_ends_when_it_is_expected_to():
    for kind in ("succeeded", "completed", "checkpointed"):
        assert earliest([runs("x", TWO, hours=1.5), after(kind, "x")]) == 2
    assert earliest([runs("x", TWO, hours=9), after("completed", "x")]) is None


def test_a_checkpoint_is_there_or_comes_with_the_end():
    x = runs("x", TWO, hours=3)
    saved = x.model_copy(update={"running": x.running.model_copy(update={"last_checkpoint_at": at(-0.5)})})

    assert earliest([x, after("checkpointed", "x")]) == 3
    assert earliest([saved, after("checkpointed", "x")]) == 0
    assert earliest([saved, after("completed", "x")]) == 3


def test_the_end_of_a_job_that_is_disturbed_is_not_foreseen():
    elastic = runs("x", TWO, THREE, hours=1, replicas=(1, 2))
    shrunk, moved = placement("x", TWO), placement("x", replica(gpus=(5,)), replica(gpus=(6,)))
    policy = ahead(disruption={"migrate": True})
    jobs = [elastic, after("completed", "x", priority=9)]

    assert earliest(jobs, policy=policy) == 1
    assert earliest(jobs, gone="x", policy=policy) is None
    assert earliest(jobs, gone="x", now=[shrunk], policy=policy) is None
    assert earliest(jobs, gone="x", now=[moved], policy=policy) is None


# --- on jobs that wait -------------------------------------------------------------------------------------


def test_a_waiting_job_has_not_begun():
    for kind in DependencyKind:
        assert earliest([waits("x"), after(kind, "x")]) is None


def test_a_start_counts_from_the_next_slot_on():
    jobs = [waits("x", hours=9), after("started", "x")]

    assert earliest(jobs, now=[placement("x", TWO)]) == 1
    assert earliest(jobs, later("x", 2, TWO)) == 3


def test_an_end_counts_from_the_slot_in_which_it_is_gone():
    for kind in ("succeeded", "completed", "checkpointed"):
        jobs = [waits("x", hours=1.5), after(kind, "x")]
        assert earliest(jobs, now=[placement("x", TWO)]) == 2
        assert earliest(jobs, later("x", 2, TWO)) == 4


def test_what_ends_after_the_horizon_ends_in_none_of_its_slots():
    assert earliest([waits("x", hours=9), after("completed", "x")], now=[placement("x", TWO)]) is None


def test_a_plan_of_this_instant_goes_by_what_is():
    one = ahead(1)

    assert judged([runs("x", TWO), after("started", "x")], 0, policy=one) == ()
    assert judged([waits("x"), after("started", "x")], 0, now=[placement("x", TWO)], policy=one) == wrong(
        "starts before x started"
    )


# --- several of them ---------------------------------------------------------------------------------------


def test_all_are_waited_for_unless_fewer_suffice():
    jobs = [runs("x", TWO, hours=1), runs("y", THREE, hours=3)]

    def needing(least):
        return earliest([*jobs, after("completed", "x", "y", "z", depends_on_at_least=least)], over=OVER)

    assert needing(None) == 3
    assert needing(3) == 3
    assert needing(2) == 1
    assert needing(1) == 0


OVER = [finished("z", "failed")]


def test_what_is_missing_is_told():
    jobs = [runs("x", TWO, hours=1), runs("y", THREE, hours=3), after("completed", "x", "y", "z")]

    assert judged(jobs, 0, over=OVER) == wrong(
        "starts before x completed, y completed", "after 2 more of them"
    )
    assert judged(jobs, 2, over=OVER) == wrong("starts before y completed", subject="job a in slot 2")


# --- the calendar and data ---------------------------------------------------------------------------------


def test_a_job_starts_no_earlier_than_its_user_wants():
    assert earliest([waits(not_before=at(-1))]) == 0
    assert earliest([waits(not_before=at(0))]) == 0
    assert earliest([waits(not_before=at(1))]) == 1
    assert earliest([waits(not_before=at(1.2))]) == 2
    assert judged([waits(not_before=at(1.2))], 1) == wrong(
        "starts at 2026-11-20T13:00:00Z", "from 2026-11-20T13:12:00Z on", "job a in slot 1"
    )


def test_nor_before_its_data_is_there():
    data = [
        Dataset(name="late", available_at=at(2)),
        Dataset(name="other", available_at=at(4)),
        Dataset(name="there"),
    ]

    assert earliest([waits(datasets=["there"])], datasets=data) == 0
    assert earliest([waits(datasets=["there", "late"])], datasets=data) == 2
    assert judged([waits(datasets=["late"])], 0, datasets=data) == wrong(
        "starts at 2026-11-20T12:00:00Z",
        "from 2026-11-20T14:00:00Z on, when dataset late is available",
    )


def test_a_running_job_is_not_asked():
    r = runs("r", TWO, not_before=at(9), depends_on=[Dependency(job="a")])

    assert judged([r, waits()], 0) == ()


# --- groups that start together ----------------------------------------------------------------------------


def together(*held, planned=(), more=(), policy=None):
    group = [waits("a", co_start="g"), waits("b", co_start="g"), *more]
    world = snapshot(nodes=[node()], jobs=group)
    return judge(world, *held, policy=policy or ahead(), planned=planned)


def apart(found):
    return broken(Rule.DEPENDENCIES, "co-start group g", found, "all in one slot, or none")


def test_all_start_in_one_slot_or_none():
    a, b = placement("a", ONE), placement("b", TWO)

    assert together() == ()
    assert together(a, b) == ()
    assert together(a, b, policy=ahead(1)) == ()
    assert together(planned=(later("a", 2, ONE), later("b", 2, TWO))) == ()


def test_no_one_starts_without_the_others():
    a, b = placement("a", ONE), later("b", 2, TWO)

    assert together(a) == apart("a in slot 0, b waits")
    assert together(a, policy=ahead(1)) == apart("a in slot 0, b waits")
    assert together(planned=(b,)) == apart("a waits, b in slot 2")
    assert together(a, planned=(b,)) == apart("a in slot 0, b in slot 2")


def test_a_held_job_is_none_of_the_group():
    assert (
        together(placement("a", ONE), placement("b", TWO), more=[waits("c", co_start="g", held=True)]) == ()
    )


def test_a_group_of_which_one_runs_is_over():
    r = runs("r", THREE, co_start="g", hours=2)

    assert together(r.placement, placement("a", ONE), more=[r]) == ()


def test_groups_are_told_apart():
    others = [waits("c", co_start="h"), waits("d")]

    assert together(placement("c", ONE), more=others) == ()


# --- whatever the kinds ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.sampled_from(list(DependencyKind)), min_size=1, max_size=3), st.data())
def test_a_later_start_never_misses_what_an_earlier_one_met(kinds, data):
    names = ["x", "y", "z"]
    jobs = [runs("x", TWO, hours=data.draw(st.integers(1, 4))), waits("y", hours=2), waits("z", hours=1)]
    least = data.draw(st.integers(1, len(kinds)))
    depends = [Dependency(job=name, kind=kind) for name, kind in zip(names, kinds, strict=False)]
    others = (later("y", data.draw(st.integers(1, 3)), THREE),)
    job = waits(depends_on=depends, depends_on_at_least=least)

    earliest([*jobs, job], *others)  # asserts it


# --- on a back-off -----------------------------------------------------------------------------------------


def failed(failures, ago=0, **rule):
    rule = Retry(**{"max": 99, "backoff": "30m", "max_backoff": "3h"} | rule)
    return waits("a", retry=rule, failures=failures, failed_at=at(-ago))


def test_a_job_that_failed_starts_after_its_back_off():
    assert earliest([failed(0)]) == 0
    assert earliest([failed(1)]) == 1
    assert earliest([failed(2)]) == 1
    assert earliest([failed(3)]) == 2
    assert earliest([failed(3, ago=1)]) == 1
    assert earliest([failed(3, ago=2)]) == 0
    assert earliest([failed(4)]) == earliest([failed(90)]) == 3
    assert earliest([failed(9, backoff="0s")]) == 0
    assert earliest([failed(9, backoff="3h")]) == 3
    assert earliest([failed(9, backoff="2h", max_backoff="1h")]) == 2


def test_the_back_off_is_told():
    assert judged([failed(1, backoff="20m")], 0) == wrong(
        "starts at 2026-11-20T12:00:00Z", "from 2026-11-20T12:20:00Z on, after 1 failure"
    )


def test_a_job_without_a_retry_left_starts_in_no_slot():
    assert earliest([failed(2, max=1)]) is None


def test_a_job_that_is_tried_again_already_has_no_back_off():
    tried = runs("a", ONE).model_copy(
        update={"retry": Retry(backoff="9h"), "failures": 1, "failed_at": at(-2)}
    )

    assert judged([tried], 1, gone=["a"]) == ()
