"""What jobs ask Slurm for, and how jobs share nodes."""

from __future__ import annotations

import json
import shutil

import pytest

from gpuplan.models.plan.actions import Start
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.slurm.values import number
from tests.support.harness.slurm_readings import RECORDED, job, pending, read
from tests.support.output.run_command import run_command


@pytest.mark.parametrize(
    ("record", "amounts"),
    [
        ({"tres_per_job": "gres:gpu:4", "cpus_per_tres": "gres:gpu:8"}, (4, 32_000, 32_000, 0)),
        ({"tres_per_job": "gres:gpu:2", "memory_per_tres": "gres:gpu:20480"}, (2, 1000, 40_960, 0)),
        ({"minimum_cpus_per_node": 32}, (0, 32_000, 32_000, 0)),
        ({"minimum_tmp_disk_per_node": 10_240}, (0, 1000, 1000, 10_240)),
        ({"tres_req_str": "cpu=1,mem=1000000M,node=1"}, (0, 1000, 1_000_000, 0)),
    ],
)
def test_what_a_node_gives_counts_all_options(record, amounts):
    cleared = {"tres_per_node": "", "tres_per_job": "", "tres_per_task": "", "memory_per_cpu": 1000}
    cleared["tres_req_str"] = "cpu=1,mem=1000M,node=1"

    request = job(pending("held", **(cleared | record)), "18").request

    assert (request.gpus, request.cpu_milli, request.memory_mib, request.disk_mib) == amounts


@pytest.mark.parametrize(
    ("record", "nodes"),
    [
        # Slurm 22.05 estimates two nodes for `-n 4 -c 8`, and may start it on one.
        ({"node_count": 2, "tasks": 4, "tres_req_str": "cpu=32,mem=32000M,node=1"}, 1),
        ({"node_count": 2, "tasks": 8, "tasks_per_node": 4, "tres_req_str": "cpu=8,node=1"}, 2),
        ({"node_count": 3, "max_nodes": 3, "tres_req_str": "cpu=3,node=3"}, 3),
    ],
)
def test_the_number_of_nodes_is_what_the_job_asks_for(record, nodes):
    assert job(pending("held", **record), "18").gang.minimum == nodes


def test_a_preference_is_noted_and_does_not_hold_the_job():
    found = pending("after", prefer="rack2")

    assert not job(found, "19").held
    assert "job 19: its preference for rack2 is not kept" in found.notes


RESOURCES = {
    "22.05": {
        "allocated_nodes": [
            {
                "nodename": node,
                "cpus_used": 0,
                "memory_allocated": memory,
                "sockets": {"0": {"cores": {str(core): "allocated" for core in range(cores)}}},
            }
            for node, cores, memory in (("gpu01", 62, 62_000), ("gpu02", 4, 4000))
        ]
    },
    "24.11": {
        "nodes": {
            "allocation": [
                {"name": "gpu02", "cpus": {"count": 62}, "memory": {"allocated": 62_000}},
                {"name": "gpu04", "cpus": {"count": 4}, "memory": {"allocated": 4000}},
            ]
        }
    },
}


@pytest.mark.parametrize(("version", "name"), [("22.05", "13"), ("24.11", "1")])
def test_cpus_and_memory_of_a_running_job_may_differ_by_node(version, name):
    change = {"job_resources": RESOURCES[version], "tres_alloc_str": "cpu=66,mem=66000M,node=2"}
    found = read(version, jobs=lambda each: change if str(number(each["job_id"])) == name else {})

    held = [(each.cpu_milli, each.memory_mib) for each in job(found, name).running.replicas]
    assert held == [(62_000, 62_000), (4000, 4000)]


def test_features_and_excluded_nodes_are_conditions_on_nodes():
    found = read()

    assert [each.key for each in job(found, "19").affinity] == ["slurm/feature.h100", "slurm/feature.rack1"]
    assert [(each.operator.value, each.values) for each in job(found, "18").affinity] == [
        ("NotIn", ("gpu01",))
    ]


@pytest.mark.parametrize(
    ("record", "gpus"),
    [
        ({"tres_per_node": "gres:gpu:2", "node_count": 2}, 2),
        ({"tres_per_job": "gres:gpu:6", "node_count": 2, "max_nodes": 2}, 3),
        ({"tres_per_task": "gres/gpu:1", "tasks": 8, "node_count": 2, "max_nodes": 2}, 4),
        ({"tres_per_node": "", "tres_per_job": ""}, 0),
    ],
)
def test_gpus_by_node_job_or_task(record, gpus):
    cleared = {"tres_per_node": "", "tres_per_job": "", "tres_per_task": ""}
    assert job(pending("held", **(cleared | record)), "18").request.gpus == gpus


def test_a_job_of_several_partitions_may_run_in_any_that_takes_it():
    tiers = "PartitionName=low PriorityTier=1\nPartitionName=high PriorityTier=9"
    both = {"partition": "low,high", "dependency": ""}

    def after(partitions):
        changed = read(partitions=partitions, jobs=lambda each: both if each["name"] == "after" else {})
        return job(changed, "19")

    assert not after(tiers).held
    assert after(tiers).priority == 1
    assert next((each.key, each.values) for each in after(tiers).affinity) == (
        "slurm/partitions",
        ("high,low",),
    )
    assert not after(tiers).node_selector
    only_high = after(tiers.replace("low PriorityTier=1", "low PriorityTier=1 MaxTime=1"))
    assert (only_high.priority, only_high.node_selector) == (9, {"slurm/partition.high": "true"})
    none = after(tiers.replace("PriorityTier", "State=DOWN PriorityTier"))
    assert none.hold_reason == "its partition low is down; its partition high is down"


