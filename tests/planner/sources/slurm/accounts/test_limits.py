"""Limits of accounts, users and QOS: read from each source, in force as Slurm has them, and never dropped."""

from __future__ import annotations

import pytest

from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.sources.slurm.slurm import read_slurm_files
from tests.planner.sources.slurm.test_slurm import RECORDED, job, pending
from tests.support.harness.slurm_limits import Accounting, read_limited, slurm_job

NOT_KEPT = "AccountingStorageEnforce = associations\nClusterName = c\n"


def reason(accounting, record, **more):
    """Why a single pending job is held."""
    (found,) = read_limited(accounting, [record], **more).snapshot.jobs
    return found.hold_reason


def account(**limits):
    return Accounting(accounts={"a": (None, limits)}, users={("a", "u", ""): {}})


def qos(**limits):
    return Accounting(accounts={"a": (None, {})}, users={("a", "u", ""): {}}, qos={"normal": limits})


def test_a_recorded_cluster_has_the_limits_of_its_accounts():
    found = read_slurm_files(RECORDED / "22.05-accounts")

    assert not list(inconsistencies(found.snapshot))
    assert queue_limits(found.snapshot.queues, ALL_MODELS).limit == {
        "astro": 8 * MILLI,
        "astro/alice": 6 * MILLI,
        "bio": None,
        "bio/qos:urgent/bob": None,
        "physics": 16 * MILLI,
        "slurm/qos:urgent": 4 * MILLI,
        "slurm/qos:urgent/bob": 2 * MILLI,
        "slurm/all": None,
        "slurm/unlimited": None,
    }
    assert [job(found, name).queue for name in "534"] == ["astro/alice", "physics", "bio/qos:urgent/bob"]
    assert not job(found, "5").held


@pytest.mark.parametrize(
    ("limits", "beyond"),
    [
        ({"MaxTRES": "gres/gpu=2"}, True),
        ({"MaxTRES": "gres/gpu=4"}, False),
        ({"MaxTRES": "gres/gpu:h100=2"}, True),
        ({"MaxTRES": "gres/gpu:a100=2"}, False),
        ({"MaxTRES": "cpu=3"}, True),
        ({"MaxTRES": "mem=512M"}, True),
        ({"MaxTRES": "mem=1G"}, False),
        ({"MaxTRESPerNode": "gres/gpu=3"}, True),
        ({"MaxTRESMins": "gres/gpu=239"}, True),
        ({"MaxTRESMins": "gres/gpu=240"}, False),
        ({"MaxWall": "59:00"}, True),
        ({"MaxWall": "01:00:00"}, False),
        ({"GrpTRES": "gres/gpu=3"}, True),
        ({"GrpTRES": "cpu=3"}, True),
        ({"GrpTRES": "mem=1000M"}, True),
        ({"GrpTRES": "node=0"}, True),
        ({"GrpTRES": "billing=3"}, True),
        ({"GrpJobs": "0"}, True),
        ({"GrpJobs": "1"}, False),
    ],
)
@pytest.mark.parametrize("where", [account, qos])
def test_a_job_that_a_limit_never_allows_is_held_with_its_name(where, limits, beyond):
    told = reason(where(**limits), slurm_job(1, gpus=4, model="h100"))

    ((name, _),) = limits.items()
    assert (name in told) == beyond == bool(told)


@pytest.mark.parametrize(
    ("limits", "beyond"),
    [
        ({"MinTRES": "gres/gpu=8"}, True),
        ({"MinTRES": "gres/gpu=4"}, False),
        ({"MaxTRESPU": "cpu=3"}, True),
        ({"MaxTRESPA": "cpu=3"}, True),
        ({"MaxJobsPU": "0"}, True),
        ({"MaxJobsPA": "0"}, True),
        ({"MaxTRESPU": "gres/gpu=3"}, True),
    ],
)
def test_limits_that_only_a_qos_has(limits, beyond):
    told = reason(qos(**limits), slurm_job(1, gpus=4))

    ((name, _),) = limits.items()
    assert (f"{name}=" in told and "QOS normal" in told) == beyond == bool(told)


def test_a_user_without_a_limit_has_that_of_the_nearest_account():
    accounting = Accounting(
        accounts={
            "top": (None, {"MaxTRES": "cpu=9,gres/gpu=2"}),
            "a": ("top", {"MaxTRES": "gres/gpu=6"}),
        },
        users={("a", "u", ""): {}, ("a", "v", ""): {"MaxTRES": "gres/gpu=8"}},
    )

    assert "MaxTRES=gres/gpu=6 of user a/u" in reason(accounting, slurm_job(1, gpus=7))
    assert not reason(accounting, slurm_job(1, user="v", gpus=7))


def test_a_limit_of_a_partition_association_counts_in_its_place():
    accounting = account()
    accounting.users[("a", "u", "p")] = {"MaxTRES": "gres/gpu=1"}
    accounting.partitions["other"] = ""

    assert reason(accounting, slurm_job(1, gpus=2))
    assert not reason(accounting, slurm_job(1, gpus=2, partition="other"))


