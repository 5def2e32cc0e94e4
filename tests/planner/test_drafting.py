from __future__ import annotations

from datetime import timedelta

import pytest
from answers import legal_placements
from build import NOW, cluster, job, node, placement, queue, replica, snapshot
from drafts import POLICY, drafted, solution
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import asking, broken, holding
from strategies import policies, snapshots

from planner.drafting import draft
from planner.models.cluster import Gpu, MigInstance, NodeGpus
from planner.models.placement import GpuShare
from planner.models.plan import Free, JobWaits, Keep, ReasonCode, Start, Wait
from planner.models.solution import Fallback, Rejected, Solution, SolveStatus
from planner.models.verifier import verify
from planner.models.violation import Rule
from planner.planfile import load_plan, save_plan
from planner.preconditions import LiveView


def ids(plan):
    return [action.id for action in plan.actions]


def start_of(plan, name):
    return next(action for action in plan.actions if isinstance(action, Start) and action.job == name)


def test_starts_come_first_then_what_stays_then_what_waits():
    world = snapshot(
        jobs=[
            job("a", gpus=8),
            job("b", gpus=1, at=[replica(gpus=[0])]),
            job("c", gpus=1),
            job("d", held=True),
        ]
    )

    plan = drafted(world, placement("c", replica("n1", gpus=[0])))

    assert ids(plan) == ["start/c", "keep/b", "wait/a", "wait/d"]


def test_the_most_valuable_start_comes_first_then_the_oldest():
    world = snapshot(
        jobs=[
            job("a", gpus=1),
            job("b", gpus=1, waited=timedelta(minutes=1)),
            job("c", gpus=2),
            job("d", gpus=1, priority=5),
        ]
    )
    started = [placement(name, replica(gpus=[index])) for index, name in enumerate("abd")]

    plan = drafted(world, *started, placement("c", replica("n1", gpus=[0, 1])))

    assert ids(plan) == ["start/d", "start/c", "start/b", "start/a"]


def test_a_start_counts_on_its_job_and_once_on_each_node():
    waiting = job("a", gpus=1, cpus=2.5, memory_gib=4, replicas=3)
    world = snapshot(jobs=[waiting])
    held = {"cpus": 2.5, "memory_gib": 4}

    plan = drafted(
        world,
        placement(
            "a",
            replica("n1", gpus=[0], **held),
            replica("n0", gpus=[3], **held),
            replica("n1", gpus=[1], **held),
        ),
    )

    one, two = GpuShare(index=3, milli=1000), (GpuShare(index=0, milli=1000), GpuShare(index=1, milli=1000))
    assert start_of(plan, "a").preconditions == (
        JobWaits(job="a", job_fingerprint=waiting.fingerprint()),
        Free(node="n0", gpus=(one,), cpus=2.5, memory_mib=4096),
        Free(node="n1", gpus=two, cpus=5, memory_mib=8192),
    )


def test_disk_and_countable_resources_add_up_on_a_node():
    waiting = asking(job("a", replicas=2), disk_mib=10, resources={"rdma/hca": 2})
    world = snapshot(nodes=[node(disk_mib=100, resources={"rdma/hca": 8})], jobs=[waiting])
    one = holding(replica(), disk_mib=10, resources={"rdma/hca": 2})

    plan = drafted(world, placement("a", one, one))

    assert start_of(plan, "a").preconditions[1] == Free(node="n0", disk_mib=20, resources={"rdma/hca": 4})


def test_the_reason_of_a_start_tells_what_its_places_do_not():
    nodes = [*cluster(2, rack="r2"), node("n2", rack="r3")]
    gang = job("a", gpus=8, replicas=(2, 4), gpu_models=["H100-80GB", "H200"], waited=timedelta(hours=26))
    world = snapshot(nodes=nodes, jobs=[gang, job("b", gpus=1)])

    plan = drafted(
        world,
        placement("a", replica("n0", gpus=range(8)), replica("n1", gpus=range(8))),
        placement("b", replica("n2", gpus=[0])),
    )

    reason = start_of(plan, "a").reason
    assert reason.code is ReasonCode.ADMITTED
    assert reason.text == "2 of at most 4 replicas; one rack (r2); on H100-80GB; waited 1d2h"
    # 32 GPUs, 4 full steps of waiting: (1 + 4) · 32 · 100 points, and half of that for half the replicas.
    assert reason.numbers == {"points": 8000, "waited_seconds": 26 * 3600}
    assert start_of(plan, "b").reason.text == "just submitted"


