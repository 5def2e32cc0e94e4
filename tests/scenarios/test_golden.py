"""
Every scenario with an expected.txt, as people plan it: what is printed; verified, applied, and at rest.

Where a plan looks ahead, what it promised is kept too: by the next plan, and as the hours go by.

`make golden` rewrites the files; read the difference before it is committed.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from gpuplan.planner.sources.files import default_policy_path, load_policy
from tests.support.output.golden import golden
from tests.support.output.run_command import run_command

pytestmark = pytest.mark.slow

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FOLDERS = sorted(path.parent.name for path in SCENARIOS.glob("*/expected.txt"))
AHEAD = [
    folder
    for folder in FOLDERS
    if load_policy(default_policy_path(str(SCENARIOS / folder))).horizon.slots > 1
]
"""Those with plans that have a later."""


@pytest.fixture
def gpuplan(monkeypatch, tmp_path):
    """Run gpuplan in an empty folder; what it prints at 80 columns."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        done = run_command(arguments, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def without_times(text):
    return re.sub(r"in \d+\.\d s", "in # s", text)


def written(name):
    return json.loads(Path(name).read_text(encoding="utf-8"))


def promises(plan):
    """When jobs with a promise are to start."""
    return {each["job"]: each["start"] for each in plan.get("planned", ()) if each["promised"]}


def stopped(plan):
    return {action["job"] for action in plan.get("actions", ()) if action["type"] == "preempt"}


def test_there_are_scenarios_to_compare():
    assert len(FOLDERS) >= 18
    assert len(AHEAD) >= 5


@pytest.mark.parametrize("folder", FOLDERS)
def test_plan_prints_what_is_expected_and_is_proven_optimal(gpuplan, folder):
    printed = without_times(gpuplan("plan", SCENARIOS / folder))

    assert printed == golden(SCENARIOS / folder / "expected.txt", printed)
    assert re.search(r"^\w+ OPTIMAL  objective .*  gap 0\.0 %", printed, re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_plan_is_verified_and_once_applied_nothing_is_left_to_do(gpuplan, folder):
    source = SCENARIOS / folder
    gpuplan("plan", source, "-o", "plan.json")

    assert "break no rule" in gpuplan("verify", "plan.json", source)

    cluster = ("--state", "cluster.db")
    done = gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve", *cluster)
    assert "Apply complete" in done
    gpuplan("snapshot", "--from", "simulated", *cluster, "-o", "after.json")
    again = gpuplan("plan", "after.json", "--policy", source / "policy.yaml", "-o", "again.json")
    assert re.search(r"^\w+ OPTIMAL  objective .*  gap 0\.0 %", again, re.MULTILINE), again
    assert "\nNo changes: " in again
    assert "Promises changed" not in again
    before, after = written("plan.json"), promises(written("again.json"))
    remembered = {
        job["name"]: job["promise"]["start"] for job in written("after.json")["jobs"] if job.get("promise")
    }
    assert remembered == promises(before)
    # A job stopped for good waits from then on, and is promised something by the next plan.
    new = set(stopped(before)) - promises(before).keys()
    assert promises(before) == {name: at for name, at in after.items() if name not in new}


@pytest.mark.parametrize("folder", AHEAD)
def test_a_promised_start_happens_when_its_time_comes(gpuplan, folder):
    cluster, policy = ("--state", "cluster.db"), ("--policy", SCENARIOS / folder / "policy.yaml")
    gpuplan("plan", SCENARIOS / folder, "-o", "plan.json")
    first = plan = written("plan.json")
    promised, started = promises(first), {}

    while True:
        started |= {
            action["job"]: plan["epoch"] for action in plan.get("actions", ()) if action["type"] == "start"
        }
        if promised.keys() <= started.keys():
            break
        gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve", *cluster)
        soonest = min(promises(plan).values())
        seconds = datetime.fromisoformat(soonest) - datetime.fromisoformat(plan["epoch"])
        gpuplan("simulated", "advance", f"{int(seconds.total_seconds())}s", *cluster)
        gpuplan("snapshot", "--from", "simulated", *cluster, "-o", "now.json")
        gpuplan("plan", "now.json", *policy, "-o", "plan.json")
        plan = written("plan.json")

    assert promised
    assert all(started[name] <= at for name, at in promised.items())
