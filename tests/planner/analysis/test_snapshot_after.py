"""The snapshot as if changes had landed, whatever of them it shows already."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.planner.analysis.effects import snapshot_after
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW
from tests.support.samples.all_actions import CHANGES, WORLD


@pytest.mark.slow
@pytest.mark.parametrize("shown", range(len(CHANGES) + 1))
def test_it_is_as_the_cluster_is_once_they_have_landed(tmp_path, shown):
    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as cluster:
        for number, change in enumerate(CHANGES):
            if number == shown:
                partly = cluster.snapshot()
            cluster.begin(change, f"p:{number}")
        landed = cluster.snapshot()

    after = snapshot_after(landed if shown == len(CHANGES) else partly, CHANGES)

    assert after.running_placements == landed.running_placements
    assert [without_ready_at(node) for node in after.cluster.nodes] == [
        without_ready_at(node) for node in landed.cluster.nodes
    ]
    assert after.cluster.pools == landed.cluster.pools


def test_a_started_job_has_the_kill_time_of_its_start():
    (start,) = [change for change in CHANGES if change.id == "start/urgent"]
    limited = start.model_copy(update={"kill_at": NOW + timedelta(hours=1)})

    assert snapshot_after(WORLD, [limited]).job_by_name["urgent"].running.kill_at == limited.kill_at


def without_ready_at(node):
    return node.model_copy(update={"ready_at": None})
