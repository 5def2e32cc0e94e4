from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus
from gpuplan.models.placement import GpuShare, Running
from gpuplan.models.plan.actions import Keep, Start, Wait
from gpuplan.models.plan.plan import Base
from gpuplan.models.plan.precondition import Free, GpuLayout, JobRuns, JobWaits, NodeAbsent, NodeEmpty
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.solution import DesiredState, Fallback, RejectedAnswer, Solution, SolveStatus
from gpuplan.models.plan.violation import Rule
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan, with_id
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders.build import NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import POLICY, drafted, target
from tests.support.harness.verify_helpers import asking, broken, holding
from tests.support.output.golden import figures
from tests.support.samples.sample_plans import BUSY, BUSY_WORLD, NEW_NODE, busy_plan
from tests.support.seeds import examples
from tests.support.strategies import instances
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.random_targets import judged, legal_target
from tests.support.strategies.snapshot_strategies import policies, snapshots


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
    assert figures(reason.text) == "2 4 r2 H100-80GB 1d2h"
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
    violations = broken(Rule.FRACTIONAL_GPU, "node n0 gpu 0", "1.5 GPUs", "1 GPU")
    plan = drafted(
        snapshot(jobs=[job("a", gpus=1)]),
        status=SolveStatus.FEASIBLE,
        solver="greedy",
        objective=400,
        bound=500,
        greedy_objective=400,
        phases={"solve": 1.23456},
        fallback=Fallback(tried="milp", used="greedy", reason="time limit of 1 s"),
        rejected=(RejectedAnswer(solver="milp", violations=violations),),
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
    assert summary.rejected == (f"milp: {violations[0]}",)
    assert summary.not_disaggregated == 2


def test_an_unknown_bound_stays_unknown():
    assert drafted(snapshot(), bound=None).solution.gap is None


@pytest.mark.parametrize("status", [SolveStatus.INFEASIBLE, SolveStatus.NO_ANSWER, SolveStatus.FAILED])
def test_no_plan_is_drafted_from_no_answer(status):
    with pytest.raises(ValueError, match=status.value):
        drafted(snapshot(), status=status)


def test_a_change_that_no_action_makes_is_refused():
    world = snapshot(jobs=[job("a", gpus=1, replicas=(1, 4), at=[replica(gpus=[0]), replica(gpus=[1])])])

    with pytest.raises(ValueError, match="running job 'a'"):
        drafted(world, placement("a", replica(gpus=[2])))


def test_a_running_job_written_in_another_order_stays():
    world = snapshot(jobs=[job("a", gpus=2, replicas=2, at=[replica(gpus=[0, 1]), replica(gpus=[2, 3])])])

    plan = drafted(world, placement("a", replica(gpus=[3, 2]), replica(gpus=[1, 0])))

    assert ids(plan) == ["keep/a"]
    assert plan.placements == world.running_placements


# --- running jobs ------------------------------------------------------------------------------------------

PLAN = busy_plan()


def action(plan, id_):
    return next(action for action in plan.actions if action.id == id_)


def test_a_preemption_names_the_jobs_that_come_and_what_is_lost():
    found = action(PLAN, "preempt/sweep-117")

    assert found.before == BUSY_WORLD.job_by_name["sweep-117"].placement
    assert found.after is None
    assert found.preconditions == (
        JobRuns(job="sweep-117", job_fingerprint=BUSY_WORLD.job_by_name["sweep-117"].fingerprint()),
    )
    assert found.reason.code is ReasonCode.MAKES_ROOM
    # 800 points of its 8 GPUs, and 8 GPU-hours with a checkpoint and a restart of 6 minutes.
    assert found.reason.numbers == {
        "makes_room_for": "train-llama",
        "ran_seconds": 3600,
        "lost_seconds": 3600,
        "recovery_seconds": 360,
        # What it lost, a quarter of it more, as it has run for as long as expected, and its way back.
        "remaining_seconds": 3600 + 900 + 360,
        "lost_gpu_hours": 8.0,
        "points": -1680,
        "disruption_points": -880,
    }


def test_work_since_the_last_checkpoint_alone_is_lost():
    saved = Running(
        started_at=NOW - timedelta(hours=3),
        last_checkpoint_at=NOW - timedelta(minutes=30),
        replicas=(replica(gpus=range(8)),),
    )
    victim = job("v", gpus=8).model_copy(update={"running": saved})
    world = snapshot(nodes=[node()], jobs=[victim, job("w", gpus=8, priority=3)])

    plan = drafted(world, placement("w", replica(gpus=range(8))), stopped=["v"])

    found = action(plan, "preempt/v").reason
    assert (found.numbers["ran_seconds"], found.numbers["lost_gpu_hours"]) == (3 * 3600, 4)
    assert "checkpoint" in found.text
    assert "without a checkpoint" not in found.text


def test_a_preempted_job_also_stands_among_those_that_wait():
    (waiting,) = [waiting for waiting in PLAN.waiting if waiting.job == "sweep-117"]

    assert waiting.reason.code is ReasonCode.PREEMPTED
    assert waiting.reason.numbers == {"makes_room_for": "train-llama"}
    counts = PLAN.metrics.jobs
    assert (counts.running, counts.started, counts.waiting, counts.preempted) == (10, 4, 2, 1)


def test_a_start_names_the_jobs_that_it_displaces():
    reason = action(PLAN, "start/distill").reason

    assert (reason.numbers["waited_seconds"], reason.numbers["takes_the_place_of"]) == (0, "sweep-118, tune")


def test_a_shrink_gives_up_replicas_for_another_job():
    found = action(PLAN, "shrink/tune")

    assert found.reason.code is ReasonCode.MAKES_ROOM
    assert found.reason.numbers == {
        "makes_room_for": "distill",
        "replicas_before": 2,
        "replicas_after": 1,
        "ran_seconds": 3600,
        "lost_seconds": 3600,
        "recovery_seconds": 360,
        "remaining_seconds": 3600 + 900 + 360,
        "lost_gpu_hours": 4.0,
        "points": -650,
        "disruption_points": -450,
    }
    assert found.interruption == 360
    assert [condition.kind for condition in found.preconditions] == ["job_runs"]


def test_a_growth_counts_on_its_new_replicas_alone():
    found = action(PLAN, "grow/embed")

    assert found.reason.code is ReasonCode.RESIZED
    assert found.reason.numbers == {
        "replicas_before": 1,
        "replicas_after": 2,
        "ran_seconds": 3600,
        "lost_seconds": 3600,
        "recovery_seconds": 360,
        "remaining_seconds": 3600 + 900 + 360,
        "lost_gpu_hours": 1.0,
        "points": -20,
        "disruption_points": -120,
    }
    assert found.interruption == 360
    assert found.preconditions[1:] == (Free(node="h100-03", gpus=(GpuShare(index=5, milli=1000),)),)


@pytest.mark.parametrize(
    ("name", "code", "because_of", "gpu_hours"),
    [
        ("sweep-118", ReasonCode.MAKES_ROOM, "distill", 4),
        ("eval", ReasonCode.MOVED, "old-1", 1),
        ("notebook", ReasonCode.DRAINED, "h100-04", 1),
    ],
)
def test_a_move_says_why(name, code, because_of, gpu_hours):
    reason = action(PLAN, f"migrate/{name}").reason

    assert reason.code is code
    assert because_of in reason.text
    assert (reason.numbers["ran_seconds"], reason.numbers["lost_gpu_hours"]) == (3600, gpu_hours)


def test_a_move_to_a_faster_gpu_model_says_so():
    nodes = [node(model="A100"), node("n1", model="H100")]
    slow = job("a", gpus=1, gpu_models={"A100": 0.25, "H100": 1}, at=[replica(gpus=[0])])

    plan = drafted(snapshot(nodes=nodes, jobs=[slow]), placement("a", replica("n1", gpus=[0])))

    reason = action(plan, "migrate/a").reason
    assert reason.code is ReasonCode.MOVED
    assert reason.text.startswith("to a faster GPU model, A100 → H100;")


def test_a_move_counts_only_on_what_it_does_not_hold_already():
    held = {"cpus": 4, "memory_gib": 8}
    mover = job("a", gpus=1, replicas=2, at=[replica(gpus=[0], **held), replica(gpus=[1], **held)], **held)
    world = snapshot(jobs=[mover])

    plan = drafted(world, placement("a", replica(gpus=[1], **held), replica(gpus=[2], **held)))

    free = Free(node="n0", gpus=(GpuShare(index=2, milli=1000),))
    assert action(plan, "migrate/a").preconditions[1:] == (free,)


# --- nodes and layouts -------------------------------------------------------------------------------------


def test_a_repartition_expects_the_layout_it_changes():
    found = action(PLAN, "repartition/mig-1/gpu0")

    idle = MigInstance(profile="3g.40gb", start=4)
    assert found.before == (MigInstance(profile="3g.40gb", start=0), idle)
    assert [(one.profile, one.start) for one in found.after] == [
        ("3g.40gb", 0),
        ("1g.10gb", 4),
        ("1g.10gb", 5),
    ]
    assert found.preconditions == (GpuLayout(node="mig-1", gpu=0, instances=found.before, idle=(idle,)),)
    assert found.reason.text == "for infer-a"
    assert found.reason.numbers == {"jobs": "infer-a", "created": 2, "destroyed": 1}


def test_a_gpu_is_switched_to_mig_mode_only_if_no_job_holds_it():
    world = snapshot(nodes=[node(gpus=2)], jobs=[job("a", mig={"3g.40gb": 1})])

    plan = drafted(world, placement("a", replica(mig=[(1, "3g.40gb", 0)])))

    found = action(plan, "repartition/n0/gpu1")
    assert found.before is None
    assert found.preconditions == (
        GpuLayout(node="n0", gpu=1, instances=None),
        Free(node="n0", gpus=(GpuShare(index=1, milli=1000),)),
    )
    assert found.reason.numbers == {"jobs": "a", "created": 1, "destroyed": 0}
    assert "MIG mode" in found.reason.text
    assert [gpu.index for gpu in plan.nodes[0].mig] == [1]


def test_a_new_node_names_the_jobs_that_need_it_and_what_it_costs():
    found = action(PLAN, "scale_up/cloud-1")

    assert (found.pool, found.node, found.after, found.provisioning) == ("cloud", "cloud-1", NEW_NODE, 600)
    assert found.preconditions == (NodeAbsent(node="cloud-1"),)
    assert found.reason.code is ReasonCode.DEMAND
    assert found.reason.numbers == {
        "price_per_hour": 40,
        "provisioning_seconds": 600,
        "jobs": "eval, render",
    }


def test_a_node_given_back_says_what_is_saved():
    found = action(PLAN, "scale_down/old-2")

    assert (found.pool, found.preconditions) == ("old", (NodeEmpty(node="old-2"),))
    assert (found.reason.code, found.reason.numbers) == (ReasonCode.IDLE, {"price_per_hour": 20})


def test_a_node_that_is_still_in_use_is_cordoned_and_drained_before_it_goes():
    steps = ["cordon/old-1", "migrate/eval", "drain/old-1", "scale_down/old-1"]

    assert [id_ for id_ in ids(PLAN) if id_ in steps] == steps
    assert [set(action(PLAN, id_).after_actions) & set(steps) for id_ in steps] == [
        set(),
        set(steps[:1]),
        set(steps[:2]),
        set(steps[:3]),
    ]
    assert "cordon/old-2" not in ids(PLAN)
    assert "drain/h100-04" in ids(PLAN)
    assert action(PLAN, "drain/h100-04").reason.numbers == {"jobs": "notebook"}


def test_nodes_are_told_as_they_will_be():
    states = {state.name: state for state in PLAN.nodes}

    assert {name: state.change.value for name, state in states.items() if state.change != "kept"} == {
        "cloud-1": "added",
        "old-1": "removed",
        "old-2": "removed",
    }
    assert states["cloud-1"].free_gpus == (0, 0, 0, 0, 0, 0, 1000, 0)
    assert states["old-2"].free_gpus == ()
    ((gpu,),) = [state.mig for state in PLAN.nodes if state.name == "mig-1"]
    assert [one.profile for one in gpu.mig] == ["3g.40gb", "1g.10gb", "1g.10gb"]


def test_the_cost_counts_new_nodes_and_those_given_back():
    assert (PLAN.metrics.hourly_cost_before, PLAN.metrics.hourly_cost) == (168.5, 168.5)


def test_a_plan_with_everything_survives_its_file(tmp_path):
    plan = with_id(PLAN.model_copy(update={"base": base_of(PLAN)}))

    save_plan(plan, tmp_path / "plan.json")

    assert load_plan(tmp_path / "plan.json") == plan


def base_of(plan):
    return Base(snapshot=plan.snapshot.fingerprint(), policy=plan.policy.fingerprint())


# --- any plan ----------------------------------------------------------------------------------------------


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
    for seed in range(200):
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
