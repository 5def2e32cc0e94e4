from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.precondition import Free, JobWaits
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.solution import Fallback, RejectedAnswer, SolveStatus
from gpuplan.models.plan.violation import Rule
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from tests.support.builders.build import cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted, ids
from tests.support.harness.verify_helpers import asking, broken, holding
from tests.support.output.golden import figures


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
