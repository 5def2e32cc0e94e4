"""
Every scenario with an expected.txt, as people plan it: what is printed; verified, applied, and at rest.

`make golden` rewrites the files; whoever does so reads the difference.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from planner.cli import main

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FOLDERS = sorted(path.parent.name for path in SCENARIOS.glob("*/expected.txt"))
REWRITE = "GPUPLAN_REWRITE_GOLDEN" in os.environ


@pytest.fixture
def gpuplan(capsys, monkeypatch, tmp_path):
    """Run gpuplan in an empty folder; what it prints to a pipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpuplan", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert not ended.value.code, captured.err
        return captured.out

    return run


def without_times(text):
    return re.sub(r"in \d+\.\d s", "in # s", text)


def test_there_are_scenarios_to_compare():
    assert len(FOLDERS) >= 13


@pytest.mark.parametrize("folder", FOLDERS)
def test_plan_prints_what_is_expected_and_is_proven_optimal(gpuplan, folder):
    expected = SCENARIOS / folder / "expected.txt"

    printed = without_times(gpuplan("plan", SCENARIOS / folder))

    if REWRITE:
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8")
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
    again = gpuplan("plan", "after.json", "--policy", source / "policy.yaml")
    assert re.search(r"^\w+ OPTIMAL  objective .*  gap 0\.0 %", again, re.MULTILINE), again
    assert "\nNo changes: " in again
