"""Nodes that Slurm powers down and up, as pools."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.actions import ScaleUp
from gpuplan.models.policy.policy import Policy
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.slurm.cluster.partitions import power_saving_of
from tests.planner.sources.slurm.test_slurm import read

CONFIG = """SuspendExcNodes         = gpu[01-04]
SuspendProgram          = /bin/suspend
ResumeProgram           = /bin/resume
ResumeTimeout           = 120 sec
SuspendTime             = 30 sec
"""


def slurm(config=CONFIG, **changes):
    found = read(config=config, **changes)
    assert not list(inconsistencies(found.snapshot))
    return found.snapshot


def test_equal_nodes_that_are_powered_down_are_one_pool_with_their_names():
    cluster = slurm().cluster

    (pool,) = cluster.pools
    assert (pool.name, pool.names, pool.maximum) == ("power/cloud01", ("cloud01", "cloud02"), 2)
    assert (pool.provisioning, pool.template.gpus.model, pool.template.schedulable) == (120, "a100", True)
    assert "slurm/node" not in pool.template.labels
    assert [node.name for node in cluster.nodes] == ["gpu01", "gpu02", "gpu03", "gpu04"]


def test_a_plan_powers_up_a_node_by_its_name():
    waits = {"features": "a100", "tres_per_node": "gres:gpu:8", "tres_per_job": "", "dependency": ""}
    waits |= {"node_count": 1, "max_nodes": 1, "tasks": 1}
    snapshot = slurm(jobs=lambda each: waits if each["name"] == "after" else {})

    plan = plan_epoch(snapshot, Policy(solvers=()), seed=0, created_at=snapshot.taken_at)

    assert [each.node for each in plan.actions if isinstance(each, ScaleUp)] == ["cloud01"]


@pytest.mark.parametrize(
    ("state", "flags", "there"),
    [
        ("idle", ["CLOUD", "POWERED_DOWN"], None),
        ("idle", ["CLOUD"], (True, False)),
        ("idle", ["CLOUD", "POWERING_UP"], (False, True)),
        ("idle", ["CLOUD", "POWERING_DOWN"], (False, False)),
        ("idle", ["CLOUD", "POWERED_DOWN", "DRAIN"], (False, False)),
        ("down", ["CLOUD", "POWERED_DOWN"], (False, False)),
    ],
)
def test_states_of_nodes_with_power_saving(state, flags, there):
    changed = {"state": state, "state_flags": flags}
    cluster = slurm(nodes=lambda each: changed if each["name"] == "cloud01" else {}).cluster

    node = cluster.node_by_name.get("cloud01")
    assert (node and (node.ready, node.ready_at is not None)) == there
    assert node is None or node.pool == "power/cloud01"


def test_a_node_that_a_pending_job_names_is_a_pool_of_its_own():
    pools = slurm(
        jobs=lambda each: {"excluded_nodes": "cloud02"} if each["name"] == "after" else {}
    ).cluster.pools

    assert [(pool.names, pool.template.labels.get("slurm/node")) for pool in pools] == [
        (("cloud01",), None),
        (("cloud02",), "cloud02"),
    ]


def test_nodes_of_different_reservations_are_in_different_pools():
    text = "ReservationName=r StartTime=1 EndTime=4000000000 Nodes=cloud02 Users=root"
    cluster = slurm(reservations=text).cluster

    assert [pool.names for pool in cluster.pools] == [("cloud01",), ("cloud02",)]
    assert [each.nodes for each in cluster.reservations] == [("cloud02",)]


@pytest.mark.parametrize(
    ("old", "new"),
    [("/bin/resume", "(null)"), ("30 sec", "INFINITE"), ("30 sec", "NONE"), ("SuspendTime", "Other")],
)
def test_without_power_saving_there_are_no_pools(old, new):
    cluster = slurm(CONFIG.replace(old, new)).cluster

    assert (cluster.pools, cluster.node_by_name["cloud01"].ready) == ((), False)


def test_static_nodes_are_pools_too_unless_they_are_exempt():
    everything = CONFIG.replace("gpu[01-04]", "(null)")
    by_partition = everything + "SuspendExcParts = high\n"

    # A pending job excludes gpu01, and the others differ by racks.
    pools = [pool.names for pool in slurm(everything).cluster.pools]
    assert pools == [("cloud01", "cloud02"), ("gpu01",), ("gpu02",), ("gpu03", "gpu04")]
    assert [pool.maximum for pool in slurm(by_partition).cluster.pools] == [2]


def test_a_number_of_nodes_that_stay_up_is_noted():
    notes = []
    found = power_saving_of(CONFIG.replace("gpu[01-04]", "gpu[01-04]:2,x"), lambda *note: notes.append(note))

    assert found.exempt == {"gpu01", "gpu02", "gpu03", "gpu04", "x"}
    assert len(notes) == 1


@pytest.mark.parametrize(("partitions", "seconds"), [("", 120), ("PartitionName=low ResumeTimeout=600", 600)])
def test_the_time_to_power_up_is_that_of_the_partition_or_of_the_cluster(partitions, seconds):
    assert [pool.provisioning for pool in slurm(partitions=partitions).cluster.pools] == [seconds]
