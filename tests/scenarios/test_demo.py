"""The loop that `make demo` shows, here on the small scenario; and the production one planned in full."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuplan.models.placement import Running
from gpuplan.models.plan.actions import Start
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.files import load_policy, load_snapshot

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PRODUCTION = ROOT / "scenarios" / "production"


def test_demo_script_goes_round_the_loop_and_ends_at_rest(tmp_path):
    gpuplan = Path(sys.executable).parent / "gpuplan"
    script = ROOT / "scenarios" / "demo.sh"
    command = ["sh", script, gpuplan, ROOT / "scenarios" / "quickstart", tmp_path / "demo"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "No changes" in done.stdout.split("$ gpuplan plan")[-1]
    # What the README shows of it are the same commands, on the production scenario.
    commands = re.findall(r"^\$ gpuplan (\w+)", done.stdout, re.MULTILINE)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text demo\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)[1]
    assert re.findall(r"^\$ gpuplan (\w+)", shown, re.MULTILINE) == commands


@pytest.fixture(scope="module")
def production():
    return load_snapshot(str(PRODUCTION)), load_policy(str(PRODUCTION / "policy.yaml"))


def test_production_is_planned_verified_and_at_rest_afterwards(production):
    snapshot, policy = production

    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)

    verification = verify(snapshot, policy, plan.placements)
    assert verification.violations == ()
    assert verification.objective == plan.solution.objective >= plan.solution.greedy_objective
    assert plan.solution.bound >= plan.solution.objective
    assert plan.metrics.jobs.started > 3000
    places = {action.job: action.after.replicas for action in plan.actions if isinstance(action, Start)}
    jobs = tuple(
        job.model_copy(update={"running": Running(started_at=snapshot.taken_at, replicas=places[job.name])})
        if job.name in places
        else job
        for job in snapshot.jobs
    )
    again = plan_epoch(
        snapshot.model_copy(update={"jobs": jobs}),
        policy.model_copy(update={"solvers": ()}),
        seed=0,
        created_at=snapshot.taken_at,
    )
    assert not again.has_changes