@pytest.mark.parametrize(
    "shape", [{"shared": "none"}, {"shared": ["none"]}, "PartitionName=low OverSubscribe=EXCLUSIVE"]
)
def test_a_job_with_whole_nodes_shares_them_with_no_other(shape):
    if isinstance(shape, str):
        found = read(partitions=shape, jobs=lambda each: {"dependency": ""})
    else:
        found = pending("after", dependency="", **shape)

    after = job(found, "19")
    assert not after.held
    (avoids,) = after.anti_affinity
    assert (avoids.labels, avoids.level.value) == ({"slurm/any": "true"}, "node")
    assert all(each.labels["slurm/any"] == "true" for each in found.snapshot.jobs)


@pytest.mark.parametrize("gpus", [1, 8])
def test_no_plan_puts_a_job_beside_one_with_whole_nodes(gpus):
    """Two jobs with a GPU each fit on one node, and have to be on two."""
    wants = {"partition": "low", "dependency": "", "features": "h100", "array_task_string": "", "priority": 1}
    wants |= {
        "tres_per_node": f"gres:gpu:{gpus}",
        "tres_per_job": "",
        "node_count": 1,
        "max_nodes": 1,
        "tasks": 1,
    }
    wants |= {
        "cpus": 1,
        "minimum_cpus_per_node": 1,
        "tres_req_str": "cpu=1,mem=1000M,node=1",
        "array_job_id": 0,
    }
    wants |= {"eligible_time": 0, "excluded_nodes": "", "job_state": "PENDING", "nodes": "", "hold": False}
    names = ("after", "later")
    found = read(
        nodes=lambda each: {"state": "idle", "state_flags": []},
        jobs=lambda each: (
            wants | {"shared": "none" if each["name"] == "after" else None, "state_reason": "Priority"}
            if each["name"] in names
            else {"job_state": "COMPLETED"}
        ),
    )
    assert len(found.snapshot.jobs) == 2

    plan = plan_epoch(found.snapshot, Policy(), seed=0, created_at=found.snapshot.taken_at)

    starts = [each.after.replicas[0].node for each in plan.actions if isinstance(each, Start)]
    assert len(starts) == len(set(starts)) == 2


def test_why_a_job_is_held_is_told_in_its_explanation(tmp_path):
    shutil.copytree(RECORDED / "22.05", tmp_path / "saved")
    document = json.loads((tmp_path / "saved" / "jobs.json").read_text())
    document["jobs"] = [each | {"licenses": "matlab:2"} for each in document["jobs"]]
    (tmp_path / "saved" / "jobs.json").write_text(json.dumps(document))
    run_command(["snapshot", "--from", "slurm-files", "--folder", "saved", "-o", "s.json"], folder=tmp_path)

    done = run_command(["explain", "s.json", "18"], folder=tmp_path)

    assert "Held: held, since it asks for licenses" in done.stdout
    assert "release it" not in done.stdout


@pytest.mark.parametrize(
    "record",
    [
        {"tres_per_node": "", "tres_per_job": "gres:gpu:3", "node_count": 2, "max_nodes": 2},
        {"tres_per_socket": "gres:gpu:1"},
        {"tres_per_node": "gres:gpu:a100:1,gres:gpu:h100:1", "tres_per_job": ""},
        {"tres_per_node": "gres:gpu:h100_3g.40gb:1", "tres_per_job": ""},
        {"shared": ["user"]},
        {"features": "[rack1*2&rack2*1]"},
        {"features": "a100*1|h100", "node_count": 2, "max_nodes": 2},
        {"features": "!a100"},
        {"features": "(a100|h100"},
        {"required_nodes": "gpu01", "node_count": 2, "max_nodes": 2},
        {"max_nodes": 4},
        {"tres_per_job": "gres:gpu:16", "tres_per_node": "", "max_nodes": 0},
        {"contiguous": True},
        {"licenses": "matlab:2"},
        {"resv_name": "maintenance"},
        {"burst_buffer": "#BB 1G"},
        {"required_switches": 1},
        {"sockets_per_node": 2},
        {"tres_per_node": "gres:shard:2", "tres_per_job": ""},
        {"tres_per_task": "gres/nvme:1"},
        {"tres_per_node": "gres:nvme:1", "tres_per_job": ""},
        {"tres_per_node": "gres:link:4G", "tres_per_job": ""},
        {
            "tres_per_task": "gres:gpu:1",
            "tasks": 256,
            "tres_per_node": "",
            "tres_per_job": "",
            "max_nodes": 0,
        },
    ],
)
def test_what_cannot_be_expressed_is_held_and_noted(record):
    found = pending("after", dependency="", **record)

    assert job(found, "19").held
    assert [note for note in found.notes if note.startswith("job 19: ")]
