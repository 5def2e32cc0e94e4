"""Everything happens at its own second: jobs come and end, nodes fail and return, come up, and cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuplan.models.dependency import JobOutcome, Retry
from gpuplan.models.placement import Placement, Running
from gpuplan.planner.simulate.decide import apply_placements
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.trace import FutureSubmission, Physics, Trace
from gpuplan.planner.simulate.world import REMEMBERED, advance_world, initial_world
from gpuplan.planner.sources.traces.arrivals import NodeEvent, Outage
from tests.support.builders.build import NOW, job, node, replica, snapshot

HOUR = timedelta(hours=1)


def runs(name, *gpus, on="n0", left=3600, **about):
    """A job that began an hour ago and goes on for so many seconds."""
    return job(
        name, gpus=len(gpus), at=[replica(on, gpus=gpus)], expected_duration=3600 + left, waited=HOUR, **about
    )


def world(*jobs, nodes=None, coming=(), outages=(), physics=None):
    start = snapshot(nodes=[node("n0"), node("n1")] if nodes is None else nodes, jobs=jobs)
    return initial_world(
        Trace(start, tuple(coming), tuple(outages), physics or Physics(checkpoint_every=600))
    )


def seconds(instant):
    return int((instant - NOW).total_seconds())


def told(passed):
    return [(seconds(each.at), each.kind, each.job) for each in passed.happened]


def test_running_jobs_end_at_their_own_second_and_are_gone():
    passed = advance_world(world(runs("a", 0, left=100), runs("b", 1, left=40), runs("c", 2)), NOW + HOUR / 2)

    assert told(passed) == [(40, JobEventKind.FINISHED, "b"), (100, JobEventKind.FINISHED, "a")]
    assert set(passed.world.tasks) == {"c"}
    assert [(each.name, each.outcome) for each in passed.world.finished] == [
        ("b", JobOutcome.SUCCEEDED),
        ("a", JobOutcome.SUCCEEDED),
    ]


def test_a_finished_job_teaches_how_long_the_whole_of_it_took():
    (over,) = advance_world(world(runs("a", 0, left=100)), NOW + HOUR).world.finished

    assert (over.ended_at - over.started_at) == timedelta(seconds=3700)
    # It took as long as it declared, whatever its size.
    assert (over.replicas, over.gpu_model) == (None, "H100-80GB")


def test_a_planner_learns_scaling_from_jobs_that_have_ended():
    def elastic(name, **more):
        return job(name, gpus=1, replicas=(1, 4), **more)

    def snapshot_after(*sizes):
        """The jobs of these sizes came, ran one after the other and ended; a job like them waits."""
        there = world(elastic("run-0", held=True), nodes=[node("n0")])
        for number, size in enumerate(sizes):
            there = replace(there, coming=(FutureSubmission(elastic(f"run-{number + 1}"), 3600),))
            there = replace(advance_world(there, there.now).world, coming=())
            places = tuple(replica(gpus=(gpu,)) for gpu in range(size))
            start = Placement(job=f"run-{number + 1}", replicas=places)
            there, _ = apply_placements(there, there.snapshot(), (start,))
            there = advance_world(there, there.now + 5 * HOUR).world
        return there.snapshot()

    found = snapshot_after(1, 2, 1, 2, 2, 1).job_by_name["run-0"].gang

    assert [found.speed_milli(size) for size in (1, 2, 4)] == [1000, 2000, 4000]
    assert found.scaled
    assert not snapshot_after(1, 2, 1, 2, 1).job_by_name["run-0"].gang.scaled


def test_a_job_that_is_to_be_killed_has_failed_by_then():
    given = runs("a", 0)
    killed = given.model_copy(
        update={"running": given.running.model_copy(update={"kill_at": NOW + timedelta(seconds=50)})}
    )

    passed = advance_world(world(killed), NOW + HOUR)

    assert told(passed) == [(50, JobEventKind.KILLED, "a")]
    assert passed.world.finished[0].outcome is JobOutcome.FAILED


def test_jobs_wait_from_the_second_they_are_submitted():
    late = job("late").model_copy(update={"submitted_at": NOW + timedelta(seconds=90)})
    later = job("later").model_copy(update={"submitted_at": NOW + timedelta(seconds=900)})

    passed = advance_world(
        world(coming=[FutureSubmission(late, 60), FutureSubmission(later, 60)]), NOW + timedelta(seconds=100)
    )

    assert told(passed) == [(90, JobEventKind.SUBMITTED, "late")]
    assert [each.name for each in passed.world.snapshot().jobs] == ["late"]
    assert [each.job.name for each in passed.world.coming] == ["later"]


def test_what_runs_on_a_node_that_fails_waits_again_without_what_it_had_not_saved():
    fails = Outage(1500, "n0", NodeEvent.FAILS)

    passed = advance_world(world(runs("a", 0), runs("b", 0, on="n1"), outages=[fails]), NOW + HOUR / 2)

    assert told(passed) == [(1500, JobEventKind.INTERRUPTED, "a")]
    # An hour before the start and 1500 s after it: 5100 s, of which 4800 were saved.
    assert passed.happened[0].held.lost == 300
    assert passed.world.tasks["a"].job.running is None
    assert not passed.world.cluster.node_by_name["n0"].ready
    assert passed.world.tasks["b"].job.running is not None


def test_a_node_that_returns_takes_jobs_again():
    outages = [Outage(10, "n0", NodeEvent.FAILS), Outage(20, "n0", NodeEvent.RETURNS)]

    assert advance_world(world(outages=outages), NOW + HOUR).world.cluster.node_by_name["n0"].ready


def test_a_job_that_ends_as_its_node_fails_has_ended():
    fails = Outage(100, "n0", NodeEvent.FAILS)

    assert told(advance_world(world(runs("a", 0, left=100), outages=[fails]), NOW + HOUR)) == [
        (100, JobEventKind.FINISHED, "a")
    ]


def test_nodes_come_up_when_they_are_provisioned():
    new = node("n0").model_copy(update={"ready_at": NOW + timedelta(seconds=600)})

    passed = advance_world(world(nodes=[new]), NOW + timedelta(seconds=1000))

    assert passed.world.cluster.node_by_name["n0"].ready_at is None
    assert passed.flow.usable == 8 * 1000 * 400


def test_gpus_are_counted_as_long_as_they_are_held():
    passed = advance_world(world(runs("a", 0, 1, left=100), runs("b", 2)), NOW + timedelta(seconds=300))

    assert passed.flow.held == 1000 * (2 * 100 + 300)
    assert passed.flow.usable == 1000 * 16 * 300


def test_nodes_that_are_down_cost_nothing_and_have_no_gpus():
    nodes = [node(name, price_per_hour=6.0) for name in ("n0", "n1")]
    outages = [Outage(1800, "n0", NodeEvent.FAILS)]

    flow = advance_world(world(nodes=nodes, outages=outages), NOW + HOUR).flow

    assert flow.cost == pytest.approx(6 + 3)
    assert flow.usable == 1000 * 8 * (3600 + 1800)


def test_of_what_is_over_only_the_latest_is_remembered_and_what_a_job_waits_for():
    ends = [runs(f"j{number:03d}", left=1 + number % 50) for number in range(REMEMBERED + 20)]
    needs = job("needs", depends_on=[{"job": "j000"}])

    finished = advance_world(world(*ends, needs), NOW + HOUR).world.finished

    assert len(finished) == REMEMBERED + 1
    assert finished[0].name == "j000"


def test_a_planner_sees_the_last_checkpoint_of_a_running_job_and_not_its_true_duration():
    given = FutureSubmission(job("a", gpus=1, expected_duration=100), 5000)
    opened = advance_world(world(coming=[replace(given)]), NOW).world
    task = opened.tasks["a"]

    assert task.need == 5000 * 1000
    assert task.job.expected_duration == 100
    later = advance_world(world(runs("b", 0)), NOW + timedelta(seconds=700)).world.snapshot()
    assert later.job_by_name["b"].running == Running(
        started_at=NOW - HOUR,
        last_checkpoint_at=NOW + timedelta(seconds=600),
        replicas=(replica("n0", gpus=(0,)),),
    )


# --- jobs that fail -----------------------------------------------------------------------------------------

FRAIL = Physics(checkpoint_every=600, mean_to_failure=1800, seed=3)


def failure_of(name, **about):
    """The second at which a job fails, and the world at that second, of jobs that would run for days."""
    began = world(runs(name, 0, left=10**6, **about), physics=FRAIL)
    at = began.tasks[name].begun.fails
    return seconds(at), advance_world(began, at)


def test_a_job_that_fails_is_gone_unless_it_is_tried_again():
    second, passed = failure_of("a")

    assert 0 < second < 6 * 3600
    assert told(passed) == [(second, JobEventKind.KILLED, "a")]
    assert [(each.name, each.outcome) for each in passed.world.finished] == [("a", JobOutcome.FAILED)]


def test_a_job_that_is_tried_again_waits_with_what_it_saved():
    second, passed = failure_of("a", retry=Retry(max=1, backoff="5m"))

    waits = passed.world.tasks["a"].job
    assert told(passed) == [(second, JobEventKind.INTERRUPTED, "a")]
    assert (waits.running, waits.failures, seconds(waits.failed_at)) == (None, 1, second)
    assert waits.progress.completed_milli == (3600 + second) // 600 * 600 * 1000
    assert passed.happened[0].held.lost == (3600 + second) % 600
    _, over = failure_of("a", retry=Retry(max=1), failures=1)
    assert over.world.tasks == {}


def test_failures_are_drawn_from_the_seed_and_more_replicas_fail_sooner():
    frail = [FRAIL.failure_after(job(f"j{n}"), NOW, 1) for n in range(400)]
    mean = sum(map(seconds, frail)) / len(frail)

    assert frail == [FRAIL.failure_after(job(f"j{n}"), NOW, 1) for n in range(400)]
    assert 1500 < mean < 2100
    assert FRAIL.failure_after(job("a"), NOW, 9) < FRAIL.failure_after(job("a"), NOW, 1)
    assert Physics().failure_after(job("a"), NOW, 1) is None
