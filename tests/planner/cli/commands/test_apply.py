"""`gpuplan apply`: the acting user, and how it is stopped."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import sys

import pytest

from gpuplan.planner.cli import main
from gpuplan.planner.cli.options import current_user
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.children.kill_assert import in_child

APPLY = ("apply", "--executor", "simulated", "--auto-approve", "--state", "c.db")


def test_a_user_without_a_name_is_a_number_in_the_audit_log(monkeypatch):
    def nameless(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", nameless)

    assert current_user() == f"{os.getuid()}@{socket.gethostname()}"


def test_the_name_in_the_audit_log_is_not_one_from_the_environment(monkeypatch):
    before = current_user()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "another")

    assert current_user() == before


def apply_told_to_stop(folder, plan_file, *numbers):
    """In a child process: signals come while the first action is done."""
    os.chdir(folder)
    begin, left = SimulatedCluster.begin, list(numbers)

    def interrupted(cluster, action, key):
        while left:
            os.kill(os.getpid(), left.pop())
        return begin(cluster, action, key)

    SimulatedCluster.begin = interrupted
    sys.argv = ["gpuplan", *APPLY, str(plan_file)]
    main()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_apply_after_the_action_in_hand_and_a_second_one_at_once(
    gpuplan, plan_file, tmp_path, number
):
    assert in_child(apply_told_to_stop, tmp_path, plan_file, number) == 22
    with SimulatedCluster(tmp_path / "c.db") as live:
        assert len(live.operations()) == 1

    (tmp_path / "c.db").unlink()
    assert in_child(apply_told_to_stop, tmp_path, plan_file, number, number) == -number
    with SimulatedCluster(tmp_path / "c.db") as live:
        assert live.operations() == ()

    assert gpuplan(*APPLY, plan_file, "--resume").code == 0
