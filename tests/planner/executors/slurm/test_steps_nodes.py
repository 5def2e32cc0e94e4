"""How far an action on a node of Slurm went, by the states that Slurm shows."""

from __future__ import annotations

import pytest

from gpuplan.planner.action_marks import MarkStage
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.slurm.commands import NodeRow
from gpuplan.planner.executors.slurm.steps import progress_of_node
from gpuplan.planner.sources.slurm.managed import Mark, Marks

POWER_UP = Mark("0123456789abcdef:scale_up/n0", MarkStage.ASKED)


def progress(states, reason=""):
    return progress_of_node(POWER_UP, NodeRow("n0", frozenset(states.split("+")), reason, Marks()))


@pytest.mark.parametrize(
    "states", ["IDLE+POWERED_DOWN", "POWERING_UP", "DOWN+POWERING_UP", "IDLE+NOT_RESPONDING", "DOWN"]
)
def test_a_node_boots_until_it_takes_jobs_or_slurm_gives_it_up(states):
    # 24.11 shows DOWN without a reason for a moment while a node boots.
    assert progress(states).phase is ActionPhase.UNDER_WAY


def test_a_node_that_slurm_gave_up_has_failed_with_slurms_reason():
    found = progress("DOWN", "ResumeTimeout reached")

    assert found.phase is ActionPhase.FAILED
    assert "ResumeTimeout reached" in found.reason


@pytest.mark.parametrize("states", ["IDLE", "ALLOCATED", "MIXED"])
def test_a_node_that_takes_jobs_is_up(states):
    assert progress(states).phase is ActionPhase.LANDED
