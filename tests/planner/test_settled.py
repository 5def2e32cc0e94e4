"""The last plan as the beginning of the next: at rest nothing moves, and of equally good plans it stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import build
import pytest

from planner.epoch import plan_epoch
from planner.models.dependency import FinishedJob
from planner.models.job import Running
from planner.models.policy import Ageing, Policy, Weights
from planner.models.solution import Ended
from planner.settled import first_target, is_settled
from planner.sources.files import load_snapshot

GREEDY = Policy(solvers=())
EXACT = Policy()
NOW = build.snapshot().taken_at


def planned(snapshot, policy, last=None):
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at, last=last)


def carried_out(plan, *, later=timedelta(0)):
    """The cluster once a plan that starts jobs is done."""
    now = plan.snapshot.taken_at
    there = {placement.job: placement.replicas for placement in plan.target.placements}
    jobs = tuple(
        job.model_copy(update={"running": Running(started_at=now, replicas=there[job.name])})
        if job.name in there and job.running is None
        else job
        for job in plan.snapshot.jobs
    )
    return plan.snapshot.model_copy(update={"jobs": jobs, "taken_at": now + later})


def contested():
    """One node of two GPUs: greedy takes the denser small job, and the large one waits."""
    jobs = [build.job("small", gpus=1, priority=2), build.job("large", gpus=2, priority=1)]
    return build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs)


def test_a_cluster_at_rest_stays_at_rest():
    first = planned(contested(), GREEDY)
    live = carried_out(first, later=timedelta(minutes=5))

    again, anew = planned(live, EXACT, first), planned(live, EXACT)

    assert not again.has_changes
    assert again.solution.ended is Ended.SETTLED
    assert again.solution.bound >= again.solution.objective
    assert "greedy" not in again.solution.phases
    assert "greedy" in anew.solution.phases


def test_that_nothing_better_is_left_is_proven_at_rest_too():
    """Of the quickstart scenario the linear relaxation alone says that 40 points might be left."""
    folder = str(Path(__file__).parents[2] / "scenarios" / "quickstart")
    first = planned(load_snapshot(folder), EXACT)

    again = planned(carried_out(first, later=timedelta(minutes=5)), EXACT, first)

    assert again.solution.ended is Ended.SETTLED
    assert again.solution.status == "OPTIMAL"
    assert again.solution.gap == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda live: live.model_copy(
            update={"finished": (FinishedJob(name="gone", queue="q", started_at=NOW, ended_at=NOW),)}
        ),
        lambda live: live.model_copy(update={"jobs": (*live.jobs, build.job("more", gpus=1))}),
        lambda live: live.model_copy(update={"jobs": live.jobs[1:]}),
        lambda live: live.model_copy(
            update={"jobs": tuple(job.model_copy(update={"running": None}) for job in live.jobs)}
        ),
        lambda live: live.model_copy(
            update={"cluster": live.cluster.model_copy(update={"nodes": build.cluster(3)})}
        ),
        lambda live: live.model_copy(
            update={"jobs": tuple(job.model_copy(update={"priority": 9}) for job in live.jobs)}
        ),
    ],
    ids=["somebody finished", "a job more", "a job less", "a job stopped", "other nodes", "another priority"],
)
def test_whatever_changes_ends_the_rest(change):
    first = planned(contested(), GREEDY)
    live = carried_out(first)

    assert is_settled(live, EXACT, first)
    assert not is_settled(change(live), EXACT, first)


def test_another_policy_ends_the_rest_but_not_another_effort():
    first = planned(contested(), GREEDY)
    live = carried_out(first)
    longer = EXACT.model_copy(update={"budget": EXACT.budget.model_copy(update={"time_limit_ms": 1})})
    other = EXACT.model_copy(update={"weights": Weights(ageing=Ageing(gain=2))})

    assert is_settled(live, longer, first)
    assert not is_settled(live, other, first)


def test_a_plan_not_carried_out_is_begun_with_and_kept_among_equals():
    """Either of two equal nodes will do; whichever was planned stays planned."""
    jobs = [build.job("a", gpus=1), build.job("b", gpus=2)]
    snapshot = build.snapshot(nodes=build.cluster(2, gpus=2), jobs=jobs)
    first = planned(snapshot, GREEDY)

    again = planned(snapshot, EXACT, first)

    assert first_target(first.snapshot, EXACT, first) == first.target
    assert again.target == first.target
    assert again.solution.solver == "last plan"


def test_a_better_plan_takes_the_place_of_the_last_one():
    snapshot = contested()
    first = planned(snapshot, GREEDY)

    again = planned(snapshot, EXACT, first)

    assert [placement.job for placement in first.target.placements] == ["small"]
    assert [placement.job for placement in again.target.placements] == ["large"]
