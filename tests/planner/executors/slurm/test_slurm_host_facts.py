"""A GPU that its host calls faulty, on a real Slurm, which does not know of it."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from gpuplan.planner.sources.nvml.merge import merge_hosts
from tests.support.builders.build import NOW, node, snapshot

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def reading(name, *, faulty):
    """What a host tells of its GPUs."""
    details = [
        Gpu(index=index, uuid=f"GPU-{index}", healthy=index not in faulty, fault="XID 79" * (index in faulty))
        for index in range(8)
    ]
    return snapshot(nodes=[node(name, model="h100", details=details)], queues=[])


def planned(cluster, **faulty):
    """A plan from the cluster as it is, with what its hosts tell."""
    hosts = [(f"{name}.json", reading(name, faulty=gpus)) for name, gpus in faulty.items()]
    world = merge_hosts(cluster.snapshot(), hosts).snapshot
    return plan_epoch(world, Policy(solvers=()), seed=0, created_at=world.taken_at)


def applied(plan, cluster, folder):
    return apply_plan(plan, cluster, AuditLog(folder / "audit.jsonl"), actor="test", now=lambda: NOW)


def test_its_job_goes_on_elsewhere_and_no_other_starts_there(slurm, tmp_path):
    first = slurm.submit("-N1", "--gpus-per-node=h100:4")
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    slurm.wait_running(first)
    sick = slurm.states()[first][1]
    (held,) = cluster.snapshot().job_by_name[first].running.replicas
    second = slurm.submit("-N1", "--gpus-per-node=h100:8")

    plan = planned(cluster, **{sick: {held.gpus[0].index}})
    outcome = applied(plan, cluster, tmp_path)

    assert sorted(outcome.done) == [f"release/{first}", f"start/{first}", f"start/{second}"]
    slurm.wait_running(first, second)
    assert sick not in {where for _, where in slurm.states().values()}
    assert not planned(cluster, **{sick: {held.gpus[0].index}}).has_changes
