"""Groups of jobs on a real Slurm: two jobs start together, or neither does."""

from __future__ import annotations

import signal

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from gpuplan.planner.plan_file.plan_file import save_plan
from tests.support.builders.build import NOW
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.harness.slurm_kills import apply_in_child, killing_scontrol, kills

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

TOGETHER = "gpuplan co_start=pair"
WHOLE_NODE = ("-N1", "--gpus-per-node=h100:8")
COMMANDS = 15
"""Changing commands of two starts in two phases."""


class Between(Wrapped):
    """A cluster on which something happens before the second job is confirmed."""

    def __init__(self, inner, happen):
        super().__init__(inner)
        self.happen, self.begun = happen, []

    def begin(self, action, key):
        self.begun.append(action)
        if len(self.begun) == 2:
            self.happen(action)
        return self.inner.begin(action, key)


@pytest.fixture
def pair(slurm):
    return [slurm.submit(*WHOLE_NODE, comment=TOGETHER) for _ in range(2)]


def planned(cluster, **apply):
    world, rules = cluster.snapshot(), Policy(solvers=(), apply=apply)
    return plan_epoch(world, rules, seed=0, created_at=world.taken_at)


def applied(plan, cluster, folder, **how):
    return apply_plan(plan, cluster, AuditLog(folder / "audit.jsonl"), actor="test", now=lambda: NOW, **how)


def states(slurm, jobs):
    found = slurm.states()
    return [found[job][0] for job in jobs]


def test_a_pair_starts_on_the_planned_nodes(slurm, pair, tmp_path):
    cluster = SlurmCluster()
    plan = planned(cluster)
    assert {job.co_start for job in plan.snapshot.jobs} == {"root/pair"}

    applied(plan, cluster, tmp_path)

    assert states(slurm, pair) == ["RUNNING", "RUNNING"]
    nodes = {each.job: each.nodes for each in cluster.snapshot().running_placements}
    assert nodes == {each.job: each.nodes for each in plan.target.placements}
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")
    assert not planned(cluster).has_changes


def test_what_is_reserved_waits_held_behind_a_fence(slurm, pair):
    cluster = SlurmCluster()
    plan = planned(cluster)
    (start, _) = changes_of(plan.actions)

    with cluster.exclusively():
        assert cluster.reserve(start, key_of(plan, start)).phase is ActionPhase.RESERVED
        shown = slurm.command("scontrol", "show", "job", start.job)
        (node,) = start.after.nodes
        assert f"ReqNodeList={node} " in shown
        assert "Reason=JobHeldUser" in shown
        assert node in slurm.command("scontrol", "show", "reservation")
        foreign = slurm.command(
            *("sbatch", "--parsable", "--output=/dev/null", f"--nodelist={node}", "--wrap=sleep 100")
        )
        cluster.abort(key_of(plan, start), "a test wants it")
        shown = slurm.command("scontrol", "show", "job", start.job)
        assert "ReqNodeList=(null)" in shown
        assert slurm.states()[foreign][0] == "PENDING"
    assert states(slurm, pair) == ["PENDING", "PENDING"]


def test_a_node_that_goes_down_between_the_phases_stops_the_other_again(slurm, pair, tmp_path):
    cluster = SlurmCluster()
    plan = planned(cluster, attempts=1, group_timeout=10)

    def lose(action):
        slurm.wait_running(next(change.job for change in cluster_.begun if change is not action))
        (node,) = action.after.nodes
        slurm.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    cluster_ = Between(cluster, lose)

    with pytest.raises(PlannerError, match="its group starts together or not at all"):
        applied(plan, cluster_, tmp_path)

    assert states(slurm, pair) == ["PENDING", "PENDING"]
    for job in pair:
        shown = slurm.command("scontrol", "show", "job", job)
        assert "Priority=0" in shown
        assert "ReqNodeList=(null)" in shown
    stopped = cluster_.begun[0].job
    assert "its group starts together or not at all" in slurm.command("scontrol", "show", "job", stopped)
    assert "Restarts=1" in slurm.command("scontrol", "show", "job", stopped)
    again = planned(cluster)
    assert {change.type for change in changes_of(again.actions)} == {"start"}
    applied(again, cluster, tmp_path)
    assert states(slurm, pair) == ["RUNNING", "RUNNING"]


def test_a_job_that_cannot_be_requeued_starts_in_no_group(slurm, tmp_path):
    pair = [
        slurm.submit(*WHOLE_NODE, comment=TOGETHER),
        slurm.submit(*WHOLE_NODE, "--no-requeue", comment=TOGETHER),
    ]
    cluster = SlurmCluster()

    with pytest.raises(PlannerError, match="--no-requeue"):
        applied(planned(cluster), cluster, tmp_path)

    assert states(slurm, pair) == ["PENDING", "PENDING"]


@pytest.mark.parametrize(("which", "before"), kills(COMMANDS, apart=9))
def test_an_apply_killed_at_any_command_goes_on(slurm, pair, tmp_path, which, before):
    plan = planned(SlurmCluster())
    save_plan(plan, tmp_path / "plan.json")

    first = apply_in_child(
        tmp_path / "plan.json", tmp_path, path=str(killing_scontrol(tmp_path, which, before=before))
    )

    if first.returncode != 0:
        assert first.returncode == -signal.SIGKILL, first.stderr
        second = apply_in_child(tmp_path / "plan.json", tmp_path, "--resume")
        assert second.returncode == 0, second.stdout + second.stderr
    assert states(slurm, pair) == ["RUNNING", "RUNNING"]
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")
