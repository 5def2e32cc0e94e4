"""Promises of a plan carried over to a snapshot that does not know of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.placement import Running
from gpuplan.planner.apply.promises import carry_over_promises, promises_of, steps_of, with_promises_of
from tests.support.builders.build import NOW, job, replica, snapshot
from tests.support.samples.promise_plans import A_NOW, B_LATER, C_LATER, HOUR, PLAN, WORLD, promise, promising

FORGETFUL = WORLD.model_copy(
    update={"jobs": tuple(each.model_copy(update={"promise": None}) for each in WORLD.jobs)}
)


def promised(world):
    return {each.name: each.promise for each in world.jobs if each.promise}


def test_what_is_only_foreseen_is_no_promise():
    assert promises_of(PLAN) == {"b": B_LATER, "c": C_LATER}
    assert list(promises_of(PLAN)) == ["b", "c"]


def test_the_promises_are_the_last_step():
    assert [step.id for step in steps_of(PLAN)] == ["a1", "promises"]


def test_waiting_jobs_get_what_the_plan_promised():
    carried = carry_over_promises(FORGETFUL, PLAN)

    assert promised(carried) == {"b": B_LATER, "c": C_LATER}
    assert [each.name for each in carried.jobs] == [each.name for each in FORGETFUL.jobs]


def test_what_the_cluster_says_itself_goes_before():
    own = promise(3, replica("n1", gpus=range(8)))
    jobs = tuple(
        each.model_copy(update={"promise": own}) if each.name == "b" else each for each in FORGETFUL.jobs
    )

    assert promised(carry_over_promises(FORGETFUL.model_copy(update={"jobs": jobs}), PLAN))["b"] == own


def test_a_running_or_finished_job_is_promised_nothing():
    world = snapshot(jobs=[job("b", gpus=8, at=[replica("n0", gpus=range(8))]), job("new", gpus=8)])

    assert carry_over_promises(world, PLAN) == world


KILL = NOW + timedelta(minutes=30)
KILLING = promising(WORLD, A_NOW, kill_at=KILL)


def a_runs(*nodes, since=NOW, kill_at=None):
    replicas = tuple(replica(name, gpus=[0, 1, 2, 3]) for name in nodes)
    running = Running(started_at=since, kill_at=kill_at, replicas=replicas)
    return snapshot(jobs=[job("a", gpus=4).model_copy(update={"running": running})])


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (a_runs("n0"), KILL),
        (a_runs("n0", kill_at=NOW + HOUR), NOW + HOUR),
        # It was started from outside elsewhere, or again later.
        (a_runs("n1"), None),
        (a_runs("n0", since=KILL), None),
    ],
)
def test_a_job_that_the_plan_started_is_killed_when_it_said(world, expected):
    (found,) = carry_over_promises(world, KILLING).jobs

    assert found.running.kill_at == expected


def test_a_job_is_killed_when_it_was_said_however_many_plans_ago():
    first = carry_over_promises(a_runs("n0"), KILLING)
    second = carry_over_promises(a_runs("n0"), promising(first))
    again = carry_over_promises(a_runs("n0", since=KILL), promising(first))

    assert second.jobs[0].running.kill_at == KILL
    assert again.jobs[0].running.kill_at is None


def test_nothing_is_carried_over_from_a_plan_that_promises_nothing():
    plan = promising(FORGETFUL, A_NOW)

    assert carry_over_promises(FORGETFUL, plan) == FORGETFUL


def test_a_cluster_is_reminded_of_what_only_the_plan_was_told():
    told = carry_over_promises(a_runs("n0"), KILLING)
    base = told.model_copy(update={"jobs": (*told.jobs, *WORLD.jobs[1:])})
    forgetful = base.model_copy(update={"jobs": (*a_runs("n0").jobs, *FORGETFUL.jobs[1:])})
    again = base.model_copy(update={"jobs": a_runs("n0", since=KILL).jobs})

    assert forgetful != base
    assert with_promises_of(forgetful, base) == base
    assert with_promises_of(base, forgetful) == base
    assert with_promises_of(again, base) == again
