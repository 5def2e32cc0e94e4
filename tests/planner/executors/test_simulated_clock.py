"""The simulated cluster and time: which jobs finished and how, which are killed and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.dependency import FinishedJob
from gpuplan.models.plan.actions import Migrate, Preempt, Shrink
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.executors import simulated_tables
from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, job, node, placement, replica, snapshot
from tests.support.builders.plan_builders import start
from tests.support.samples.all_actions import change, runs

MINUTE = timedelta(minutes=1)


def at(minutes):
    return NOW + minutes * MINUTE


@pytest.fixture
def cluster(tmp_path):
    """Makes a cluster of these jobs."""
    made = []

    def create(*jobs, finished=(), **more):
        given = snapshot(jobs=jobs, **more).model_copy(update={"finished": tuple(finished)})
        made.append(SimulatedCluster.create(tmp_path / "c.db", given.canonical()))
        return made[-1]

    yield create
    for live in made:
        live.close()


def killed(name="k", *, kill=10, **more):
    made = job(name, gpus=1, at=[replica("n0", gpus=[0])], **more)
    return made.model_copy(update={"running": made.running.model_copy(update={"kill_at": at(kill)})})


def ended(live):
    return {each.name: (each.outcome.value, each.ended_at) for each in live.snapshot().finished}


def test_a_snapshot_lists_finished_jobs_and_what_others_learn_from_them(cluster):
    live = cluster(
        job("b", gpus=1, user="ada", at=[replica("n0", gpus=[0])], expected_duration="90m"), job("w", gpus=1)
    )
    assert live.snapshot().finished == ()

    live.advance(3600)

    assert live.snapshot().finished == (
        FinishedJob(name="b", queue="q", user="ada", started_at=at(-60), ended_at=at(30)),
    )
    assert list(inconsistencies(live.snapshot())) == []


def test_finished_jobs_of_the_snapshot_it_was_made_from_stay(cluster):
    before = FinishedJob(name="x", queue="q", outcome="failed", started_at=at(-90), ended_at=at(-80))
    live = cluster(job("b", at=[replica("n0")], expected_duration="61m"), finished=[before])
    live.advance(60)

    assert [each.name for each in live.snapshot().finished] == ["b", "x"]
    assert live.snapshot().finished[1] == before


def test_a_job_that_waited_for_its_node_began_when_that_was_ready(cluster):
    live = cluster(job("a", gpus=1, expected_duration="5m"), nodes=[node("n0", ready_at=at(10))])
    live.begin(start("a1", placement("a", replica("n0", gpus=[0]))), "p:a1")
    live.advance(3600)

    (over,) = live.snapshot().finished
    assert (over.started_at, over.ended_at) == (at(10), at(15))


@pytest.mark.parametrize(
    ("lasts", "kill", "outcome", "end"),
    [
        ("61m", 10, "succeeded", 1),
        ("70m", 10, "succeeded", 10),
        ("71m", 10, "failed", 10),
        (None, 10, "failed", 10),
        (None, -5, "failed", 0),
    ],
)
def test_a_job_ends_when_it_is_killed_unless_it_ended_before(cluster, lasts, kill, outcome, end):
    live = cluster(killed(kill=kill, expected_duration=lasts))

    live.advance(end * 60 - 1 if end else 0)
    assert bool(live.snapshot().finished) == (end == 0)
    live.advance(1)

    assert ended(live) == {"k": (outcome, at(end))}
    assert live.snapshot().jobs == ()


def test_a_job_is_started_with_the_time_of_its_end(cluster):
    live = cluster(job("a", gpus=1, expected_duration="1h"))
    live.begin(
        start("a1", placement("a", replica("n0", gpus=[0]))).model_copy(update={"kill_at": at(20)}), "p:a1"
    )
    assert live.snapshot().job_by_name["a"].running.kill_at == at(20)

    live.advance(20 * 60)

    assert ended(live) == {"a": ("failed", at(20))}


def test_no_job_is_started_that_is_to_be_killed_before(cluster):
    live = cluster(job("a", gpus=1))
    live.advance(1200)
    before = live.snapshot()
    late = start("a1", placement("a", replica("n0", gpus=[0]))).model_copy(update={"kill_at": at(20)})

    with pytest.raises(ExecutionError) as caught:
        live.begin(late, "p:a1")

    assert str(caught.value) == (
        "job a cannot start: expected a kill time after 2026-11-20T12:20:00Z, found 2026-11-20T12:20:00Z."
    )
    assert live.snapshot() == before


def test_a_preempted_job_is_not_killed(cluster):
    live = cluster(killed())
    world = live.snapshot()
    before = world.job_by_name["k"].placement
    live.begin(change(Preempt, "k", [runs(world, "k")], job="k", before=before), "p:k")

    live.advance(3600)

    assert live.snapshot().job_by_name["k"].running is None
    assert ended(live) == {}


def test_a_job_that_is_moved_or_resized_is_killed_all_the_same(cluster):
    gang = killed("g", kill=30, replicas=(1, 2))
    gang = gang.model_copy(
        update={
            "running": gang.running.model_copy(
                update={"replicas": (replica("n0", gpus=[1]), replica("n0", gpus=[2]))}
            )
        }
    )
    live = cluster(killed(), gang)
    world = live.snapshot()
    to = placement("k", replica("n1", gpus=[0]))
    one = placement("g", replica("n0", gpus=[1]))
    for kind, name, after in ((Migrate, "k", to), (Shrink, "g", one)):
        before = world.job_by_name[name].placement
        live.begin(change(kind, name, [runs(world, name)], job=name, before=before, after=after), name)

    assert live.snapshot().job_by_name["k"].running.kill_at == at(10)
    live.advance(3600)

    assert ended(live) == {"k": ("failed", at(10)), "g": ("failed", at(30))}


def test_only_the_last_finished_jobs_are_listed_and_those_that_others_depend_on(cluster, monkeypatch):
    monkeypatch.setattr(simulated_tables, "_MOST_FINISHED", 2)
    over = [
        FinishedJob(name=name, queue="q", started_at=at(-90), ended_at=at(minute))
        for name, minute in (("a", -60), ("b", -50), ("a", -40), ("c", -30), ("d", -20))
    ]
    live = cluster(job("w", depends_on=[{"job": "a"}, {"job": "d"}]), finished=over)

    assert [(each.name, each.ended_at) for each in live.snapshot().finished] == [
        ("a", at(-40)),
        ("c", at(-30)),
        ("d", at(-20)),
    ]
    assert list(inconsistencies(live.snapshot())) == []


def test_reservations_and_tariffs_stay_as_they_are(cluster):
    calendar = {
        "reservations": [{"name": "r", "nodes": ["n0"], "start": at(60), "duration": 60, "queues": ["q"]}],
        "tariffs": [{"name": "t", "cron": "0 17 * * *", "duration": 60, "price_per_gpu_hour": 0.5}],
    }
    live = cluster(**calendar)

    assert live.snapshot() == snapshot(**calendar)


def test_a_job_that_was_moved_finishes_as_one_that_ran_its_whole_duration(cluster):
    live = cluster(job("m", gpus=1, at=[replica("n0", gpus=[0])], expected_duration="90m"))
    world = live.snapshot()
    places = {"before": world.job_by_name["m"].placement, "after": placement("m", replica("n1", gpus=[0]))}
    live.begin(change(Migrate, "m", [runs(world, "m")], job="m", **places), "p:m")

    live.advance(2 * 3600)

    (over,) = live.snapshot().finished
    assert (over.started_at, over.ended_at) == (at(0), at(90))
