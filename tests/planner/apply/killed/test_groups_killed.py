"""Killed with SIGKILL wherever a group starts, an apply goes on, or the next plan finds what it left."""

from __future__ import annotations

import pytest

from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, by_value
from tests.support.children import kill_apply
from tests.support.children.kill_assert import KILLED, in_child
from tests.support.samples.group_world import HELD, WORLD, group_plan, part_started, running
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

PLAN = group_plan()
STRIDE = 1 if EVERY_SEED else 9
"""Of the statements to the cluster every so many is one at which it is killed."""


def test_killed_before_any_statement_the_next_apply_or_the_next_plan_makes_the_groups_whole(tmp_path):
    halves = 0
    for statement in range(0, 1000, STRIDE):
        folder = tmp_path / str(statement)
        folder.mkdir()
        SimulatedCluster.create(folder / "cluster.db", WORLD).close()
        ended = in_child(kill_apply.apply_dying_at_statement, folder, statement, PLAN)
        with SimulatedCluster(folder / "cluster.db") as live:
            halves += bool(part_started(live))
            if ended == 0:
                assert running(live) == HELD.keys()
                break
        assert ended == KILLED
        if statement % (2 * STRIDE):
            assert in_child(kill_apply.resume, folder, PLAN) == 0
        else:
            plan_and_apply(folder)
        with SimulatedCluster(folder / "cluster.db") as live:
            assert part_started(live) == {}
            assert running(live) >= HELD.keys()
    assert ended == 0
    assert halves


def plan_and_apply(folder):
    """What `gpuplan plan` and `apply` do of the cluster as it was left."""
    with SimulatedCluster(folder / "cluster.db") as live:
        world = live.snapshot()
        plan = plan_epoch(world, by_value(solvers=()), seed=0, created_at=NOW)
        assert plan.snapshot == survey_damage(world).sound
        log = AuditLog(folder / "next.jsonl")
        apply_plan(plan, live, log, actor="ann@login1", now=lambda: NOW)
