"""A job with a hard deadline starts only if it is done by then."""

from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import node, placement, replica, snapshot
from tests.support.builders.time_builders import ahead, at, later, runs, waits
from tests.support.harness.verify_helpers import broken, judge

ONE = replica("n0", gpus=(0,))


def hard(hours, by, **more):
    return waits(hours=hours, deadline=at(by), hard_deadline=True, **more)


def start(job, slot=0, *, policy=None, **about):
    world = snapshot(jobs=[job], **about)
    if slot == 0:
        return judge(world, placement("a", ONE), policy=policy)
    return judge(world, policy=ahead(), planned=(later("a", slot, ONE),))


def wrong(found, allowed, subject="job a"):
    return broken(Rule.DEADLINES, subject, found, allowed)


def test_a_job_that_is_done_by_its_deadline_may_start():
    assert start(hard(2, by=2)) == ()
    assert start(hard(2, by=3), 1) == ()


def test_one_that_is_not_may_not():
    told = wrong("done at 2026-11-20T14:00:00Z", "done by its deadline, 2026-11-20T13:00:00Z")

    assert start(hard(2, by=1)) == told
    assert start(hard(2, by=1), policy=ahead()) == told
    assert start(hard(2, by=3), 2) == wrong(
        "done at 2026-11-20T16:00:00Z", "done by its deadline, 2026-11-20T15:00:00Z", "job a in slot 2"
    )


def test_a_deadline_that_is_not_hard_may_be_missed():
    assert start(waits(hours=2, deadline=at(1))) == ()
    assert start(waits(hours=2, deadline=at(1)), 5) == ()


def test_the_gpu_model_decides_how_long_it_takes():
    nodes = [node(model="A100-80GB")]
    speeds = {"H100-80GB": 1, "A100-80GB": 0.5}

    assert start(hard(1, by=2, gpu_models=speeds), nodes=nodes) == ()
    assert {each.rule for each in start(hard(1, by=1.5, gpu_models=speeds), nodes=nodes)} == {Rule.DEADLINES}


def test_a_running_job_runs_on():
    r = runs("r", ONE, hours=5, deadline=at(1), hard_deadline=True)

    assert judge(snapshot(jobs=[r]), r.placement) == ()


def test_an_end_that_no_calendar_has_is_told_all_the_same():
    ages = waits(deadline=at(1), hard_deadline=True, gpu_models={"H100-80GB": 1000, "A100-80GB": 1})
    ages = ages.model_copy(update={"expected_duration": 100 * 366 * 24 * 3600})
    (told,) = start(ages, nodes=[node(model="A100-80GB")])

    assert told.found == "done at a time after the year 9999"
