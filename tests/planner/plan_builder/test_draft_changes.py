"""Actions about running jobs, nodes and MIG layouts: what they name, expect and give up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import GpuShare, Running
from gpuplan.models.plan.plan import Base
from gpuplan.models.plan.precondition import Free, GpuLayout, JobRuns, NodeAbsent, NodeEmpty
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan, with_id
from tests.support.builders.build import NOW, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted, ids
from tests.support.samples.sample_plans import BUSY_WORLD, NEW_NODE, busy_plan

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
