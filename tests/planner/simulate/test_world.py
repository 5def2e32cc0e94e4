"""The simulated cluster, which takes nothing on trust, and the world in memory become the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.plan.actions import changes_of
from gpuplan.planner.apply.promises import promises_of
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.simulate.decide import apply_plan_to_world
from gpuplan.planner.simulate.trace import Physics, Trace
from gpuplan.planner.simulate.world import advance_world, initial_world
from tests.support.strategies.random_traces import random_trace


def told(snapshot):
    """All that the two tell but of finished jobs."""
    return snapshot.taken_at, snapshot.cluster, snapshot.queues, snapshot.job_by_name


def _plain(job, now):
    """
    As the simulated cluster has it: a running job is not overdue.

    There an elastic job takes as long with few replicas as with many, so that those are left out.
    """
    ran = int((now - job.running.started_at).total_seconds()) if job.running else 0
    return job.model_copy(update={"expected_duration": ran + job.expected_duration})


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 10, 27])
def test_acting_and_waiting_leave_both_the_same(seed, tmp_path):
    trace, policy = random_trace(seed, jobs=0, outages=False)
    jobs = tuple(_plain(job, trace.start.taken_at) for job in trace.start.jobs if not job.gang.elastic)
    trace = Trace(trace.start.model_copy(update={"jobs": jobs}), physics=Physics.of(policy, 0))
    world = initial_world(trace)
    ended = []
    with SimulatedCluster.create(tmp_path / "cluster.db", trace.start) as cluster:
        for number in range(8):
            plan = plan_epoch(world.snapshot(), policy, seed=0, created_at=world.now)
            for change in changes_of(plan.actions):
                cluster.begin(change, key=f"{number} {change.id}")
            cluster.keep_promises(promises_of(plan), key=f"{number}")
            world, _ = apply_plan_to_world(world, plan)
            assert told(world.snapshot()) == told(cluster.snapshot())
            cluster.advance(900)
            passed = advance_world(world, world.now + timedelta(seconds=900))
            world = passed.world
            ended += [(each.job, each.at) for each in passed.happened]
            assert told(world.snapshot()) == told(cluster.snapshot())
        assert sorted(ended) == sorted(cluster.finished())
    assert ended
