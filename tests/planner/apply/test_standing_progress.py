"""How far a cluster has come with a plan is told from what it shows."""

from __future__ import annotations

import pytest

from gpuplan.models.placement import Running
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.planner.analysis.effects import ClusterView, apply_action
from gpuplan.planner.apply.standing import actions_done_in, verify_remaining
from tests.support.builders.build import NOW
from tests.support.builders.solution_builders import drafted
from tests.support.samples.sample_plans import BUSY, BUSY_WORLD, NEW_NODE, busy_plan

PLAN = busy_plan()
CHANGES = changes_of(PLAN.actions)


def after(count):
    """The busy world once the first so many changes are done."""
    view = ClusterView(BUSY_WORLD)
    for change in CHANGES[:count]:
        apply_action(view, change)
    jobs = tuple(
        job.model_copy(update={"running": _running(job, view.placements.get(job.name))})
        for job in BUSY_WORLD.jobs
    )
    cluster = BUSY_WORLD.cluster.model_copy(update={"nodes": tuple(view.nodes.values())})
    return BUSY_WORLD.model_copy(update={"jobs": jobs, "cluster": cluster}).canonical()


def _running(job, placement):
    if placement is None:
        return None
    started_at = job.running.started_at if job.running else NOW
    return Running(started_at=started_at, replicas=placement.replicas)


@pytest.mark.parametrize("count", range(len(CHANGES) + 1))
def test_what_is_done_is_what_shows(count):
    done = actions_done_in(PLAN, after(count))

    assert {change.id for change in CHANGES[:count]} <= done
    # That a node is empty may show before it is confirmed.
    assert {change.type for change in CHANGES[count:] if change.id in done} <= {"drain"}


@pytest.mark.slow
@pytest.mark.parametrize("count", range(len(CHANGES) + 1))
def test_the_rest_of_a_legal_plan_is_legal_wherever_it_stopped(count):
    policy = Policy(disruption=Disruption(migrate=True))
    plan = drafted(
        BUSY_WORLD, *BUSY, stopped=["sweep-117"], added=[NEW_NODE], removed=["old-1", "old-2"], policy=policy
    )
    live = after(count)

    assert verify_remaining(plan, live, actions_done_in(plan, live)).violations == ()
