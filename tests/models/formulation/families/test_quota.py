from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import CPUS
from tests.support.builders import build
from tests.support.harness.family_rows import most, rows
from tests.support.harness.portfolio_answers import answer


def singles(count, queue="q"):
    return [build.job(f"{queue}{index}", gpus=1, queue=queue) for index in range(count)]


def test_queue_without_quota_has_no_row():
    assert rows(build.snapshot(jobs=singles(2)), "quota") == []


def test_nominal_quota_is_reached_and_not_exceeded():
    queues = [build.queue("q", nominal=3)]

    assert most(build.snapshot(queues=queues, jobs=singles(3)), "quota") == 3
    assert most(build.snapshot(queues=queues, jobs=singles(4)), "quota") == 3


def test_shares_count_in_thousandths():
    queues = [build.queue("q", nominal=1)]

    assert (
        most(build.snapshot(queues=queues, jobs=[build.job(name, milli=400) for name in "abc"]), "quota") == 2
    )


@pytest.mark.parametrize(
    ("borrowing", "lending", "fit"),
    [(None, None, 8), (2, None, 6), (0, None, 4), (None, 1, 5), (None, 0, 4)],
)
def test_queue_borrows_what_its_sibling_lends(borrowing, lending, fit):
    queues = [
        build.queue("root"),
        build.queue("q", parent="root", nominal=4, borrowing=borrowing),
        build.queue("other", parent="root", nominal=4, lending=lending),
    ]

    assert most(build.snapshot(queues=queues, jobs=singles(10)), "quota") == fit


def test_lender_may_use_what_it_keeps_whatever_others_borrow():
    queues = [
        build.queue("root"),
        build.queue("q", parent="root", nominal=4),
        build.queue("other", parent="root", nominal=4, lending=1),
    ]
    jobs = [*singles(10), *singles(3, "other")]

    assert most(build.snapshot(queues=queues, jobs=jobs), "quota") == 8


def test_quota_of_one_gpu_model_leaves_others_alone():
    nodes = [build.node("a", model="H100-80GB"), build.node("b", model="A100-80GB")]
    queues = [build.queue("q", **{"H100-80GB": 2})]

    assert most(build.snapshot(nodes=nodes, queues=queues, jobs=singles(16)), "quota", "gpu_capacity") == 10


def test_running_jobs_use_quota_and_may_exceed_it_without_making_the_question_impossible():
    running = build.job("r", gpus=4, at=[build.replica("n0", gpus=range(4))])

    assert most(build.snapshot(queues=[build.queue("q", nominal=5)], jobs=[running, *singles(3)])) == 1
    assert most(build.snapshot(queues=[build.queue("q", nominal=2)], jobs=[running, *singles(3)])) == 0


def test_cpu_only_jobs_use_no_gpu_quota():
    queues = [build.queue("q", nominal=0)]

    assert most(build.snapshot(queues=queues, jobs=[build.job(cpus=1)])) == 1


def overdrawn(*, held=0):
    """Parent with a limit of 2 where `other` holds 6, and `q`, which keeps its 4; `other` may be stopped."""
    at = [build.replica("n0", gpus=range(start, start + 3)) for start in (0, 3)]
    running = [
        build.job(f"r{index}", gpus=3, queue="other", at=[place], priority=1)
        for index, place in enumerate(at)
    ]
    if held:
        at = [build.replica("n1", gpus=range(held))]
        running.append(build.job("s", gpus=held, queue="q", preemptible=False, at=at))
    queues = [
        build.queue("root", nominal=2),
        build.queue("q", parent="root", nominal=4, lending=0),
        build.queue("other", parent="root"),
    ]
    jobs = [build.job(f"q{index}", gpus=1, queue="q", priority=40) for index in range(10)]
    return build.snapshot(nodes=build.cluster(3), queues=queues, jobs=[*running, *jobs])


@pytest.mark.parametrize(("held", "fit", "stopped"), [(0, 6, 2), (3, 3, 2), (4, 2, 2), (6, 0, 0)])
def test_what_spills_into_a_parent_is_new_there_until_its_limit_is_kept(held, fit, stopped):
    snapshot = overdrawn(held=held)

    solution = planned(snapshot)

    assert solution.status is SolveStatus.OPTIMAL
    assert (solution.started, solution.stopped) == (fit, stopped)


@dataclass(frozen=True)
class Planned:
    status: SolveStatus
    started: int
    stopped: int


def planned(snapshot):
    """What the whole search answers, none of it rejected."""
    solution = answer(snapshot, Policy(), seconds=30.0)
    running = {each.job for each in snapshot.running_placements}
    placed = {each.job for each in solution.target.placements}
    return Planned(solution.status, len(placed - running), len(running - placed))


def cores(count, each, queue="q", gpus=0):
    return [
        build.job(f"{queue}{index}", gpus=gpus, cpus=each, memory_gib=each, queue=queue)
        for index in range(count)
    ]


@pytest.mark.parametrize("gpus", [0, 1])
def test_cpu_cores_and_memory_are_limited_with_gpus_and_without(gpus):
    jobs = cores(6, 3, gpus=gpus)

    assert most(build.snapshot(queues=[build.queue("q", cpus=10)], jobs=jobs), "quota") == 3
    assert most(build.snapshot(queues=[build.queue("q", memory="13Gi")], jobs=jobs), "quota") == 4
    assert most(build.snapshot(queues=[build.queue("q", cpus=10, memory=6144)], jobs=jobs), "quota") == 2


@pytest.mark.parametrize(
    ("borrowing", "lending", "fit"), [(None, None, 8), (6, None, 6), (0, None, 4), (None, 3, 5), (None, 0, 4)]
)
def test_a_queue_borrows_the_cpu_cores_that_its_sibling_lends(borrowing, lending, fit):
    queues = [
        build.queue("root"),
        build.queue("q", parent="root", cpus=(12, borrowing, None)),
        build.queue("other", parent="root", cpus=(12, None, lending)),
    ]

    assert most(build.snapshot(queues=queues, jobs=cores(10, 3)), "quota") == fit


def test_no_row_is_of_cpu_cores_or_memory_without_such_a_quota():
    keys = {
        each.key[0]
        for each in rows(build.snapshot(queues=[build.queue("q", nominal=1)], jobs=cores(2, 1)), "quota")
    }

    assert keys == set()
    assert {
        each.key[0]
        for each in rows(
            build.snapshot(queues=[build.queue("q", cpus=1, nominal=1)], jobs=cores(2, 1)), "quota"
        )
    } == {CPUS}
