"""Jobs of a real Slurm that their users change, that Slurm forgets, and where they really run."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Drift
from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from gpuplan.planner.executors.slurm.commands import jobs_table, placement_now
from gpuplan.planner.plan_file.plan_file import uid_of
from tests.support.harness.slurm_plans import EVERYTHING, applied, kinds, planned

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_an_earliest_start_that_the_user_sets_after_a_preemption_is_kept(slurm, tmp_path):
    victim = slurm.submit(*EVERYTHING, "-p", "low")
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    large = slurm.submit(*EVERYTHING)
    applied(planned(cluster), cluster, tmp_path)
    slurm.command("scancel", large)
    slurm.wait_until(lambda: large not in slurm.states(), f"{large} is over")
    assert kinds(planned(cluster)) == [f"start/{victim}"]
    slurm.command("scontrol", "update", f"JobId={victim}", "StartTime=now+2hours")
    job = cluster.snapshot().job_by_name[victim]
    assert 7_000 < (job.not_before - cluster.snapshot().taken_at).total_seconds() < 7_300
    assert kinds(planned(cluster)) == []


def test_a_stopped_job_that_slurm_has_forgotten_holds_nothing(slurm, tmp_path):
    """With a short MinJobAge it may be cancelled and forgotten before it is looked at again."""
    slurm.configure("MinJobAge=2")
    victim = slurm.submit(*EVERYTHING, "-p", "low")
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    large = slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    key = f"{uid_of(plan)}:preempt/{victim}"
    look = cluster.observe

    def late(keys):
        if cluster._tried[key] and victim in slurm.states():
            slurm.command("scancel", victim)
            gone = ("scontrol", "show", "job", victim)
            slurm.wait_until(lambda: not slurm.command(*gone, check=False), "Slurm forgets it")
        return look(keys)

    cluster.observe = late
    assert sorted(applied(plan, cluster, tmp_path).done) == kinds(plan)
    assert slurm.states()[large][0] == "RUNNING"
    # Another process has not stopped it, and says no more than that it is gone.
    assert SlurmCluster().observe([key])[key].phase is ActionPhase.GONE


def test_where_a_job_really_runs_is_told_and_logged(slurm, tmp_path):
    other = slurm.submit("-N1", "-w", "gpu01", "--gpus-per-node=h100:2", comment="")
    slurm.command("scontrol", "release", other)
    slurm.wait_running(other)
    ours = slurm.submit("-N1", "-w", "gpu01", "--gpus-per-node=h100:3", "-c4")
    cluster = SlurmCluster()
    plan = planned(cluster)
    (start,) = changes_of(plan.actions)
    slurm.command("scancel", other)
    slurm.wait_until(lambda: other not in slurm.states(), f"{other} is over")
    applied(plan, cluster, tmp_path, drift_mode=Drift.PRECONDITIONS)
    (really,) = placement_now(jobs_table(ours)[ours]).replicas
    first, last = really.shared_gpus[0], really.shared_gpus[-1]
    assert f"(IDX:{first}-{last})" in slurm.command("scontrol", "-d", "show", "job", ours)
    assert (really.node, len(really.shared_gpus)) == ("gpu01", 3)
    assert (really.cpu_milli, really.memory_mib) == (4000, 1024)
    assert really.shared_gpus != start.after.replicas[0].shared_gpus
    details = [record.detail for record in verify_log(tmp_path / "audit.jsonl").records]
    assert any(f"has GPUs {','.join(map(str, really.shared_gpus))} of gpu01" in detail for detail in details)


def test_a_suspended_job_holds_its_gpus(slurm):
    """Slurm gives its CPUs to others, and its GPUs to none."""
    job = slurm.submit(*EVERYTHING, "-p", "low", comment="")
    slurm.command("scontrol", "release", job)
    slurm.wait_running(job)
    slurm.command("scontrol", "suspend", job)
    slurm.wait_until(lambda: slurm.states()[job][0] == "SUSPENDED", f"{job} is suspended")
    assert "CPUAlloc=0" in slurm.command("scontrol", "show", "node", "gpu01")
    assert "GresUsed=gpu:h100:8(IDX:0-7)" in slurm.command("scontrol", "-d", "show", "node", "gpu01")
    slurm.submit("-N1", "--gpus-per-node=h100:1")
    cluster = SlurmCluster()
    assert [len(each.shared_gpus) for each in cluster.snapshot().job_by_name[job].running.replicas] == [8] * 4
    assert kinds(planned(cluster)) == []
