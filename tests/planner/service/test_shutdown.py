"""Told once to end, a run ends after the step in hand; told twice, at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter

import pytest

from gpuplan.models.plan.solution import Milestone
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.service.history import read_history
from gpuplan.planner.service.shutdown import StopSignal, stop_on_signals
from tests.support.children.kill_assert import in_child
from tests.support.doubles.periodic_service import carried_out

pytestmark = pytest.mark.slow

GPUPLAN = (sys.executable, "-m", "gpuplan")


def ends_once(number):
    with stop_on_signals() as stop:
        os.kill(os.getpid(), number)
        stop.pause(60)
        sys.exit(0 if stop.requested else 1)


def told_twice(number):
    with stop_on_signals():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        sys.exit(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_a_pause_and_a_second_one_ends_the_process(number):
    assert in_child(ends_once, number) == 0
    assert in_child(told_twice, number) == -number


def test_afterwards_signals_mean_what_they_did():
    before = signal.getsignal(signal.SIGTERM)

    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) != before

    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("requested", "objective", "stage", "ends"),
    [
        (True, 5, "milp", True),
        (False, 5, "milp", False),
        (True, None, "milp", False),
        (True, 5, "draft", False),
    ],
)
def test_a_search_ends_only_once_it_has_a_plan_and_is_still_going_on(requested, objective, stage, ends):
    stop = StopSignal()
    if requested:
        stop.request()
    now = Milestone(1.0, stage, objective, 10)

    if ends:
        with pytest.raises(KeyboardInterrupt):
            stop.end_search(now)
    else:
        stop.end_search(now)
    stop.close()


def wait_for(process, word):
    """Lines of the log up to one that has a word in it."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(lines)


@pytest.fixture
def running(tmp_path, request):
    """A run of its own, at work on a copy of nothing but the quickstart scenario."""
    source = request.config.rootpath / "scenarios" / "quickstart"
    started = []

    def start(*options):
        command = [*GPUPLAN, "run", str(source), "--solver", "greedy", "--log", "text", *options]
        environment = os.environ | {"PYTHONPATH": str(request.config.rootpath)}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_sigterm_between_epochs_ends_a_run_well(running, tmp_path):
    process = running("--every", "10m", "--executor", "simulated", "--apply")
    wait_for(process, "event=epoch ")

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "")
    assert "event=ended epochs=1 told_to_stop=true" in err
    (record,) = read_history(tmp_path / ".gpuplan" / "history.db")
    assert (record.outcome, record.done) == ("applied", 5)


def test_metrics_are_served_while_it_runs(running):
    process = running("--every", "10m", "--listen", "127.0.0.1:0", "--log", "json")
    told = [json.loads(line) for line in wait_for(process, '"event": "epoch"')]
    (listening,) = (each for each in told if each["event"] == "listening")

    with urllib.request.urlopen(f"http://127.0.0.1:{listening['port']}/metrics", timeout=30) as answer:
        text = answer.read().decode()

    assert 'gpuplan_epochs_total{outcome="planned"} 1.0\n' in text
    assert 'reason="NotApplied"} ' in text


def test_one_run_at_a_time_and_the_next_one_goes_on(running, tmp_path):
    first = running("--every", "10m")
    wait_for(first, "event=epoch ")

    second = running("--every", "10m", "--epochs", "1")
    assert second.wait(timeout=60) == 1
    assert f"process {first.pid} " in second.stderr.read()

    first.kill()
    first.wait()
    third = running("--every", "10m", "--epochs", "1")
    assert third.wait(timeout=60) == 0
    assert [record.number for record in read_history(tmp_path / ".gpuplan" / "history.db")] == [1, 2]


def test_killed_from_outside_again_and_again_the_history_agrees_with_the_cluster(running, tmp_path):
    options = ("--every", "1s", "--executor", "simulated", "--apply", "--advance", "30m")
    for number in range(3):
        process = running(*options)
        wait_for(process, "event=planned")
        time.sleep(0.03 * number)
        process.kill()
        process.wait()
    last = running(*options, "--epochs", "2")
    assert last.wait(timeout=120) == 0

    records = read_history(tmp_path / ".gpuplan" / "history.db")
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert {record.outcome.value for record in records} <= {"applied", "resumed", "unchanged"}
    with SimulatedCluster(tmp_path / ".gpuplan" / "simulated.db") as live:
        done = Counter(key.partition("-")[0] for key, _ in live.operations())
    assert carried_out(records) == done
