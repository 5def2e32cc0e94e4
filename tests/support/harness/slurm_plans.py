"""Plans of a private Slurm, made and applied without solvers."""

from __future__ import annotations

from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders.build import NOW

GANG = ("-N2", "--ntasks-per-node=1", "--gpus-per-node=h100:4")
WHOLE_NODE = ("-N1", "--gpus-per-node=h100:8")
EVERYTHING = ("-N4", "--ntasks-per-node=1", "--gpus-per-node=h100:8", "-p", "high")


def planned(cluster, **policy):
    world = cluster.snapshot()
    return plan_epoch(world, Policy(**{"solvers": (), **policy}), seed=0, created_at=world.taken_at)


def kinds(plan):
    return sorted(change.id for change in changes_of(plan.actions))


def applied(plan, cluster, folder, **how):
    return apply_plan(plan, cluster, AuditLog(folder / "audit.jsonl"), actor="test", now=lambda: NOW, **how)


def nodes_of(cluster):
    """Nodes of each running job."""
    return {each.job: each.nodes for each in cluster.snapshot().running_placements}


def planned_nodes(plan):
    return {each.job: each.nodes for each in plan.target.placements}