def test_the_limit_of_a_qos_is_in_force_in_place_of_the_accounts():
    accounting = account(GrpTRES="gres/gpu=2,cpu=3")
    accounting.qos = {"normal": {"GrpTRES": "gres/gpu=100"}}

    assert "GrpTRES=cpu=3 of account a" in reason(accounting, slurm_job(1, gpus=4))
    accounting.qos["normal"]["GrpTRES"] += ",cpu=100"
    assert not reason(accounting, slurm_job(1, gpus=4))


@pytest.mark.parametrize(("flags", "held"), [("", True), ("OverPartQOS", False)])
def test_the_qos_of_a_partition_comes_before_that_of_the_job(flags, held):
    accounting = account()
    accounting.partitions = {"p": "part"}
    accounting.qos = {"part": {"MaxTRES": "gres/gpu=1"}, "normal": {"MaxTRES": "gres/gpu=8", "Flags": flags}}

    assert bool(reason(accounting, slurm_job(1, gpus=4))) == held


def test_limits_that_slurm_does_not_keep_are_none():
    told = reason(account(MaxTRES="gres/gpu=1"), slurm_job(1, gpus=2), config=NOT_KEPT)

    assert not told


def test_limits_that_are_kept_and_were_not_read_are_noted():
    config = "AccountingStorageEnforce = associations,limits,qos,safe\nClusterName = c\n"
    accounting = Accounting()
    accounting.texts = dict

    assert [note for note in read_limited(accounting, [], config=config).notes if "were not read" in note]


def test_limits_of_other_clusters_do_not_count():
    accounting = account(MaxTRES="gres/gpu=1")
    texts = accounting.texts()
    texts["associations"] = texts["associations"].replace("c|", "other|") + "c|a||||\n"
    accounting.texts = lambda: texts

    assert not reason(accounting, slurm_job(1, gpus=2), config="ClusterName = c\n")


@pytest.mark.parametrize("column", ["GrpTRESMins", "GrpTRESRunMins", "GrpWall"])
def test_limits_over_time_are_noted(column):
    for where, subject in ((account, "account a"), (qos, "QOS normal")):
        notes = read_limited(where(**{column: "100"}), []).notes

        assert [note for note in notes if note.startswith(f"{subject}: ") and f"{column}=100" in note]


@pytest.mark.parametrize(
    ("reason", "refused"),
    [
        *(("Priority", False), ("Resources", False), ("None", False)),
        *(("QOSGrpGRES", True), ("QOSMaxGRESPerUser", True), ("AssocGrpCpuLimit", True)),
        *(("MaxGRESPerAccount", True), ("AssocGrpGRESMinutes", True), ("AssocGrpGRES", True)),
        *(("MaxCpuRunMinsPerUser", True), ("QOSGrpWallLimit", True)),
        *(("AssocMaxJobsLimit", True), ("PartitionTimeLimit", True), ("BadConstraints", True)),
    ],
)
def test_a_job_that_waits_for_a_limit_that_was_not_read_is_held(reason, refused):
    after = job(pending("after", state_reason=reason), "19")

    assert (after.held, reason in after.hold_reason) == (refused, refused)


@pytest.mark.parametrize(
    ("told", "limits"),
    [
        ("QOSGrpGRES", {"GrpTRES": "gres/gpu=8"}),
        ("QOSGrpCpuLimit", {"GrpTRES": "cpu=8"}),
        ("QOSGrpMemLimit", {"GrpTRES": "mem=8G"}),
        ("QOSGrpNodeLimit", {"GrpTRES": "node=8"}),
        ("QOSGrpBilling", {"GrpTRES": "billing=8"}),
        ("QOSGrpJobsLimit", {"GrpJobs": "8"}),
        ("QOSMaxGRESPerUser", {"MaxTRESPU": "gres/gpu=8"}),
        ("QOSMaxCpuPerUserLimit", {"MaxTRESPU": "cpu=8"}),
        ("QOSMaxMemoryPerUser", {"MaxTRESPU": "mem=8G"}),
        ("QOSMaxNodePerUserLimit", {"MaxTRESPU": "node=8"}),
        ("QOSMaxJobsPerUserLimit", {"MaxJobsPU": "8"}),
        ("MaxGRESPerAccount", {"MaxTRESPA": "gres/gpu=8"}),
        ("MaxCpuPerAccount", {"MaxTRESPA": "cpu=8"}),
        ("MaxJobsPerAccount", {"MaxJobsPA": "8"}),
    ],
)
def test_a_job_that_waits_for_a_limit_that_was_read_is_planned(told, limits):
    """The reasons are those of a live 22.05 and 24.11; the limit leaves room, so a plan may start the job."""
    record = slurm_job(1, gpus=4, state_reason=told)

    assert not reason(qos(**limits), record)
    times = told.replace("Per", "RunMinsPer") if "Per" in told else told.replace("Limit", "") + "Minutes"
    assert times in reason(qos(**limits), slurm_job(1, gpus=4, state_reason=times))
    assert told in reason(qos(MaxWall="1-0"), record)
