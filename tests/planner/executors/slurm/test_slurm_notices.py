"""Notices on a real Slurm: recorded durably, read back, and answered by the plans that follow."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from gpuplan.models.plan.actions import changes_of
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from gpuplan.planner.executors.slurm.commands import call
from gpuplan.planner.executors.slurm.steps import announce
from gpuplan.planner.notices import Notice, NoticeKind
from gpuplan.planner.sources.slurm.cluster.reservations import NOTICE_PREFIX
from tests.support.harness.slurm_plans import WHOLE_NODE, applied, kinds, nodes_of, planned
from tests.support.output.run_command import run_command

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_a_node_that_is_lost_is_left_at_once(slurm, tmp_path):
    job = slurm.submit(*WHOLE_NODE)
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    (node,) = nodes_of(cluster)[job]
    told = ["event", "slurm", "spot-notice", "--node", node, "--at", "+120s", "-o", "plan.json"]
    done = run_command(told, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "drain" in slurm.node_states()[node]
    # The next epoch of `run` has it from the cluster alone.
    later = SlurmCluster()
    (window,) = later.snapshot().cluster.reservations
    assert (window.name, window.kind, window.nodes) == (f"spot-notice-{node}", "maintenance", (node,))
    left = window.start - later.snapshot().taken_at
    assert timedelta(seconds=60) < left <= timedelta(seconds=120)
    assert later.snapshot().cluster.node_by_name[node].drain
    applied(planned(later), later, tmp_path)
    if slurm.states()[job][0] == "PENDING":
        applied(planned(later), later, tmp_path)
    assert slurm.states()[job][0] == "RUNNING"
    assert node not in nodes_of(later)[job]
    # The plan that was made at once answers the same way.
    actions = json.loads((tmp_path / "plan.json").read_text())["actions"]
    assert {each["type"] for each in actions} & {"migrate", "preempt"}


def test_a_service_keeps_what_would_not_end_in_time_away_from_slurms_own_jobs_too(slurm, tmp_path):
    cluster = SlurmCluster()
    begins = cluster.snapshot().taken_at + timedelta(minutes=30)
    nodes = ("gpu01", "gpu02", "gpu03")
    notice = Notice(NoticeKind.MAINTENANCE, nodes, begins, begins + timedelta(hours=1))
    announce(notice)
    announce(notice)
    hour, short = (
        slurm.submit(*WHOLE_NODE, "-w", "gpu01"),
        slurm.submit(*WHOLE_NODE, "-w", "gpu01", "-t", "10"),
    )
    plan = planned(cluster)
    assert kinds(plan) == [f"start/{short}"]
    theirs = slurm.submit(*WHOLE_NODE, "-w", "gpu02", comment="")
    slurm.command("scontrol", "release", theirs)
    applied(plan, cluster, tmp_path)
    assert slurm.states()[short] == ("RUNNING", "gpu01")
    assert slurm.states()[hour][0] == slurm.states()[theirs][0] == "PENDING"
    later = Notice(NoticeKind.MAINTENANCE, nodes, begins + timedelta(hours=3), begins + timedelta(hours=4))
    announce(later)
    assert cluster.snapshot().cluster.reservations == (later.reservation,)
    assert [change.job for change in changes_of(planned(cluster).actions)] == []
    call("scontrol", "delete", f"ReservationName={NOTICE_PREFIX}{later.reservation.name}")
    assert cluster.snapshot().cluster.reservations == ()


def test_a_notice_that_a_kill_cut_off_is_answered_and_can_be_recorded_again(slurm, tmp_path, monkeypatch):
    cluster = SlurmCluster()
    notice = Notice(NoticeKind.SPOT, ("gpu01",), cluster.snapshot().taken_at + timedelta(seconds=120))

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gpuplan.planner.executors.slurm.steps.update", killed)
        with pytest.raises(KeyboardInterrupt):
            announce(notice)
    assert "drain" not in slurm.node_states()["gpu01"]
    assert cluster.snapshot().cluster.node_by_name["gpu01"].drain
    slurm.submit(*WHOLE_NODE, "-w", "gpu01")
    assert all("start" not in each for each in kinds(planned(cluster)))
    announce(notice)
    assert "drain" in slurm.node_states()["gpu01"]