def test_node_states_are_what_the_plan_leaves():
    gpus = NodeGpus(
        model="H100-80GB",
        count=4,
        details=(
            Gpu(index=1, healthy=False),
            Gpu(index=2, mig=(MigInstance(profile="3g.40gb", start=0),)),
        ),
    )
    sliced = node(pool="p", cpus=10, memory_gib=16).model_copy(update={"gpus": gpus})
    waiting = job("a", milli=250, cpus=1.5, memory_gib=2)

    plan = drafted(
        snapshot(nodes=[sliced], jobs=[waiting]),
        placement("a", replica(gpus=[3], milli=250, cpus=1.5, memory_gib=2)),
    )

    (state,) = plan.nodes
    assert (state.name, state.pool, state.change) == ("n0", "p", "kept")
    assert state.free_gpus == (1000, 0, 0, 750)
    assert (state.free_cpu_milli, state.free_memory_mib) == (8500, 14 * 1024)
    assert [gpu.index for gpu in state.mig] == [2]


def test_the_summary_tells_how_the_answer_came_about():
    violations = broken(Rule.SHARING, "node n0 gpu 0", "1.5 GPUs", "1 GPU")
    plan = drafted(
        snapshot(jobs=[job("a", gpus=1)]),
        status=SolveStatus.FEASIBLE,
        solver="greedy",
        objective=400,
        bound=500,
        greedy_objective=400,
        phases={"solve": 1.23456},
        fallback=Fallback(tried="milp", used="greedy", reason="time limit of 1 s"),
        rejected=(Rejected(solver="milp", violations=violations),),
        not_disaggregated=2,
        terms={"completion": 400},
    )

    summary = plan.solution
    assert (summary.status, summary.solver, summary.objective, summary.bound) == (
        "FEASIBLE",
        "greedy",
        400,
        500,
    )
    assert summary.gap == 0.25
    assert summary.terms == {"completion": 400}
    assert summary.phases == {"solve": 1.235}
    assert (summary.fallback.tried, summary.fallback.used) == ("milp", "greedy")
    assert summary.rejected == ("milp: sharing: node n0 gpu 0: found 1.5 GPUs, allowed 1 GPU",)
    assert summary.not_disaggregated == 2


def test_an_unknown_bound_stays_unknown():
    assert drafted(snapshot(), bound=None).solution.gap is None


@pytest.mark.parametrize("status", [SolveStatus.INFEASIBLE, SolveStatus.NO_ANSWER, SolveStatus.FAILED])
def test_no_plan_is_drafted_from_no_answer(status):
    with pytest.raises(ValueError, match=status.value):
        drafted(snapshot(), status=status)


def test_an_answer_that_stops_a_running_job_is_refused():
    world = snapshot(jobs=[job("a", gpus=1, at=[replica(gpus=[0])])])
    answer = solution(snapshot())

    with pytest.raises(ValueError, match="running job 'a'"):
        draft(world, POLICY, answer, {}, seed=0, created_at=NOW)


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_starts_can_be_carried_out_in_their_order_and_end_in_the_stated_nodes(data):
    world = data.draw(snapshots(mig=True))
    placements = data.draw(legal_placements(world))

    plan = drafted(world, *placements[len(world.running_placements) :])

    view = LiveView.of(world)
    for action in plan.actions:
        assert [sight for sight in view.sights(action) if sight.drift] == []
        view.done(action)
    for state in plan.nodes:
        free = view.free[state.name]
        assert state.free_gpus == tuple(max(0, milli) for milli in free.gpu_milli)
        assert (state.free_cpu_milli, state.free_memory_mib) == (
            max(0, free.cpu_milli),
            max(0, free.memory_mib),
        )


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_points_of_the_starts_are_the_verified_objective(data):
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
    assert sum(points) == verification.objective
    assert points == sorted(points, reverse=True)


@settings(max_examples=50, deadline=None)
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
        answer = Solution(SolveStatus.OPTIMAL, "milp", placements, 1, 1, 1, 0.5)
        return draft(world, POLICY, answer, {"completion": 1}, seed=0, created_at=created_at)

    one = plan_of(world, placements, NOW)
    other = plan_of(mixed, placements[::-1], NOW + timedelta(hours=1))

    assert one.plan_id
    assert one.plan_id == other.plan_id
    assert one.base.snapshot == world.fingerprint()


def test_a_plan_survives_its_file(tmp_path):
    world = snapshot(
        queues=[queue(nominal=8)],
        jobs=[
            job("a", gpus=8, cpus=0.5),
            job("b", gpus=8),
            job("c", milli=500, at=[replica("n1", gpus=[0], milli=500)]),
        ],
    )
    plan = drafted(world, placement("a", replica(gpus=range(7), cpus=0.5)))

    save_plan(plan, tmp_path / "plan.json")

    assert load_plan(tmp_path / "plan.json") == plan
