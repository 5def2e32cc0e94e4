"""The whole loop on one host: real processes on GPUs that are not there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from gpuplan.models.dependency import JobOutcome
from gpuplan.models.plan.actions import changes_of
from gpuplan.planner.executors.interface import UnreachableError
from gpuplan.planner.executors.local import job_queue, runs
from tests.support.harness.local_jobs import kinds, wait_until

H100 = "GPU-5a7d0000-0000-4000-8000-%012x"
SHOW = 'echo "$CUDA_VISIBLE_DEVICES"; '


@pytest.mark.slow
def test_jobs_see_exactly_the_planned_gpus(jobs):
    jobs.submit("a", SHOW + "sleep 100", gpus=2)
    jobs.submit("b", SHOW + "sleep 100")
    plan = jobs.plan()
    assert kinds(plan) == ["start/a", "start/b"]
    assert sorted(jobs.apply(plan).done) == kinds(plan)
    planned = {each.job: [held.index for held in each.replicas[0].gpus] for each in plan.target.placements}
    assert jobs.gpus() == planned
    for name, indices in planned.items():
        wait_until(lambda name=name: jobs.output(name), "it prints")
        assert jobs.output(name).strip() == ",".join(H100 % index for index in indices)


@pytest.mark.slow
def test_ends_are_recorded(jobs):
    jobs.submit("good", "exit 0")
    jobs.submit("bad", "exit 3")
    jobs.submit("killed", "kill -9 $$")
    jobs.submit("slow", limit=1)
    jobs.apply()
    found = {
        name: (jobs.ended(name).outcome, jobs.ended(name).reason)
        for name in ("good", "bad", "killed", "slow")
    }
    assert found == {
        "good": (JobOutcome.SUCCEEDED, ""),
        "bad": (JobOutcome.FAILED, "exit code 3"),
        "killed": (JobOutcome.FAILED, "signal 9"),
        "slow": (JobOutcome.FAILED, "its time was over"),
    }
    world = jobs.host.snapshot()
    assert not world.jobs
    assert {each.name for each in world.finished} == set(found)


def test_a_command_that_is_not_there_has_failed(jobs):
    record = jobs.submit("a")
    file = jobs.host.queue.place(record) / "command.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"words": ["./no-such-program"]}))
    jobs.apply()
    assert jobs.ended("a").reason == "exit code 127"
    assert "No such file" in jobs.output("a")


@pytest.mark.slow
def test_what_a_job_leaves_behind_ends_with_it(jobs, tmp_path):
    pid = tmp_path / "pid"
    orphan = f"cd /; setsid env -i /bin/bash -c 'echo $$ > {pid}; sleep 1000'"
    script = f"(trap '' TERM HUP; {orphan}) & while [ ! -s {pid} ]; do sleep 0.05; done"
    jobs.submit("a", script)
    jobs.apply()
    assert jobs.ended("a").outcome is JobOutcome.SUCCEEDED
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.slow
def test_a_preempted_job_is_told_stopped_and_runs_again(jobs):
    jobs.submit(
        "small",
        'trap "echo told" USR1; trap "echo over; exit 0" TERM; echo on; while true; do sleep 0.1; done',
        gpus=4,
        notice=1,
    )
    jobs.apply()
    wait_until(lambda: "on" in jobs.output("small"), "it runs")
    jobs.submit("large", "sleep 1", gpus=4, priority=9000)
    plan = jobs.plan()
    assert kinds(plan) == ["preempt/small", "start/large"]
    jobs.apply(plan)
    said = [word for word in jobs.output("small").split() if word in ("on", "told", "over")]
    assert said == ["on", "told", "over"]
    waits = jobs.record("small").job
    assert (waits.preemptions, jobs.gpus()) == (1, {"large": [0, 1, 2, 3]})
    assert waits.progress.served_milli
    assert jobs.ended("large").outcome is JobOutcome.SUCCEEDED
    assert kinds(jobs.plan()) == ["start/small"]
    jobs.apply()
    assert jobs.record("small").attempts == 2


@pytest.mark.slow
def test_foreign_processes_hold_their_gpus(jobs, machine):
    machine.add_process(2, os.getpid())
    for name in "abcd":
        jobs.submit(name)
    jobs.apply()
    found = jobs.gpus()
    assert sorted(index for held in found.values() for index in held) == [0, 1, 2, 3]
    assert found[f"gpu01/pid-{os.getpid()}"] == [2]
    assert len(found) == 4


def test_processes_of_a_job_are_its_own(jobs, machine):
    jobs.submit("a")
    jobs.apply()
    machine.add_process(jobs.gpus()["a"][0], os.getpid())
    assert set(jobs.gpus()) == {"a"}


def test_a_start_waits_for_a_process_that_came_since(jobs, machine):
    jobs.submit("a", gpus=4)
    (start,) = changes_of(jobs.plan().actions)
    machine.add_process(1, os.getpid())
    progress = jobs.host.begin(start, "p:start/a")
    assert (progress.phase.value, "GPU 1" in progress.reason) == ("under_way", True)
    machine.end_processes(1)
    wait_until(lambda: jobs.host.observe(["p:start/a"])["p:start/a"].phase.value == "landed", "it runs")


def test_a_start_that_waits_is_taken_back(jobs, machine):
    jobs.submit("a", gpus=4)
    (start,) = changes_of(jobs.plan().actions)
    machine.add_process(1, os.getpid())
    jobs.host.begin(start, "p:start/a")
    for _ in range(2):
        jobs.host.undo("p:start/a")
    assert jobs.host.observe(["p:start/a"])["p:start/a"].phase.value == "not_begun"


@pytest.mark.slow
def test_a_cancelled_job_ends(jobs):
    jobs.submit("runs")
    jobs.apply()
    jobs.submit("waits")
    assert jobs.host.queue.cancel("runs")
    assert not jobs.host.queue.cancel("waits")
    assert jobs.ended("runs").reason == jobs.ended("waits").reason == "cancelled"
    assert jobs.gpus() == {}


@pytest.mark.slow
def test_a_job_that_fails_is_tried_again_as_often_as_it_may(jobs):
    jobs.submit("a", "echo try; exit 1", retry={"max": 1, "backoff": 0})
    jobs.apply()
    wait_until(lambda: jobs.record("a").attempt is None, "it fails")
    assert jobs.record("a").job.failures == 1
    wait_until(lambda: kinds(jobs.plan()), "its back-off is over")
    jobs.apply()
    assert jobs.ended("a").reason == "exit code 1"
    assert jobs.output("a").split() == ["try", "try"]


def test_promises_are_kept_and_read_back(jobs):
    jobs.submit("a", gpus=4, expected_duration=3600)
    jobs.submit("b", gpus=4, expected_duration=3600)
    plan = jobs.plan(horizon={"slots": 4, "length": "30m"})
    jobs.apply(plan)
    (waiting,) = [each for each in jobs.host.snapshot().jobs if each.running is None]
    assert waiting.promise.start == plan.planned[0].start


def test_nothing_of_commands_is_in_snapshots_and_plans(jobs):
    jobs.submit("a", "echo parole; sleep 100")
    plan = jobs.plan()
    jobs.apply(plan)
    text = plan.full_text + jobs.host.snapshot().full_text + (jobs.folder / "audit.jsonl").read_text()
    assert "hunter2" not in text
    assert "parole" not in text
    files = list(jobs.host.queue.folder.rglob("*"))
    assert {each.stat().st_mode & 0o077 for each in files if each.name != "apply.lock"} == {0}


def test_command_files_are_gone_once_a_job_has_ended(jobs):
    jobs.submit("a", "true")
    jobs.apply()
    jobs.ended("a")
    assert not list(jobs.host.queue.folder.rglob("command.json"))


@pytest.mark.slow
def test_a_full_disk_makes_the_queue_unreachable_and_loses_nothing(jobs, monkeypatch):
    """An apply goes on after that, since what was begun is in the queue or not at all."""
    jobs.submit("a")
    plan = jobs.plan()
    real, count = runs.write_private, iter(range(100))

    def full(path, content):
        if next(count) < 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, content)

    monkeypatch.setattr(runs, "write_private", full)
    outcome = jobs.apply(plan)
    assert outcome.done == ("start/a",)
    assert jobs.record("a").attempts == 3

    monkeypatch.setattr(job_queue, "write_private", lambda *_: full_disk())
    with pytest.raises(UnreachableError, match="No space left on device"):
        jobs.submit("b")


def full_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_a_killed_process_was_writing_goes_with_its_job(jobs):
    jobs.submit("a", "true")
    place = jobs.host.queue.place(jobs.record("a"))
    (place / ".record.json.0123abcd.tmp").touch()
    jobs.apply()
    jobs.ended("a")
    assert not list(jobs.host.queue.folder.rglob("*.tmp"))
