"""Limits of a real Slurm with slurmdbd: it starts all that a plan starts, and refuses what the plan holds."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from tests.support.harness.slurm_plans import applied, kinds, planned

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

ACCOUNTS = {
    "free": (),
    "small": ("GrpTRES=gres/gpu=2",),
    "kid": ("parent=small",),
    "over": ("GrpTRES=gres/gpu=1",),
    "typed": ("GrpTRES=gres/gpu:h100=1",),
    "memory": ("GrpTRES=mem=2500M",),
    "two": ("MaxJobs=2",),
}
QOS = {
    "urgent": "GrpTRES=gres/gpu=20",
    "each": "MaxTRESPU=gres/gpu=2",
    "cores": "MaxTRESPA=cpu=2",
    "few": "GrpJobs=1",
    "short": "MaxWall=30",
    "large": "MinTRES=gres/gpu=2",
}


def with_limits(cluster):
    allowed = f"qos=normal,{','.join(QOS)}"
    cluster.manage(
        *(f"add account {name} {' '.join(limits)}" for name, limits in ACCOUNTS.items()),
        f"add user root account={','.join(ACCOUNTS)}",
        *(f"add qos {name} {limit}" for name, limit in QOS.items()),
        f"modify user root set {allowed}",
    )


def test_slurm_starts_what_a_plan_starts_and_refuses_what_it_holds(slurm_accounts, tmp_path):
    with_limits(slurm_accounts)
    free = [("free", name) for name in QOS]
    normal = [(name, "normal") for name in ("kid", "small", "typed", "memory", "two")]
    jobs = {job: of for of in (*free, *normal, ("over", "urgent")) for job in submit(slurm_accounts, *of)}
    cluster = SlurmCluster()

    plan = planned(cluster)
    applied(plan, cluster, tmp_path)

    states = slurm_accounts.states()
    started = {name for name in jobs if states[name][0] == "RUNNING"}
    assert {f"start/{name}" for name in started} == set(kinds(plan))
    counts = Counter(jobs[name] for name in started)
    assert counts.pop(("kid", "normal"), 0) + counts.pop(("small", "normal"), 0) == 2
    three, two, one = [("over", "urgent"), ("free", "urgent")], ["each", "cores"], ["few"]
    assert counts == {
        **dict.fromkeys(three, 3),
        **dict.fromkeys([("memory", "normal"), ("two", "normal"), *(("free", name) for name in two)], 2),
        **dict.fromkeys([("typed", "normal"), *(("free", name) for name in one)], 1),
    }
    # What the jobs of another QOS have leaves nothing of the account's limit.
    left = [*(jobs.keys() - started), *submit(slurm_accounts, "over", "normal")]
    assert kinds(planned(cluster)) == []
    for name in left:
        slurm_accounts.command("scontrol", "release", name)
    slurm_accounts.wait_until(lambda: _refused(slurm_accounts) >= {*left}, "all wait")
    without_slurmdbd_no_snapshot_is_read(slurm_accounts)


def submit(cluster, account, qos):
    """Three jobs with a GPU each."""
    words = ("-A", account, f"--qos={qos}", "--gpus-per-node=h100:1")
    return [cluster.submit(*words) for _ in range(3)]


def _refused(cluster):
    """The jobs that Slurm starts not because of a limit."""
    rows = cluster.command("squeue", "--noheader", "--states=PENDING", "--format=%i %r").splitlines()
    return {job for job, reason in map(str.split, rows) if reason.startswith(("QOS", "Assoc", "Max"))}


def without_slurmdbd_no_snapshot_is_read(cluster):
    words = next(words for words in cluster.daemons if words[0].endswith("slurmdbd"))
    cluster.daemons[words].kill()
    cluster.daemons[words].wait()

    with pytest.raises(PlannerError, match=r"sacctmgr .* failed: .*Connection refused"):
        SlurmCluster().snapshot()
