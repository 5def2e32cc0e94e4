"""The simulated cluster, which takes nothing on trust, and the world in memory become the same."""

from __future__ import annotations

from datetime import timedelta

import pytest
from replayed import random_trace

from planner.effects import changes_of
from planner.epoch import plan_epoch
from planner.executors.simulated import SimulatedCluster
from planner.models.units import MILLI
from planner.promises import promises_of
from planner.simulation.acting import carry_out
from planner.simulation.elapsing import elapse
from planner.simulation.trace import Physics, Trace
from planner.simulation.world import opening

PLAIN = Physics(checkpoint_every=0, checkpoint=0, restart=0)
"""As the simulated cluster has it: who is stopped begins anew, at once."""


def told(snapshot):
    """All but what the two tell of checkpoints and of what is expected to be left."""
    jobs = {
        job.name: (job.running and (job.running.started_at, job.running.replicas), job.promise)
        for job in snapshot.jobs
    }
    return snapshot.taken_at, snapshot.cluster, jobs


def _plain(job, now):
    """
    As the simulated cluster has it: no model is slower than another, and who runs is not overdue.

    There an elastic job takes as long with few replicas as with many, so that those are left out.
    """
    ran = int((now - job.running.started_at).total_seconds()) if job.running else 0
    speeds = dict.fromkeys(job.gpu_models, MILLI)
    return job.model_copy(update={"expected_duration": ran + job.expected_duration, "gpu_models": speeds})


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_acting_and_waiting_leave_both_the_same(seed, tmp_path):
    trace, policy = random_trace(seed, jobs=0, outages=False, physics=PLAIN)
    jobs = tuple(_plain(job, trace.start.taken_at) for job in trace.start.jobs if not job.gang.elastic)
    trace = Trace(trace.start.model_copy(update={"jobs": jobs}), physics=PLAIN)
    policy = policy.model_copy(update={"disruption": policy.disruption.model_copy(update={"migrate": False})})
    world = opening(trace)
    ended = []
    with SimulatedCluster.create(tmp_path / "cluster.db", trace.start) as cluster:
        for number in range(8):
            plan = plan_epoch(world.snapshot(), policy, seed=0, created_at=world.now)
            for change in changes_of(plan.actions):
                cluster.perform(change, key=f"{number} {change.id}")
            cluster.keep_promises(promises_of(plan), key=f"{number}")
            world, _ = carry_out(world, plan)
            assert told(world.snapshot()) == told(cluster.snapshot())
            cluster.advance(900)
            passed = elapse(world, world.now + timedelta(seconds=900))
            world = passed.world
            ended += [(each.job, each.at) for each in passed.happened]
            assert told(world.snapshot()) == told(cluster.snapshot())
        assert sorted(ended) == sorted(cluster.finished())
    assert ended
