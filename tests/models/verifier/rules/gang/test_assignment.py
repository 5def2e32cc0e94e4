from gpuplan.models.dependency import Retry
from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge


def test_a_waiting_job_may_start():
    world = snapshot(jobs=[job("a", gpus=2)])

    assert judge(world, placement("a", replica(gpus=(0, 1)))) == ()


def test_nothing_need_start():
    assert judge(snapshot(jobs=[job("a", gpus=2)])) == ()


def test_a_job_must_be_in_the_snapshot():
    found = judge(snapshot(), placement("ghost", replica(gpus=(0,))))

    assert found == broken(
        Rule.ASSIGNMENT, "job ghost", "no such job in the snapshot", "a job of the snapshot"
    )


def test_a_job_is_placed_once():
    world = snapshot(jobs=[job("a", gpus=1)])

    found = judge(world, placement("a", replica(gpus=(0,))), placement("a", replica(gpus=(1,))))

    assert found == broken(Rule.ASSIGNMENT, "job a", "2 placements", "1 placement")


def test_a_running_job_is_placed_once_and_a_copy_takes_room():
    runs = job("a", gpus=1, at=[replica(gpus=(0,))])

    found = judge(snapshot(jobs=[runs]), runs.placement, runs.placement)

    assert found == (
        *broken(Rule.ASSIGNMENT, "job a", "2 placements", "1 placement"),
        *broken(Rule.GPU_CAPACITY, "node n0 gpu 0", "2 holders: a, a", "1 holder"),
    )


def test_a_held_job_waits():
    world = snapshot(jobs=[job("a", gpus=1, held=True)])

    found = judge(world, placement("a", replica(gpus=(0,))))

    assert found == broken(Rule.ASSIGNMENT, "job a", "a held job that starts", "a held job waits")


def test_a_held_job_that_runs_goes_on():
    runs = job("a", gpus=1, held=True, at=[replica(gpus=(0,))])

    assert judge(snapshot(jobs=[runs]), runs.placement) == ()


def failed(failures, most=2, when="on-failure", **more):
    return job("a", gpus=1, retry=Retry(when=when, max=most), failures=failures, **more)


def test_a_job_without_a_retry_left_waits():
    def start(waits):
        return judge(snapshot(jobs=[waits]), placement("a", replica(gpus=(0,))))

    def wrong(found, allowed):
        return broken(Rule.ASSIGNMENT, "job a", found, allowed)

    assert start(failed(2)) == ()
    assert start(failed(3)) == wrong("a start after 3 failures", "at most 2 retries")
    assert start(failed(1, when="never")) == wrong("a start after 1 failure", "at most 0 retries")
    assert start(failed(1, when="always", most=0)) == wrong("a start after 1 failure", "at most 0 retries")
    assert start(job("a", gpus=1, failures=9)) == ()


def test_a_job_that_runs_for_the_last_time_goes_on():
    runs = failed(9, at=[replica(gpus=(0,))])

    assert judge(snapshot(jobs=[runs]), runs.placement) == ()


def test_only_slot_0_is_planned():
    world = snapshot(jobs=[job("a", gpus=1)])

    found = judge(world, placement("a", replica(gpus=(0,))).model_copy(update={"slot": 1}))

    assert found == broken(Rule.ASSIGNMENT, "job a", "slot 1", "slot 0")
