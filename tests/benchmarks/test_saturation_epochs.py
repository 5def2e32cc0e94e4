import os
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.saturation import epochs, inventory
from benchmarks.saturation.report import Settings, report
from benchmarks.saturation.trace import Machine, Shape, read_trace, shuffled, trace_of
from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.policy.policy import Policy
from gpuplan.models.validation.checks import inconsistencies

FLEET = os.environ.get("GPUPLAN_ALIBABA_2026")
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,16000,65536,2,T4\nb,16000,65536,2,P100\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p0,1000,1024,1,1000,
p1,1000,1024,1,500,T4|T4
p2,1000,1024,2,1000,
p3,4000,1024,0,0,
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return tmp_path


def whole(gpus):
    return Shape(1000, 1000, gpus, (), 1024)


def world_of(shapes, *, gpus=(2, 2), batch=1, **policy):
    """Epochs of pods in the order given, and where each is after each epoch."""
    fleet = [Machine(f"n{number}", 16_000, 65_536, count, "T4") for number, count in enumerate(gpus)]
    trace = trace_of("x", fleet, shapes)
    arrivals = shuffled(trace, 0, ratio=0)
    seen = []

    def look(_epoch, world):
        seen.append({name: job.running for name, job in world.jobs.items()})

    found = epochs.fill(
        trace, arrivals, pods=len(shapes), batch=batch, policy=epochs.policy_of(**policy), progress=look
    )
    return found, seen


def test_a_trace_has_the_shapes_of_its_pods(folder):
    trace = read_trace(folder)

    assert trace.gpu_milli == 4000
    assert [trace.shapes[pod].total_gpu_milli for pod in trace.pods] == [1000, 500, 2000, 0]
    assert trace.shapes[trace.pods[1]].models == ("T4",)


def test_a_job_without_room_waits_on():
    found, _ = world_of([whole(2)] * 3, batch=2)

    assert [(epoch.arrived, epoch.placed, epoch.waiting) for epoch in found] == [(2, 2, 0), (3, 2, 1)]
    assert found[-1].allocated_milli == 4000
    assert found[-1].arrived_milli == 6000


def test_what_was_placed_stays():
    _, seen = world_of([whole(1)] * 4)

    for before, after in pairwise(seen):
        assert all(after[name] == running for name, running in before.items() if running)
    assert any(seen[-1].values())


def test_a_plan_that_moves_a_pod_is_carried_out_and_counted():
    world = epochs.World(
        epochs.cluster_of([Machine(name, 16_000, 65_536, 2, "T4") for name in "ab"]),
        {"pod": epochs.job_of("pod", whole(1))},
    )

    def on(node):
        return [Placement(job="pod", replicas=(Replica(node=node, gpus=(GpuShare(index=0, milli=1000),)),))]

    assert [world.carry_out(on(node)) for node in ("0000-a", "0000-a", "0001-b")] == [0, 0, 1]
    assert world.jobs["pod"].placement == on("0001-b")[0]
    assert world.allocated_milli == 1000


def test_the_objective_is_gpus():
    snapshot = epochs.World(
        epochs.cluster_of([Machine("n", 16_000, 65_536, 2, "T4")]),
        {name: epochs.job_of(name, shape) for name, shape in (("a", whole(2)), ("b", Shape(9, 0, 0, (), 1)))},
    ).snapshot()

    assert epochs.solve(snapshot, epochs.policy_of()).objective == 201


def test_the_report_names_every_policy_and_every_batch(folder):
    text = report(Settings(folder, ("default",), (1,), (2, 3), workers=1))

    assert "| Random |" in text
    assert "| Stranding + scarcity |" in text
    assert "| FGD | interleaved |" in text
    assert "| default | 2 |" in text
    assert "| default | 3 |" in text


# --- the inventory --------------------------------------------------------------------------------------


@pytest.fixture
def nodes(tmp_path):
    rows = [("A100", 8, 128)] * 20 + [("A10", 1, 128)] * 12
    lines = [f"{model},{gpus},{cpus},{number}" for number, (model, gpus, cpus) in enumerate(rows)]
    file = tmp_path / "node_info.csv"
    file.write_text("\n".join(["gpu_model,gpu_capacity_num,cpu_num,node_name", *lines]) + "\n")
    return file


def test_a_fleet_has_racks_of_sixteen_nodes_of_one_model(nodes):
    fleet = inventory.read_fleet(nodes)

    racks = {node.rack: node.gpu_model for node in fleet.nodes}
    assert racks == {"A100-000": "A100", "A100-001": "A100", "A10-000": "A10"}
    assert sum(node.gpu_count for node in fleet.nodes) == 172
    assert fleet.nodes[0].cpu_milli == 128_000


def test_the_queue_is_the_same_for_a_seed_and_asks_for_the_load(nodes):
    snapshot = inventory.case(nodes, load=1.2, seed=3)

    asked = sum(job.request.total_gpu_milli * job.gang.maximum for job in snapshot.jobs)
    assert 1.2 * 172_000 <= asked < 1.2 * 172_000 + 64_000
    assert snapshot == inventory.case(nodes, load=1.2, seed=3)
    assert not list(inconsistencies(snapshot))


def test_a_plan_of_a_made_up_queue_passes_the_verifier(nodes):
    solution = epochs.solve(inventory.case(nodes), Policy(solvers=()))

    assert solution.solver == "greedy"
    assert not solution.rejected


@pytest.mark.skipif(not FLEET, reason="GPUPLAN_ALIBABA_2026 names no file with the fleet")
def test_the_real_fleet_has_10412_gpus():
    fleet = inventory.read_fleet(Path(FLEET))

    assert (len(fleet.nodes), sum(node.gpu_count for node in fleet.nodes)) == (4278, 10412)
