"""What `gpuplan doctor` says of Slurm, with commands that are scripts; live in the tests of the executor."""

from __future__ import annotations

import pytest

from gpuplan.planner.doctor import check_slurm, check_slurmrestd

COMMANDS = ("scontrol", "squeue", "sinfo", "scancel", "sdiag")
CONFIG = """echo "ClusterName             = private"
echo "SlurmctldHost[0]        = login1(10.0.0.1)"
echo "SlurmctldPort           = 6817"
echo "SLURM_VERSION           = {}"
"""
DELETE = """if [ "$1" = delete ]; then echo "delete_reservation $2: {}" >&2; exit 1; fi
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What is found, by subject, where these commands are scripts."""

    def run(**scripts):
        monkeypatch.setenv("PATH", str(tmp_path))
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        return {check.subject: check for check in check_slurm()}

    return run


def with_all(**scripts):
    return dict.fromkeys(COMMANDS, "exit 1") | scripts


def test_where_is_no_slurm_one_line_says_so(found):
    (check,) = found().values()

    assert (check.subject, check.works) == ("Slurm", None)


def test_commands_that_are_missing_are_named(found):
    (check,) = found(scontrol="", squeue="", sinfo="").values()

    assert (check.works, check.detail) == (False, "lacks scancel, sdiag")
    assert check.advice


@pytest.mark.parametrize(
    ("said", "works"),
    [
        ("Could not establish a configuration source", None),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_a_cluster_that_is_not_configured_is_no_failure_and_one_that_does_not_answer_is(found, said, works):
    check = found(**with_all(scontrol=f'echo "{said}" >&2; exit 1'))["Slurm cluster"]

    assert check.works is works
    assert check.advice


@pytest.mark.parametrize(("version", "works"), [("20.11.9", False), ("22.05.8", True), ("26.11.0", True)])
def test_a_version_that_is_too_old_or_untried_is_told(found, version, works):
    check = found(**with_all(scontrol=CONFIG.format(version)))["Slurm cluster"]

    assert (check.works, check.detail) == (works, f"slurm/private@login1:6817, version {version}")
    assert bool(check.advice) is (version != "22.05.8")


@pytest.mark.parametrize(
    ("said", "works"),
    [
        ("Requested reservation is invalid", True),
        ("Invalid user id", None),
        ("Access/permission denied", None),
        ("Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_rights_are_what_slurm_says_to_a_deletion_of_what_is_not_there(found, said, works):
    scontrol = DELETE.format(said) + CONFIG.format("24.11.5")

    assert found(**with_all(scontrol=scontrol))["Slurm rights"].works is works


def test_a_command_that_fails_is_told_with_what_it_says(found):
    checks = found(**with_all(scontrol=CONFIG.format("24.11.5"), squeue="echo out of order >&2; exit 1"))

    assert checks["Slurm reading"].works is checks["Slurm lock"].works is False
    assert "failed" in checks["Slurm reading"].detail


def test_a_slurmrestd_that_does_not_answer_is_a_failure():
    check = check_slurmrestd("unix:///nowhere/slurmrestd.socket")

    assert (check.subject, check.works, bool(check.advice)) == ("slurmrestd", False, True)
