"""Work of one job: counted in whole units, lost and kept by checkpoints, and told as it is expected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.job import Progress
from gpuplan.models.placement import Running
from gpuplan.models.units import MILLI
from gpuplan.planner.simulate.simulated_job import SimulatedJob, run_interval
from gpuplan.planner.simulate.trace import Physics
from tests.support.builders.build import NOW, job, node, replica

NODES = {"n0": node("n0"), "n1": node("n1", model="A100-80GB")}
SPEEDS = {"H100-80GB": 1, "A100-80GB": 0.5}
PHYSICS = Physics(checkpoint_every=600, checkpoint=60, restart=120)


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def running(task, *replicas, second=0, delay=0):
    """The task, which begins on these places."""
    stretch = run_interval(task.job, replicas, NODES, begins=at(second), delay=delay)
    begun = Running(started_at=at(second), replicas=replicas)
    return replace(task, job=task.job.model_copy(update={"running": begun}), interval=stretch, ran=True)


def waiting(duration=3600, **about):
    return SimulatedJob.of(job("a", gpus=1, **about), duration)


def test_alone_on_the_fastest_model_it_takes_as_long_as_it_takes():
    assert running(waiting(), replica("n0", gpus=(0,))).ends() == at(3600)


def test_on_a_slower_model_it_takes_longer_by_the_speeds():
    slow = running(waiting(gpu_models=SPEEDS), replica("n1", gpus=(0,)))

    assert slow.ends() == at(7200)


def test_a_gang_is_as_fast_as_its_slowest_replica():
    mixed = running(
        waiting(gpu_models=SPEEDS, replicas=2), replica("n0", gpus=(0,)), replica("n1", gpus=(0,))
    )

    assert mixed.ends() == at(7200)


def test_an_elastic_job_works_in_proportion_to_its_replicas():
    half = running(waiting(replicas=(1, 4)), replica("n0", gpus=(0,)), replica("n0", gpus=(1,)))

    assert half.ends() == at(7200)


def test_it_works_only_once_it_has_come_back_from_its_checkpoint():
    assert running(waiting(), replica("n0", gpus=(0,)), delay=120).ends() == at(3720)


def test_stopped_it_keeps_what_was_saved_and_loses_the_rest():
    stopped, held = running(waiting(), replica("n0", gpus=(0,)), delay=120).stopped(at(120 + 1500), PHYSICS)

    assert stopped.kept == 1200 * MILLI
    assert (held.seconds, held.idle, held.lost) == (1620, 120, 300)
    assert stopped.job.running is None
    assert running(stopped, replica("n0", gpus=(0,)), second=9000).ends() == at(9000 + 2400)


def test_without_checkpoints_it_loses_all_its_work():
    stopped, held = running(waiting(), replica("n0", gpus=(0,))).stopped(at(1500), Physics(0))

    assert (stopped.kept, held.lost) == (0, 1500)


def test_stopped_before_it_began_it_held_and_lost_nothing():
    stopped, held = running(waiting(), replica("n0", gpus=(0,)), second=600).stopped(at(60), PHYSICS)

    assert (stopped.kept, held.seconds, held.idle, held.lost) == (0, 0, 0, 0)


@pytest.mark.parametrize("told", [None, 1200, 2400])
def test_stopped_it_tells_what_it_has_saved_and_is_expected_to_take_what_it_was(told):
    stopped, _ = running(waiting(expected_duration=told), replica("n0", gpus=(0,))).stopped(at(1500), PHYSICS)

    assert stopped.job.expected_duration == told
    assert stopped.job.progress.completed_milli == 1200 * MILLI
    assert stopped.job.last_checkpoint_at == at(1200)


def test_stopped_before_its_first_checkpoint_it_has_run_and_saved_nothing():
    stopped, _ = running(waiting(), replica("n0", gpus=(0,))).stopped(at(500), PHYSICS)

    assert stopped.job.progress == Progress(served="500s")


def test_its_last_checkpoint_is_the_last_whole_interval_of_work():
    begun = running(waiting(), replica("n0", gpus=(0,)), delay=120)

    assert begun.checkpointed_at(at(700), 600) is None
    assert begun.checkpointed_at(at(1500), 600) == at(120 + 1200)
    assert begun.checkpointed_at(at(1500), 0) is None


@given(
    duration=st.integers(1, 20_000),
    every=st.sampled_from((0, 60, 600)),
    runs=st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 4), st.booleans()), max_size=8),
)
def test_however_often_it_is_stopped_it_ends_when_all_its_work_is_done(duration, every, runs):
    """What it did, less what it lost, is its work, up to the second it was about to do."""
    physics = Physics(checkpoint_every=every, restart=90)
    task, now, worked = waiting(duration, replicas=(1, 4), gpu_models=SPEEDS), 0, 0
    for seconds, count, slow in [*runs, (10**7, 1, True)]:
        places = [replica("n1" if slow else "n0", gpus=(index,)) for index in range(count)]
        task = running(task, *places, second=now, delay=90 if task.ran else 0)
        stop = min(at(now + seconds), task.ends())
        done = stop == task.ends()
        task, held = (task, task.ended(stop)) if done else task.stopped(stop, physics)
        worked += held.interval.rate * (held.seconds - held.idle - held.lost)
        now += held.seconds
        if done:
            break

    assert task.need <= worked < task.need + held.interval.rate
