"""A rollback on a real Slurm: a job that a plan has stopped runs again on its node."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.actions import Cordon, Uncordon, changes_of
from gpuplan.models.plan.precondition import NodeExists
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.applied import applied_on
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from gpuplan.planner.rollback.rollback import roll_back
from tests.support.builders.build import NOW
from tests.support.oracles.rollback_oracle import assert_legal

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PART = ("-N1", "--gpus-per-node=h100:4")
EVERYTHING = ("-N4", "--ntasks-per-node=1", "--gpus-per-node=h100:8", "-p", "high")


def planned(cluster):
    world = cluster.snapshot()
    return plan_epoch(world, Policy(solvers=()), seed=0, created_at=world.taken_at)


def test_preempted_jobs_run_again_on_their_nodes(slurm, tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")

    def apply(plan):
        apply_plan(plan, cluster, log, actor="test", now=lambda: NOW)

    def running():
        return {each.job: each.nodes for each in cluster.snapshot().running_placements}

    cluster = SlurmCluster()
    victims = [slurm.submit(*PART) for _ in range(3)]
    apply(planned(cluster))
    before = running()
    assert before.keys() == set(victims)
    large = slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    apply(plan)
    assert running().keys() == {large}

    back = roll_back(plan, applied_on(plan, cluster, log), created_at=NOW)
    assert_legal(back)
    assert {change.id for change in changes_of(back.actions)} == {
        f"preempt/{large}",
        *(f"start/{name}" for name in victims),
    }
    apply(back)

    assert running() == before
    assert slurm.states()[large][0] == "PENDING"
    assert not roll_back(plan, applied_on(plan, cluster, log), created_at=NOW).has_changes


def test_a_cordon_of_an_apply_that_was_cut_off_is_lifted_and_that_of_an_operator_stays(slurm, tmp_path):
    cluster = SlurmCluster()
    because = Reason(code=ReasonCode.IDLE, text="a test wants it")
    asks = (NodeExists(node="gpu01"),)
    fields = {"node": "gpu01", "reason": because, "preconditions": asks}
    with cluster.exclusively():
        cluster.snapshot()
        cluster.begin(Cordon(id="cordon/gpu01", **fields), "one-1:cordon/gpu01")
        assert "drain" in slurm.node_states()["gpu01"].lower()
        cluster.begin(Uncordon(id="uncordon/gpu01", **fields), "two-2:uncordon/gpu01")
        assert "drain" not in slurm.node_states()["gpu01"].lower()
        slurm.command("scontrol", "update", "NodeName=gpu01", "State=DRAIN", "Reason=disk")
        cluster.begin(Uncordon(id="uncordon/gpu01", **fields), "three-3:uncordon/gpu01")
        assert "drain" in slurm.node_states()["gpu01"].lower()
