"""The next step of an action, by its mark and the attempt of the job; and what becomes of an attempt."""

from __future__ import annotations

import pytest

from gpuplan.models.dependency import JobOutcome
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.local.job_steps import HostDeed, next_step
from gpuplan.planner.executors.local.records import Attempt, HostMark, HostSignal, HostStage, Record, settled
from gpuplan.planner.executors.local.runs import Run, RunPhase
from tests.support.builders.build import NOW, job, replica

RUNS, BEGINS, ENDED = Run(RunPhase.RUNNING, 1.0), Run(RunPhase.STARTING), Run(RunPhase.ENDED, 1.0, 2.0, 0)


@pytest.mark.parametrize(
    ("kind", "step", "run", "deed", "phase"),
    [
        ("start", HostStage.ASKED, None, HostDeed.PLACE, ActionPhase.ASKED),
        ("start", HostStage.ASKED, BEGINS, HostDeed.NOTHING, ActionPhase.UNDER_WAY),
        ("start", HostStage.ASKED, RUNS, HostDeed.LAND, ActionPhase.LANDED),
        ("start", HostStage.LANDED, None, HostDeed.NOTHING, ActionPhase.LANDED),
        ("preempt", HostStage.ASKED, BEGINS, HostDeed.NOTHING, ActionPhase.UNDER_WAY),
        ("preempt", HostStage.ASKED, RUNS, HostDeed.NOTIFY, ActionPhase.ASKED),
        ("preempt", HostStage.NOTIFIED, RUNS, HostDeed.NOTHING, ActionPhase.UNDER_WAY),
        ("preempt", HostStage.STOPPING, RUNS, HostDeed.STOP, ActionPhase.UNDER_WAY),
        ("preempt", HostStage.STOPPING, None, HostDeed.LAND, ActionPhase.LANDED),
        ("release", HostStage.ASKED, None, HostDeed.LAND, ActionPhase.LANDED),
        ("migrate", HostStage.STOPPING, None, HostDeed.PLACE, ActionPhase.UNDER_WAY),
        ("migrate", HostStage.PLACING, None, HostDeed.PLACE, ActionPhase.ASKED),
        ("migrate", HostStage.PLACING, RUNS, HostDeed.LAND, ActionPhase.LANDED),
        ("migrate", HostStage.FAILED, None, HostDeed.NOTHING, ActionPhase.FAILED),
    ],
)
def test_next_steps(kind, step, run, deed, phase):
    found = next_step(HostMark(key=f"p:{kind}/a", step=step, until=20), run, now=10)
    assert (found.deed, found.progress.phase) == (deed, phase)


def test_the_notice_ends_with_its_time():
    mark = HostMark(key="p:preempt/a", step=HostStage.NOTIFIED, until=20)
    assert next_step(mark, RUNS, now=20).deed is HostDeed.STOP


def test_nothing_is_done_without_a_mark():
    assert next_step(None, RUNS, now=0).progress.phase is ActionPhase.NOT_BEGUN


def a_record(*marks, **fields):
    held = Attempt(number=1, replica=replica("n", gpus=(0,)), begun_by=(1, 1, "b"), asked_at=NOW)
    return Record(number=1, job=job("a", gpus=1), attempt=held, attempts=1, marks=marks, **fields)


STOPPING = HostMark(key="p:preempt/a", step=HostStage.STOPPING)


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
            a_record(STOPPING, notice=HostSignal(signal="USR1", seconds=9)),
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
    record = a_record(STOPPING, notice=HostSignal(signal="USR1", seconds=9))
    assert Record.model_validate(record.document()) == record
