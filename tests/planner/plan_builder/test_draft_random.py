"""Any legal target becomes a plan that ends in it, in whatever order its input is given."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.plan.actions import Keep, Start, Wait
from gpuplan.models.plan.solution import DesiredState, Solution, SolveStatus
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders.build import NOW
from tests.support.builders.solution_builders import POLICY, drafted, ids, target
from tests.support.samples.sample_plans import BUSY, BUSY_WORLD, NEW_NODE
from tests.support.seeds import examples
from tests.support.strategies import instances
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.random_targets import judged, legal_target
from tests.support.strategies.snapshot_strategies import policies, snapshots


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.data())
def test_every_job_has_exactly_one_action_and_waits_for_a_reason(data):
    world = data.draw(snapshots(mig=True, locality=True))
    placements = data.draw(legal_placements(world))

    plan = drafted(world, *placements[len(world.running_placements) :], policy=data.draw(policies()))

    assert sorted(action.job for action in plan.actions) == sorted(world.job_by_name)
    assert len(set(ids(plan))) == len(plan.actions)
    assert [placement.job for placement in plan.placements] == sorted(
        placement.job for placement in placements
    )
    afters = {action.job: action.after for action in plan.actions if not isinstance(action, Wait)}
    assert afters == {placement.job: placement for placement in plan.placements}
    assert {action.job for action in plan.actions if isinstance(action, Keep)} == {
        placement.job for placement in world.running_placements
    }
    waits = {action.job: action.reason for action in plan.actions if isinstance(action, Wait)}
    assert {waiting.job: waiting.reason for waiting in plan.waiting} == waits
    counts = plan.metrics.jobs
    assert (counts.running, counts.waiting) == (len(placements), len(waits))


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.data())
def test_starts_can_be_carried_out_in_their_order_and_end_in_the_stated_nodes(data):
    world = data.draw(snapshots(mig=True))
    placements = data.draw(legal_placements(world))

    plan = drafted(world, *placements[len(world.running_placements) :])

    view = LiveView.of(world)
    for action in plan.actions:
        assert [sight for sight in view.check_preconditions(action) if sight.drift] == []
        view.done(action)
    for state in plan.nodes:
        free = view.free[state.name]
        assert state.free_gpus == tuple(max(0, milli) for milli in free.gpu_milli)
        assert (state.free_cpu_milli, state.free_memory_mib) == (
            max(0, free.cpu_milli),
            max(0, free.memory_mib),
        )


@pytest.mark.slow
@pytest.mark.parametrize("make", [instances.everything, instances.everything_mixed])
def test_any_legal_target_becomes_a_plan_that_ends_in_it(make):
    seen = Counter()
    for seed in range(examples(200)):
        world = make(seed)
        goal = legal_target(
            world.snapshot, world.policy, build_problem(world.snapshot, world.policy), random.Random(seed)
        )

        plan = planned(world, goal)

        assert list(contradictions(plan)) == []
        view = LiveView.of(world.snapshot)
        for step in plan.actions:
            assert [sight.drift for sight in view.check_preconditions(step) if sight.drift] == [], (
                seed,
                step.id,
            )
            view.done(step)
        after = cluster_after(world.snapshot, plan.target).node_by_name
        assert {name: layouts(node) for name, node in view.now.nodes.items()} == {
            name: layouts(node) for name, node in after.items()
        }
        assert view.now.placements == {placement.job: placement for placement in plan.placements}
        seen.update(step.type for step in plan.actions)
    assert {"start", "preempt", "migrate", "repartition", "scale_up"} <= seen.keys()


def planned(world, goal):
    verification = judged(world.snapshot, world.policy, goal)
    answer = Solution(SolveStatus.FEASIBLE, "milp", goal, verification.objective, None, 0, 0.5)
    return draft(world.snapshot, world.policy, answer, verification.terms, seed=0, created_at=NOW)


def layouts(node):
    gpus = node.gpus.by_index.items() if node.gpus else ()
    return {index: gpu.mig and {(one.profile, one.start) for one in gpu.mig} for index, gpu in gpus}


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(st.data())
def test_the_points_of_the_starts_are_what_they_earn(data):
    world, policy = data.draw(snapshots()), data.draw(policies())
    placements = data.draw(legal_placements(world))
    verification = verify(world, policy, placements)

    plan = drafted(
        world,
        *placements[len(world.running_placements) :],
        policy=policy,
        objective=verification.objective,
        bound=None,
        terms=verification.terms,
    )

    points = [action.reason.numbers["points"] for action in plan.actions if isinstance(action, Start)]
    assert sum(points) == verification.terms["completion"]
    assert points == sorted(points, reverse=True)


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(st.data())
def test_the_order_of_the_input_and_the_time_of_making_change_nothing(data):
    world = data.draw(snapshots())
    placements = tuple(data.draw(legal_placements(world)))
    mixed = world.model_copy(
        update={
            "jobs": tuple(data.draw(st.permutations(world.jobs))),
            "queues": tuple(data.draw(st.permutations(world.queues))),
            "cluster": world.cluster.model_copy(
                update={"nodes": tuple(data.draw(st.permutations(world.cluster.nodes)))}
            ),
        }
    )

    def plan_of(world, placements, created_at):
        answer = Solution(SolveStatus.OPTIMAL, "milp", DesiredState(placements), 1, 1, 1, 0.5)
        return draft(world, POLICY, answer, {"completion": 1}, seed=0, created_at=created_at)

    one = plan_of(world, placements, NOW)
    other = plan_of(mixed, placements[::-1], NOW + timedelta(hours=1))

    assert one.plan_id
    assert one.plan_id == other.plan_id
    assert one.base.snapshot == world.fingerprint()


def test_the_order_of_pools_nodes_and_new_nodes_changes_nothing():
    goal = target(
        BUSY_WORLD, *BUSY, stopped=["sweep-117"], added=[NEW_NODE, SECOND], removed=["old-1", "old-2"]
    )
    cluster = BUSY_WORLD.cluster
    mixed = BUSY_WORLD.model_copy(
        update={
            "cluster": cluster.model_copy(update={"nodes": cluster.nodes[::-1], "pools": cluster.pools[::-1]})
        }
    )
    turned = DesiredState(goal.placements[::-1], goal.added[::-1], goal.removed[::-1])

    plans = [
        draft(
            world,
            POLICY,
            Solution(SolveStatus.OPTIMAL, "milp", one, 1, 1, 1, 0.5),
            {"completion": 1},
            seed=0,
            created_at=NOW,
        )
        for world, one in ((BUSY_WORLD, goal), (mixed, turned))
    ]

    assert plans[0] == plans[1]


SECOND = NEW_NODE.model_copy(update={"name": "cloud-2"})
