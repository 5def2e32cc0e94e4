"""Killed with SIGKILL at every step, apply makes the promises of a plan once and all together."""

from __future__ import annotations

import pytest

from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.children import kill_apply
from tests.support.children.kill_assert import CUTS, KILLED, assert_recorded, end_state, in_child
from tests.support.samples.promise_plans import (
    B_LATER,
    C_LATER,
    LOST,
    PLAN,
    PROMISES_ONLY,
    WORLD,
    promises_in,
)
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

STRIDE = 1 if EVERY_SEED else 2
"""Of the statements to the cluster every so many is one at which it is killed."""

BEFORE, AFTER = {"d": LOST}, {"b": B_LATER, "c": C_LATER}
PLANS = pytest.mark.parametrize("plan", [PLAN, PROMISES_ONLY], ids=["with a start", "promises only"])


def create(folder):
    folder.mkdir(exist_ok=True)
    SimulatedCluster.create(folder / "cluster.db", WORLD).close()


def promises(folder):
    with SimulatedCluster(folder / "cluster.db") as live:
        return promises_in(live)


def assert_resumes(folder, plan):
    """All the promises are there or none; resumed, the apply comes to its end."""
    assert promises(folder) in (BEFORE, AFTER)
    assert in_child(kill_apply.resume, folder, plan) == 0
    assert promises(folder) == AFTER
    assert_recorded(folder, plan)
    assert bool(end_state(folder)[0].job_by_name["a"].running) == plan.has_changes


@PLANS
@pytest.mark.parametrize("cut", CUTS)
def test_killed_in_a_write_to_the_log(tmp_path, plan, cut):
    for write in range(len(steps_of(plan)) + 1):
        create(folder := tmp_path / str(write))
        assert in_child(kill_apply.apply_dying_at_write, folder, write, cut, plan=plan) == KILLED
        assert_resumes(folder, plan)


@PLANS
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_before_or_after_a_deed(tmp_path, plan, when):
    for deed in range(len(steps_of(plan))):
        create(folder := tmp_path / str(deed))
        assert in_child(kill_apply.apply_dying_at_deed, folder, deed, when, plan) == KILLED
        last = deed == len(steps_of(plan)) - 1
        assert promises(folder) == (AFTER if last and when == "after" else BEFORE)
        assert_resumes(folder, plan)


@PLANS
def test_killed_before_each_statement_to_the_cluster(tmp_path, plan):
    seen = []
    for statement in range(0, 1000, STRIDE):
        create(folder := tmp_path / str(statement))
        ended = in_child(kill_apply.apply_dying_at_statement, folder, statement, plan)
        seen.append(promises(folder))
        if ended == 0:
            break
        assert ended == KILLED
        assert_resumes(folder, plan)
    assert ended == 0
    # None of them at first, all of them at last, and nothing between.
    assert seen == [BEFORE] * seen.count(BEFORE) + [AFTER] * seen.count(AFTER)
    assert seen.count(BEFORE) > 5
