"""Fences: reservations that last as long as they are needed, and are made again when they are lost."""

from __future__ import annotations

import pytest

from gpuplan.planner.executors.interface import ExecutionError, UnreachableError
from gpuplan.planner.executors.slurm import commands
from gpuplan.planner.executors.slurm import fence as module
from gpuplan.planner.executors.slurm.commands import JobRow
from gpuplan.planner.executors.slurm.fence import Fence, fenced_nodes, remove_fences
from gpuplan.planner.sources.slurm.managed import Marks


class Reservations:
    """Stands for scontrol: the reservations that there are, as `show` prints them."""

    def __init__(self, *lines):
        self.lines, self.asked, self.error = list(lines), [], None

    def __call__(self, *words):
        if words[:3] == ("scontrol", "--oneliner", "show"):
            return "\n".join(self.lines)
        self.asked.append(words[1:])
        if self.error:
            error, self.error = self.error, None
            raise error
        return ""


def line(name, nodes, *, state="ACTIVE", users="root"):
    return f"ReservationName={name} StartTime=2026-11-23T20:00:00 Nodes={nodes} Users={users} State={state}"


@pytest.fixture
def scontrol(monkeypatch):
    def with_lines(*lines):
        found = Reservations(*lines)
        for each in (module, commands):
            monkeypatch.setattr(each, "call", found)
        monkeypatch.setattr(module, "update", lambda *words, **fields: found.asked.append((*words, fields)))
        return found

    return with_lines


def job(state, reservation, reason="Resources"):
    held = "Held" in reason
    return JobRow("7", state, reason, "", "", "ann", reservation, 0 if held else 5, 1, Marks())


def test_a_fence_that_was_made_without_an_answer_is_not_made_twice(scontrol):
    asked = scontrol()
    fence = Fence("p")
    asked.error = UnreachableError("no answer")
    with pytest.raises(UnreachableError):
        fence.enclose(["gpu01"])
    asked.lines.append(line("gpuplan-p", "gpu01"))
    fence.enclose(["gpu01"])
    assert [words[0] for words in asked.asked] == ["create", "update"]


def test_a_change_that_did_not_arrive_is_made_again(scontrol):
    asked = scontrol()
    asked.error = UnreachableError("no answer")
    fence = Fence("p")
    with pytest.raises(UnreachableError):
        fence.enclose(["gpu01"])
    fence.enclose(["gpu01"])
    fence.enclose(["gpu01"])
    assert [words[0] for words in asked.asked] == ["create", "create"]
    assert fence.admit("ann", ["gpu01"])
    assert "Users=ann,root" in asked.asked[-1]


def test_a_fence_that_an_operator_removed_is_made_again(scontrol):
    asked = scontrol()
    fence = Fence("p")
    fence.enclose(["gpu01"])
    asked.error = ExecutionError("no such reservation")
    fence.enclose(["gpu02"])
    assert [words[0] for words in asked.asked] == ["create", "update", "create"]
    assert "Nodes=gpu01,gpu02" in asked.asked[-1]


def test_a_refused_change_of_a_fence_that_is_there_is_an_error(scontrol):
    asked = scontrol(line("gpuplan-p", "gpu01"))
    asked.error = ExecutionError("no rights")
    with pytest.raises(ExecutionError, match="no rights"):
        Fence("p").enclose(["gpu02"])


def test_the_end_of_a_fence_in_use_is_moved_while_an_apply_lasts(scontrol):
    asked, now = scontrol(), [0.0]
    fence = Fence("p", now=lambda: now[0])
    fence.keep()
    fence.enclose(["gpu01"])
    for now[0] in (200.0, 301.0, 400.0, 602.0):
        fence.keep()
    assert [words[0] for words in asked.asked] == ["create", "update", "update"]
    assert "EndTime=now+15minutes" in asked.asked[-1]


def test_a_fence_that_has_ended_keeps_no_job_away(scontrol):
    asked = scontrol(line("gpuplan-p", "gpu01", state="INACTIVE"))
    fence = Fence("p")
    assert not fence.admit("ann", ["gpu01"])
    fence.enclose(["gpu01"])
    assert [words[0] for words in asked.asked] == ["update"]


def test_nodes_that_operators_reserved_as_well_are_not_open(scontrol):
    scontrol(
        line("gpuplan-p", "gpu[01-03]"),
        line("maintenance", "gpu02"),
        line("later", "gpu03", state="INACTIVE"),
    )
    assert fenced_nodes() == {"gpu01", "gpu03"}


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([], False),
        ([job("PENDING", "gpuplan-old", "JobHeldUser")], False),
        ([job("RUNNING", "gpuplan-old")], False),
        ([job("PENDING", "gpuplan-p")], False),
        ([job("PENDING", "gpuplan-old")], True),
        ([job("CONFIGURING", "gpuplan-old")], True),
    ],
)
def test_fences_of_other_plans_go_unless_a_job_is_about_to_start_there(scontrol, rows, left):
    asked = scontrol(line("gpuplan-old", "gpu01"), line("gpuplan-p", "gpu02"), line("operators", "gpu03"))
    assert remove_fences(dict(enumerate(rows)), kept=["gpuplan-p"]) is left
    deleted = [words for words in asked.asked if words[0] == "delete"]
    assert deleted == ([] if left else [("delete", "ReservationName=gpuplan-old")])
