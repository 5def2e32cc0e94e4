"""Limits that are no quotas: the jobs beyond them are held, in Slurm's order."""

from __future__ import annotations

from tests.support.harness.slurm_limits import Accounting, read_limited, slurm_job

TWO_ACCOUNTS = {("a", "u", ""): {}, ("b", "u", ""): {}, ("a", "v", ""): {}}


def held(accounting, records, **more):
    """Names of the jobs that are held."""
    return [job.name for job in read_limited(accounting, records, **more).snapshot.jobs if job.held]


def accounts(a=(), b=(), **qos):
    return Accounting({"a": (None, dict(a)), "b": (None, dict(b))}, dict(TWO_ACCOUNTS), {"normal": qos})


def test_as_many_jobs_may_start_as_the_running_ones_leave():
    jobs = [slurm_job(1, node=1), *(slurm_job(number) for number in range(2, 6))]

    assert held(accounts(MaxJobsPU="3"), jobs) == ["4", "5"]


def test_the_higher_priority_comes_first():
    jobs = [slurm_job(1), slurm_job(2, priority=900), slurm_job(3, user="v")]

    assert held(accounts(MaxJobsPU="1"), jobs) == ["1"]


def test_a_small_job_may_go_before_a_large_one():
    jobs = [slurm_job(1, node=1), slurm_job(2, gpus=4), slurm_job(3, gpus=1)]

    assert held(accounts(MaxTRESPA="cpu=8", a={"GrpTRES": "gres/gpu=8"}.items()), jobs) == ["3"]
    assert not held(accounts(GrpTRES="cpu=12"), jobs)


def test_a_job_that_a_quota_keeps_back_takes_no_room():
    """Or the jobs behind it would wait for one that does not start."""
    accounting = accounts({"GrpTRES": "gres/gpu=4"}.items(), MaxJobsPU="2")
    jobs = [slurm_job(1, gpus=2, node=1), slurm_job(2, gpus=3), slurm_job(3), slurm_job(4)]
    found = read_limited(accounting, jobs).snapshot

    assert [job.name for job in found.jobs if job.held] == ["2", "4"]
    assert "GrpTRES=gres/gpu=4 of account a" in found.job_by_name["2"].hold_reason
    accounting.qos = {}
    assert not held(accounting, jobs)


def test_a_limit_that_cuts_across_quotas_is_kept_by_holding_jobs():
    """A user of two accounts with limits: what both have together is no part of either."""
    accounting = accounts(
        {"GrpTRES": "gres/gpu=8"}.items(), {"GrpTRES": "gres/gpu=8"}.items(), MaxTRESPU="gres/gpu=5"
    )
    jobs = [slurm_job(1, "a", gpus=3), slurm_job(2, "b", gpus=3), slurm_job(3, "b", gpus=2)]
    found = read_limited(accounting, jobs).snapshot

    assert [job.name for job in found.jobs if job.held] == ["2"]
    assert "MaxTRESPU=gres/gpu=5 of QOS normal" in found.job_by_name["2"].hold_reason
    assert [job.queue for job in found.jobs] == ["a", "b", "b"]


def test_jobs_that_are_not_handed_over_take_no_room():
    jobs = [slurm_job(1), slurm_job(2, comment="gpuplan", hold=True, priority=0, state_reason="JobHeldUser")]

    assert held(accounts(MaxJobsPU="1"), jobs, managed=True) == ["1"]


def test_tasks_of_an_array_count_each():
    record = slurm_job(7, array_job_id=7, array_task_string="0-4", array_task_id=None)

    assert held(accounts(MaxJobsPU="2"), [record]) == ["7_2", "7_3", "7_4"]
