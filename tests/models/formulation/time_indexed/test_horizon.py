from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.dependency import Dependency, DependencyKind
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.harness.solved_model import solved

HOUR = timedelta(hours=1)


def ahead(slots=3):
    """A policy of so many slots of an hour that disturbs no job."""
    return Policy(horizon=HorizonPolicy(slots=slots), disruption=Disruption(preempt=False, resize=False))


def one_node(*jobs, gpus=1, **more):
    return build.snapshot(nodes=[build.node(gpus=gpus)], jobs=jobs, **more)


def runs(name, *, gpus=(0,), minutes):
    """A job that started an hour ago and runs for so many minutes from now on."""
    return build.job(
        name,
        gpus=len(gpus),
        at=[build.replica("n0", gpus=gpus)],
        expected_duration=f"{60 + minutes}m",
    )


def starts(snapshot, policy=None):
    """Slot by the first job of each class, each class once: of a snapshot of jobs that all differ."""
    answer = solved(snapshot, policy or ahead())
    classes = answer.problem.classes
    later = {classes[index].jobs[0]: slot for index, _, slot, _ in answer.aggregate.later}
    return later | dict.fromkeys(answer.placed, 0)


def test_single_slot_has_no_rows_of_the_horizon():
    problem = build_problem(one_node(build.job(gpus=1)), Policy())

    rows = formulate(problem, Columns(problem)).rows

    assert "horizon" not in {row.family for row in rows}


def test_jobs_of_an_hour_follow_each_other_and_the_third_of_two_slots_waits():
    jobs = [build.job(name, gpus=1, expected_duration="1h", priority=p) for name, p in (("a", 3), ("b", 2))]
    third = build.job("c", gpus=1, expected_duration="1h", priority=1)

    assert starts(one_node(*jobs), ahead(2)) == {"a": 0, "b": 1}
    assert starts(one_node(*jobs, third), ahead(2)) == {"a": 0, "b": 1}
    assert starts(one_node(*jobs, third), ahead(3)) == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(("minutes", "slot"), [(59, 1), (60, 1), (61, 2), (119, 2)])
def test_running_job_frees_its_gpu_for_the_first_slot_after_its_end(minutes, slot):
    waiting = build.job("a", gpus=1, expected_duration="1h")

    assert starts(one_node(runs("r", minutes=minutes), waiting)) == {"a": slot}


def test_blocks_of_a_later_slot_are_those_of_its_nodes():
    nodes = [build.node("n0", gpus=4), build.node("n1", gpus=4)]
    holding = [
        build.job(
            f"r{index}",
            gpus=2,
            at=[build.replica(f"n{index}", gpus=(0, 1))],
            expected_duration="5h" if index else "2h",
        )
        for index in range(2)
    ]
    large = build.job("a", gpus=4, expected_duration="1h")

    # Four GPUs are free from the start, but not on one node.
    assert starts(build.snapshot(nodes=nodes, jobs=[*holding, large])) == {"a": 1}


def test_job_that_starts_now_is_in_the_way_for_as_long_as_it_stays():
    short = build.job("a", gpus=2, expected_duration="1h", priority=1)
    long = build.job("b", gpus=1, expected_duration="10h")
    snapshot = one_node(runs("r", minutes=60), short, long, gpus=2)

    # The long job would keep the other out of all three slots.
    assert starts(snapshot) == {"a": 1, "b": 2}


def test_gang_that_needs_one_rack_waits_for_one():
    nodes = [build.node(f"n{index}", gpus=4, rack=f"r{index % 2}") for index in range(4)]
    holding = build.job("r", gpus=4, at=[build.replica("n0", gpus=range(4))], expected_duration="3h")
    other = build.job("s", gpus=4, at=[build.replica("n1", gpus=range(4))], expected_duration="2h")
    gang = build.job("a", gpus=4, replicas=2, locality={"required": "rack"}, expected_duration="1h")

    assert starts(build.snapshot(nodes=nodes, jobs=[holding, other, gang])) == {"a": 1}


def test_quota_is_kept_in_every_slot():
    jobs = [
        build.job(name, gpus=1, expected_duration="1h", priority=priority)
        for name, priority in (("a", 2), ("b", 1))
    ]
    later = [job.model_copy(update={"not_before": build.NOW + HOUR}) for job in jobs]
    queues = [build.queue(nominal=1)]

    assert starts(one_node(*jobs, gpus=2, queues=queues)) == {"a": 0, "b": 1}
    assert starts(one_node(*later, gpus=2, queues=queues)) == {"a": 1, "b": 2}
    assert starts(one_node(*later, gpus=2)) == {"a": 1, "b": 1}


def test_job_starts_after_those_it_depends_on():
    first = build.job("a", gpus=1, expected_duration="90m")
    second = build.job("b", gpus=1, expected_duration="1h", priority=5, depends_on=(Dependency(job="a"),))
    eager = second.model_copy(update={"depends_on": (Dependency(job="a", kind=DependencyKind.STARTED),)})

    assert starts(one_node(first, second, gpus=2)) == {"a": 0, "b": 2}
    assert starts(one_node(first, eager, gpus=2)) == {"a": 0, "b": 1}


def test_one_of_two_dependencies_is_enough_where_the_job_says_so():
    needs = (Dependency(job="a"), Dependency(job="r"))
    either = build.job("b", gpus=1, expected_duration="1h", depends_on=needs, depends_on_at_least=1)
    first = build.job("a", gpus=1, expected_duration="3h", priority=5)
    snapshot = one_node(runs("r", minutes=60), first, either, gpus=3)

    assert starts(snapshot) == {"a": 0, "b": 1}


def test_jobs_of_a_group_start_together():
    jobs = [build.job(name, gpus=1, expected_duration="1h", co_start="pair") for name in ("a", "b")]
    snapshot = one_node(runs("r", minutes=60), *jobs, gpus=2)

    assert starts(snapshot) == {"a": 1, "b": 1}


def test_no_job_starts_that_would_run_into_a_maintenance_window():
    window = Reservation(name="m", kind="maintenance", nodes=("n0",), start=build.NOW + HOUR, duration="1h")
    long, short = (
        build.job(name, gpus=1, expected_duration=duration) for name, duration in (("a", "2h"), ("b", "1h"))
    )

    assert starts(one_node(long, short, gpus=2, reservations=(window,))) == {"a": 2, "b": 0}
