"""The next step of an action, by its mark and the attempt of the job; and what becomes of an attempt."""

from __future__ import annotations

import pytest

from gpuplan.models.dependency import JobOutcome
from gpuplan.planner.action_marks import JobSignal, MarkStage
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.job_steps import Deed
from gpuplan.planner.executors.local.job_steps import next_step
from gpuplan.planner.executors.local.records import Attempt, HostMark, Record, settled
from gpuplan.planner.executors.local.runs import Run, RunPhase
from tests.support.builders.build import NOW, job, replica

RUNS, BEGINS, ENDED = Run(RunPhase.RUNNING, 1.0), Run(RunPhase.STARTING), Run(RunPhase.ENDED, 1.0, 2.0, 0)


@pytest.mark.parametrize(
    ("kind", "step", "run", "deed", "phase"),
    [
        ("start", MarkStage.ASKED, None, Deed.PLACE, ActionPhase.ASKED),
        ("start", MarkStage.ASKED, BEGINS, Deed.NOTHING, ActionPhase.UNDER_WAY),
        ("start", MarkStage.ASKED, RUNS, Deed.LAND, ActionPhase.LANDED),
        ("start", MarkStage.LANDED, None, Deed.NOTHING, ActionPhase.LANDED),
        ("preempt", MarkStage.ASKED, BEGINS, Deed.NOTHING, ActionPhase.UNDER_WAY),
        ("preempt", MarkStage.ASKED, RUNS, Deed.NOTIFY, ActionPhase.ASKED),
        ("preempt", MarkStage.NOTIFIED, RUNS, Deed.NOTHING, ActionPhase.UNDER_WAY),
        ("preempt", MarkStage.STOPPING, RUNS, Deed.STOP, ActionPhase.UNDER_WAY),
        ("preempt", MarkStage.STOPPING, None, Deed.LAND, ActionPhase.LANDED),
        ("release", MarkStage.ASKED, None, Deed.LAND, ActionPhase.LANDED),
        ("migrate", MarkStage.STOPPING, None, Deed.PLACE, ActionPhase.UNDER_WAY),
        ("migrate", MarkStage.PLACING, None, Deed.PLACE, ActionPhase.ASKED),
        ("migrate", MarkStage.PLACING, RUNS, Deed.LAND, ActionPhase.LANDED),
        ("migrate", MarkStage.FAILED, None, Deed.NOTHING, ActionPhase.FAILED),
    ],
)
def test_next_steps(kind, step, run, deed, phase):
    found = next_step(HostMark(key=f"p:{kind}/a", step=step, until=20), run, now=10)
    assert (found.deed, found.progress.phase) == (deed, phase)


def test_the_notice_ends_with_its_time():
    mark = HostMark(key="p:preempt/a", step=MarkStage.NOTIFIED, until=20)
    assert next_step(mark, RUNS, now=20).deed is Deed.STOP


def test_a_clock_that_was_put_back_makes_a_notice_no_longer():
    """Half a minute is left of a notice of ten seconds: it is given again, and lasts ten."""
    mark = HostMark(key="p:preempt/a", step=MarkStage.NOTIFIED, until=40)
    assert next_step(mark, RUNS, now=10, grace=10).deed is Deed.NOTIFY
    assert next_step(mark, RUNS, now=30, grace=10).deed is Deed.NOTHING
    assert next_step(mark, RUNS, now=40, grace=10).deed is Deed.STOP


def test_nothing_is_done_without_a_mark():
    assert next_step(None, RUNS, now=0).progress.phase is ActionPhase.NOT_BEGUN


def a_record(*marks, **fields):
    held = Attempt(number=1, replica=replica("n", gpus=(0,)), begun_by=(1, 1, "b"), asked_at=NOW)
    return Record(number=1, job=job("a", gpus=1), attempt=held, attempts=1, marks=marks, **fields)


STOPPING = HostMark(key="p:preempt/a", step=MarkStage.STOPPING)


@pytest.mark.parametrize(
    ("record", "run", "ends", "preemptions"),
    [
        (a_record(), ENDED, JobOutcome.SUCCEEDED, 0),
        (a_record(), Run(RunPhase.ENDED, 1.0, 2.0, 1), JobOutcome.FAILED, 0),
        (a_record(), Run(RunPhase.ENDED, 1.0, 2.0, 0, timed_out=True), JobOutcome.FAILED, 0),
        (a_record(), Run(RunPhase.ENDED, 1.0, 2.0, -15, stopped=True), None, 0),
        (a_record(STOPPING), Run(RunPhase.ENDED, 1.0, 2.0, 0, stopped=True), None, 1),
        (a_record(STOPPING), ENDED, JobOutcome.SUCCEEDED, 0),
        (a_record(STOPPING), Run(RunPhase.LOST, 1.0), None, 1),
        (a_record(), Run(RunPhase.LOST, 1.0), JobOutcome.FAILED, 0),
        (a_record(), Run(RunPhase.NEVER), None, 0),
        (
            a_record(STOPPING, notice=JobSignal(signal="USR1", seconds=9)),
            Run(RunPhase.ENDED, 1.0, 2.0, -10),
            None,
            1,
        ),
        (a_record(cancelled=True), Run(RunPhase.ENDED, 1.0, 2.0, -15, stopped=True), JobOutcome.FAILED, 0),
    ],
)
def test_what_becomes_of_a_job(record, run, ends, preemptions):
    found = settled(record, run, 5.0)
    assert found.attempt is None
    assert (found.ended.outcome if found.ended else None, found.job.preemptions) == (ends, preemptions)
    assert settled(found, None, 6.0) is found


def test_a_record_reads_back_as_it_was_written():
    record = a_record(STOPPING, notice=JobSignal(signal="USR1", seconds=9))
    assert Record.model_validate(record.document()) == record
