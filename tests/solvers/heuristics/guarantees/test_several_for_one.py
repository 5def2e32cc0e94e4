"""One running job makes room for several that its quota keeps out."""

from __future__ import annotations

import pytest

from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.params.placement import GreedyParams, PlacementParams
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.strategies.random_targets import judged

POLICY = build.by_value()


def snapshot_of(*, weight, priority=0, elsewhere=False):
    """One job holds all quota of a queue; GPUs are free, and two jobs of 400 points each wait."""
    queues = [build.queue("full", nominal=4), build.queue("other")]
    place = [build.replica("n0", gpus=range(4))]
    where = "other" if elsewhere else "full"
    runs = build.job("runs", gpus=4, queue=where, weight=weight, priority=priority, at=place)
    stays = build.job("stays", gpus=4, queue="full", weight=9.0, at=[build.replica("n0", gpus=range(4, 8))])
    waits = [build.job(name, gpus=2, queue="full", priority=1) for name in ("w1", "w2")]
    jobs = [runs, *([stays] if elsewhere else []), *waits]
    return build.snapshot(nodes=build.cluster(2), jobs=jobs, queues=queues)


def held_after(snapshot, tried=32):
    params = PlacementParams(greedy=GreedyParams(stops_tried=tried))
    ledger = greedy(build_problem(snapshot, POLICY), params=params)
    target = target_of(ledger, snapshot.running_placements)
    assert judged(snapshot, POLICY, target).violations == ()
    return {each.job for each in target.placements}


@pytest.mark.parametrize(("tried", "held"), [(0, {"runs"}), (1, {"w1", "w2"})])
def test_a_job_worth_more_than_each_of_two_others_leaves_for_both(tried, held):
    assert held_after(snapshot_of(weight=0.4), tried) == held


def test_a_job_worth_more_than_both_others_stays():
    assert held_after(snapshot_of(weight=1.5)) == {"runs"}


def test_a_job_that_the_others_do_not_outrank_stays():
    assert held_after(snapshot_of(weight=0.1, priority=2)) == {"runs"}


def test_a_job_that_does_not_count_in_their_quota_stays():
    assert held_after(snapshot_of(weight=0.1, elsewhere=True)) == {"runs", "stays"}
