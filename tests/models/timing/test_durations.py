"""Durations: declared, learnt or assumed, on slower models, and what is left of what runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.dependency import FinishedJob, JobOutcome
from gpuplan.models.job import Progress
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Policy
from gpuplan.models.timing.durations import Durations, DurationSource
from gpuplan.models.value.disruption_cost import lost_seconds
from tests.support.builders import build
from tests.support.builders.build import NOW

HOUR = 3600


def over(name="a-1", seconds=HOUR, *, queue="q", user="u", outcome=JobOutcome.SUCCEEDED):
    ended = NOW - timedelta(hours=1)
    return FinishedJob(
        name=name,
        queue=queue,
        user=user,
        outcome=outcome,
        started_at=ended - timedelta(seconds=seconds),
        ended_at=ended,
    )


def durations(*finished, jobs=(), nodes=None, **policy):
    snapshot = build.snapshot(jobs=jobs, nodes=nodes).model_copy(update={"finished": finished})
    return Durations(snapshot, Policy(**policy))


def asked(job, *finished, **policy):
    found = durations(*finished, **policy).expected(job)
    return found.seconds, found.source, found.samples


def a_job(name="a-9", user="u", **more):
    return build.job(name, user=user, **more)


def test_what_a_job_declares_comes_first():
    found = asked(a_job(expected_duration=60), *[over(seconds=5)] * 9)

    assert found == (60, DurationSource.DECLARED, 0)
    assert asked(a_job(expected_duration=0))[0] == 1


def test_the_like_of_a_job_teach_the_nearest_first():
    same_name = [over(f"a-{number}", 100) for number in range(3)]
    same_user = [over(f"other{number}", 200) for number in range(3)]
    same_queue = [over("else", 300, user="v") for _ in range(3)]
    elsewhere = [over("a-1", 400, queue="p") for _ in range(9)]

    assert asked(a_job(), *same_name, *elsewhere) == (100, DurationSource.SAME_NAME, 3)
    assert asked(a_job("b"), *same_user, *elsewhere) == (200, DurationSource.SAME_USER, 3)
    assert asked(a_job("b"), *same_queue, *elsewhere) == (300, DurationSource.SAME_QUEUE, 3)
    assert asked(a_job("b"), *elsewhere) == (HOUR, DurationSource.DEFAULT, 0)
    assert asked(a_job("b"), weights={"default_duration": 7}) == (7, DurationSource.DEFAULT, 0)


def test_too_few_teach_nothing_and_failures_never_do():
    few = [over(f"a-{number}", 100) for number in range(2)]
    failed = [over(f"a-{number}", 100, outcome=JobOutcome.FAILED) for number in range(9)]

    assert asked(a_job(), *few, *failed)[1] is DurationSource.DEFAULT
    assert asked(a_job(), *few, durations={"samples": 2})[1] is DurationSource.SAME_NAME


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=30), st.integers(1, 100))
def test_a_percentile_is_a_duration_that_so_many_stayed_within(seconds, percentile):
    finished = [over(f"a-{number}", each) for number, each in enumerate(seconds)]
    found, _, samples = asked(a_job(), *finished, durations={"percentile": percentile})

    assert samples == len(seconds)
    assert found in seconds
    within, below = sum(each <= found for each in seconds), sum(each < found for each in seconds)
    assert 100 * below < percentile * samples <= 100 * within


@pytest.mark.parametrize(("model", "seconds"), [("fast", 100), ("slow", 400), ("third", 301), (None, 100)])
def test_slower_models_take_longer(model, seconds):
    job = a_job(expected_duration=100, gpu_models={"fast": 2, "slow": 0.5, "third": 0.666})

    assert durations().seconds(job, model) == seconds


def running(*, ran, expected=HOUR, kill=None, nodes=("n0",), **more):
    places = tuple(build.replica(name, gpus=(0,)) for name in nodes)
    job = build.job("r", gpus=1, expected_duration=expected, **more)
    kill_at = None if kill is None else NOW + timedelta(seconds=kill)
    started = NOW - timedelta(seconds=ran)
    return job.model_copy(update={"running": Running(started_at=started, kill_at=kill_at, replicas=places)})


@pytest.mark.parametrize(
    ("ran", "left"),
    [(0, HOUR), (600, 3000), (3599, 1), (3600, 900), (10_000, 2500), (-60, HOUR)],
)
def test_what_runs_goes_on_for_the_rest_or_a_part_of_what_it_ran(ran, left):
    assert durations().remaining(running(ran=ran)) == left


def test_what_has_just_run_over_its_time_goes_on_for_a_minute():
    assert durations().remaining(running(ran=30, expected=10)) == 60


@pytest.mark.parametrize(("kill", "left"), [(100, 100), (5000, 3000), (-5, 1), (0, 1)])
def test_nothing_goes_on_after_it_is_killed(kill, left):
    assert durations().remaining(running(ran=600, kill=kill)) == left


def test_what_waits_has_nothing_left():
    assert durations().remaining(a_job()) == 0


def test_the_slowest_of_its_gpus_sets_the_pace():
    nodes = [build.node("n0"), build.node("n1", model="T4"), build.node("n2", gpus=0)]
    job = running(ran=600, nodes=("n0", "n1"), gpu_models={build.MODEL: 1, "T4": 0.5}, replicas=2)
    found = durations(nodes=nodes)

    assert found.gpu_model(job) == "T4"
    assert found.remaining(job) == 2 * HOUR - 600
    assert found.gpu_model(a_job(gpus=1)) is None
    lost = running(ran=600, nodes=("gone",))
    assert (found.gpu_model(lost), found.remaining(lost)) == (None, 3000)


# --- jobs that were stopped before --------------------------------------------------------------------------


def ran_before(completed, *, run=None, resumed=None, name="b", **more):
    """A job with progress, which waits, or runs again since so many seconds and works since others."""
    found = build.job(name, **{"gpus": 1, "expected_duration": 10 * HOUR} | more)
    progress = Progress.model_validate({"completed": completed})
    running = None
    if run is not None:
        began, works = (NOW - timedelta(seconds=seconds) for seconds in (run, resumed))
        running = Running(started_at=began, resumed_at=works, replicas=(build.replica(gpus=[0]),))
    return found.model_copy(update={"progress": progress, "running": running})


def test_a_job_that_was_stopped_takes_what_is_left_and_its_way_back():
    found = durations(disruption={"checkpoint": 60, "restart": 300})

    assert found.seconds(ran_before("9h30m"), None) == HOUR // 2 + 360
    assert found.seconds(ran_before("0s"), None) == 10 * HOUR + 360
    assert found.seconds(ran_before("9h30m", restart_duration=0, checkpoint_duration=5), None) == 1805
    assert found.expected(ran_before("9h30m")).seconds == 10 * HOUR


def test_progress_is_work_on_the_fastest_model():
    job = ran_before("9h30m", gpu_models={"fast": 1, "slow": 0.5})

    assert durations().seconds(job, "slow") == HOUR + 360


def test_what_is_learnt_or_assumed_is_less_by_what_was_done():
    learnt = ran_before("20m", name="a-9", user="u", expected_duration=None)

    assert durations(*[over(f"a-{number}") for number in range(5)]).seconds(learnt, None) == 2400 + 360
    assert durations().seconds(learnt, None) == 2400 + 360


def test_a_job_that_has_done_more_than_expected_goes_on_for_a_part_of_that():
    found = durations(durations={"overrun": 0.25})

    assert found.seconds(ran_before("12h"), None) == 3 * HOUR + 360
    assert found.seconds(ran_before("10s", expected_duration=10), None) == 60 + 360


@pytest.mark.parametrize(
    ("run", "resumed", "left"),
    [(0, -360, HOUR // 2 + 360), (100, -260, HOUR // 2 + 260), (1000, 640, HOUR // 2 - 640)],
)
def test_what_remains_of_a_job_that_runs_again_is_its_way_back_and_what_was_left(run, resumed, left):
    assert durations().remaining(ran_before("9h30m", run=run, resumed=resumed)) == left


@given(
    ran=st.integers(0, 9 * HOUR),
    saved=st.integers(0, 9 * HOUR) | st.none(),
    back=st.integers(0, 360),
    again=st.booleans(),
    speed=st.sampled_from((1, 0.5, 0.333)),
)
def test_what_a_stop_loses_is_what_it_makes_a_job_take_longer(ran, saved, back, again, speed):
    policy, place = Policy(), build.replica(gpus=[0])
    running = Running(
        started_at=NOW - timedelta(seconds=ran),
        resumed_at=NOW - timedelta(seconds=ran - back) if again else None,
        last_checkpoint_at=None if saved is None else NOW - timedelta(seconds=min(saved, ran)),
        replicas=(place,),
    )
    job = ran_before("1h7ms", expected_duration=40 * HOUR, gpu_models={"H100-80GB": speed, "other": 1})
    job = job.model_copy(update={"running": running, "progress": job.progress if again else None})
    found = durations(jobs=[job])

    waits = found.stopped(job)

    lost = lost_seconds(policy, job, NOW)
    assert found.seconds(waits, build.MODEL) == found.remaining(job) + lost
    assert found.restart_seconds_now(job, build.MODEL) == found.remaining(job) + lost
