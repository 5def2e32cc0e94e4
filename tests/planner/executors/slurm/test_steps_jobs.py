"""The next step of an action on a Slurm job follows from its mark and the job's state."""

from __future__ import annotations

import pytest

from gpuplan.planner.action_marks import MarkStage
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.job_steps import Deed
from gpuplan.planner.executors.slurm.commands import JobRow
from gpuplan.planner.executors.slurm.steps import next_step
from gpuplan.planner.sources.slurm.managed import Mark, Marks

NOW = 1_000.0
HELD, REQUEUED = "JobHeldUser", "job requeued in held state"
NONE_TRIED = frozenset()


def row(state, reason="None", nodes="", required="gpu01"):
    held = "held" in reason.lower()
    return JobRow("7", state, reason, nodes, required, "ann", "", 0 if held else 5, 1, Marks())


def found(kind, step, job, *, tried=NONE_TRIED, until=0):
    mark = Mark(f"plan:{kind}/7", step, "gpu01", until)
    after = next_step(mark, job, now=NOW, tried=tried)
    return after.deed, after.progress.phase


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (row("PENDING", HELD), (Deed.PLACE, ActionPhase.ASKED)),
        (row("PENDING", HELD, required=""), (Deed.PLACE, ActionPhase.ASKED)),
        # Slurm or its user requeued it, and it still requires the nodes of its last start.
        (row("PENDING", "BeginTime", required="gpu02"), (Deed.PLACE, ActionPhase.ASKED)),
        (row("PENDING", "UnavailableNodes:gpu02", required="gpu02"), (Deed.PLACE, ActionPhase.ASKED)),
        (row("PENDING", "Resources"), (Deed.NOTHING, ActionPhase.UNDER_WAY)),
        (row("PENDING", "ReqNodeNotAvail, UnavailableNodes:gpu01"), (Deed.FAIL, ActionPhase.FAILED)),
        (row("PENDING", "launch failed requeued held"), (Deed.FAIL, ActionPhase.FAILED)),
        (row("CONFIGURING", nodes="gpu01"), (Deed.NOTHING, ActionPhase.UNDER_WAY)),
        (row("RUNNING", nodes="gpu01"), (Deed.LAND, ActionPhase.LANDED)),
        (row("RUNNING", nodes="gpu[02-03]"), (Deed.FAIL, ActionPhase.FAILED)),
        (row("COMPLETED", nodes="gpu01"), (Deed.LAND, ActionPhase.LANDED)),
        (row("CANCELLED"), (Deed.FAIL, ActionPhase.FAILED)),
    ],
    ids=lambda each: each.state + each.reason[:8] if isinstance(each, JobRow) else "",
)
def test_a_start_is_placed_followed_and_landed(job, expected):
    assert found("start", MarkStage.ASKED, job) == expected


def test_a_job_that_is_held_again_after_its_release_is_not_released_against_its_user():
    held = found("start", MarkStage.ASKED, row("PENDING", HELD), tried=frozenset({Deed.PLACE}))
    assert held == (Deed.FAIL, ActionPhase.FAILED)


def test_a_job_that_is_given_other_nodes_after_its_release_keeps_them():
    changed = row("PENDING", "Resources", required="gpu02")
    assert found("start", MarkStage.ASKED, changed, tried=frozenset({Deed.PLACE})) == (
        Deed.FAIL,
        ActionPhase.FAILED,
    )


RUNNING = row("RUNNING", nodes="gpu01")


@pytest.mark.parametrize("kind", ["preempt", "migrate"])
@pytest.mark.parametrize(
    ("step", "until", "job", "expected"),
    [
        (MarkStage.ASKED, 0, RUNNING, Deed.NOTIFY),
        (MarkStage.NOTIFIED, 1_001, RUNNING, Deed.NOTHING),
        (MarkStage.NOTIFIED, 1_000, RUNNING, Deed.STOP),
        (MarkStage.STOPPING, 0, RUNNING, Deed.STOP),
        (MarkStage.STOPPING, 0, row("COMPLETING", nodes="gpu01"), Deed.NOTHING),
        # Slurm requeued it by itself, for example as its node failed.
        (MarkStage.NOTIFIED, 1_001, row("PENDING", "BeginTime"), Deed.STOP),
    ],
)
def test_a_job_is_notified_then_stopped_when_its_time_is_over(kind, step, until, job, expected):
    assert found(kind, step, job, until=until) == (
        expected,
        ActionPhase.ASKED if expected is Deed.NOTIFY else ActionPhase.UNDER_WAY,
    )


@pytest.mark.parametrize(
    ("kind", "job", "expected"),
    [
        ("preempt", row("PENDING", REQUEUED), Deed.LAND),
        ("preempt", row("COMPLETED", nodes="gpu01"), Deed.LAND),
        ("release", row("PENDING", REQUEUED), Deed.LAND),
        ("migrate", row("PENDING", REQUEUED), Deed.PLACE),
        ("migrate", row("COMPLETED", nodes="gpu01"), Deed.FAIL),
    ],
)
def test_a_stopped_job_stays_or_is_placed_on_its_new_nodes(kind, job, expected):
    assert found(kind, MarkStage.STOPPING, job)[0] is expected


def test_a_step_that_this_process_did_is_waited_for():
    assert found("preempt", MarkStage.STOPPING, RUNNING, tried=frozenset({Deed.STOP}))[0] is Deed.NOTHING


@pytest.mark.parametrize("step", MarkStage)
@pytest.mark.parametrize("kind", ["start", "preempt", "migrate", "release"])
@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "CONFIGURING", "SUSPENDED"]
)
def test_every_step_of_every_kind_has_an_answer_in_every_state(kind, step, state):
    deed, phase = found(kind, step, row(state, HELD, nodes="gpu01"))
    assert (deed is Deed.LAND) == (phase is ActionPhase.LANDED and step is not MarkStage.LANDED)
    assert (deed is Deed.FAIL) == (phase is ActionPhase.FAILED and step is not MarkStage.FAILED)


def test_a_job_that_is_gone_says_nothing_of_its_actions():
    assert next_step(None, None, now=NOW, tried=NONE_TRIED).progress.phase is ActionPhase.GONE
    assert next_step(None, RUNNING, now=NOW, tried=NONE_TRIED).progress.phase is ActionPhase.NOT_BEGUN


def test_a_clock_that_was_put_back_makes_a_notice_no_longer():
    mark = Mark("plan:preempt/7", MarkStage.NOTIFIED, "gpu01", int(NOW) + 3600)
    running = row("RUNNING", nodes="gpu01")
    assert next_step(mark, running, now=NOW, tried=NONE_TRIED, grace=60).deed is Deed.NOTIFY
    assert next_step(mark, running, now=NOW, tried=NONE_TRIED).deed is Deed.NOTHING
