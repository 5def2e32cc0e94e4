"""kill -9 of the apply, of the supervisor and of the job, wherever they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuplan.models.dependency import JobOutcome
from gpuplan.planner.executors.local import private_files, runs
from gpuplan.planner.executors.local.runs import RunPhase
from gpuplan.planner.io import processes
from gpuplan.planner.plan_file.plan_file import save_plan
from tests.support.harness.local_jobs import SLEEP, kinds, wait_until
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
CHILD = ROOT / "tests" / "support" / "children" / "kill_local.py"
BEGINS = "echo begin >> {log}; "
EDGES = range(1, 24, 1 if EVERY_SEED else 9)
"""Deeds of an apply that preempts a job and starts another."""


def begun(log):
    """Names of the jobs that began, in order."""
    return log.read_text().split() if log.exists() else []


def apply_in_child(plan_file, folder, which, when):
    words = [sys.executable, str(CHILD), "apply", str(plan_file), str(folder), str(which), when]
    return subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", EDGES)
def test_an_apply_killed_at_any_deed_goes_on(jobs, tmp_path, which, when):
    log = tmp_path / "log"
    jobs.submit("small", f"trap '' USR1; echo small >> {log}; {SLEEP}", gpus=4, notice=0)
    jobs.apply()
    wait_until(lambda: begun(log) == ["small"], "it begins")
    jobs.submit("large", f"echo large >> {log}; {SLEEP}", gpus=4, priority=9000)
    plan = jobs.plan()
    assert kinds(plan) == ["preempt/small", "start/large"]
    save_plan(plan, tmp_path / "plan.json")
    folder = jobs.host.queue.folder
    first = apply_in_child(tmp_path / "plan.json", folder, which, when)
    if first.returncode == 0:
        assert which > len(first.stdout.split())
    else:
        assert first.returncode == -signal.SIGKILL, first.stderr
        second = apply_in_child(tmp_path / "plan.json", folder, 0, when)
        assert second.returncode == 0, second.stderr
    assert jobs.gpus() == {"large": [0, 1, 2, 3]}
    wait_until(lambda: len(begun(log)) == 2, "it begins")
    time.sleep(0.2)
    assert begun(log) == ["small", "large"]
    assert jobs.record("small").job.preemptions == 1
    assert kinds(jobs.plan()) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(1, 7, 1 if EVERY_SEED else 2))
def test_a_supervisor_killed_at_any_deed_starts_nothing_twice(jobs, tmp_path, monkeypatch, which, when):
    """Deeds: fork, claim, fork of the job, started, release, launcher, exit."""
    log, real, spawned = tmp_path / "log", subprocess.run, []

    def run(words, **more):
        if supervisor_of(words) and not spawned:
            spawned.append(words)
            words = [words[0], str(CHILD), "supervise", *words[-2:], str(which), when]
            more |= {"env": {**os.environ, "PYTHONPATH": str(ROOT)}}
        return real(words, **more)

    monkeypatch.setattr(runs.subprocess, "run", run)
    jobs.submit("a", f"echo a >> {log}; sleep 0.3")
    jobs.apply()
    jobs.ended("a")
    assert spawned
    assert begun(log) == ["a"]


def supervisor_of(words):
    return runs.supervisor.__name__ in words


def test_a_job_outlives_its_supervisor_and_keeps_its_gpus(jobs, tmp_path):
    log = tmp_path / "log"
    jobs.submit("a", f"echo a >> {log}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done", gpus=4)
    jobs.apply()
    wait_until(lambda: begun(log), "it begins")
    kill_supervisor(jobs, "a")
    assert jobs.gpus() == {"a": [0, 1, 2, 3]}
    jobs.submit("b", gpus=4)
    assert kinds(jobs.plan()) == []
    (tmp_path / "go").touch()
    end = jobs.ended("a")
    assert (end.outcome, end.reason) == (
        JobOutcome.FAILED,
        "its supervisor was killed, so its end is not known",
    )
    assert kinds(jobs.plan()) == ["start/b"]
    assert begun(log) == ["a"]


def test_a_job_without_its_supervisor_is_stopped(jobs, tmp_path):
    log = tmp_path / "log"
    jobs.submit("small", f"echo small >> {log}; trap '' TERM; {SLEEP}", gpus=4)
    jobs.apply()
    wait_until(lambda: begun(log), "it begins")
    kill_supervisor(jobs, "small")
    jobs.submit("large", gpus=4, priority=9000)
    jobs.apply()
    assert jobs.gpus() == {"large": [0, 1, 2, 3]}
    assert jobs.record("small").job.preemptions == 1


def kill_supervisor(jobs, name):
    record = jobs.record(name)
    place = jobs.host.queue.place(record)
    watcher = processes.ProcessId(
        **private_files.read_json(place / f"run-{record.attempt.number}.json")["supervisor"]
    )
    processes.signal_process(watcher, signal.SIGKILL)
    wait_until(lambda: not watcher.alive, "it is killed")
    return watcher


def test_a_host_that_was_started_anew_has_no_running_jobs(jobs, monkeypatch):
    jobs.submit("a")
    jobs.apply()
    monkeypatch.setattr(runs, "boot_id", lambda: "another")
    monkeypatch.setattr(processes, "boot_id", lambda: "another")
    assert jobs.run("a") is None
    assert kinds(jobs.plan()) == ["start/a"]
    assert jobs.record("a").job.failures == 0


def test_an_id_that_was_given_again_is_not_the_process(jobs):
    """That of a supervisor that was killed; a living one would still record how its job ends."""
    jobs.submit("a")
    jobs.apply()
    watcher = kill_supervisor(jobs, "a")
    place = jobs.host.queue.place(jobs.record("a"))
    other = processes.ProcessId(os.getpid(), watcher.ticks + 1, watcher.boot)
    assert not other.alive
    private_files.write_private(place / "run-1.json", {"supervisor": other.document()})
    runs.stop(place, 1)
    wait_until(lambda: runs.run_of(place, 1).phase is RunPhase.LOST, "it is killed")
