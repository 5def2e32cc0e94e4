"""Run the command line in this process, as `main` does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuplan.planner.cli import main

QUICKSTART = Path(__file__).parents[3] / "scenarios" / "quickstart"


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def gpuplan(capsys, monkeypatch, tmp_path):
    """Run gpuplan in an empty folder at 80 columns; (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpuplan", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(ended.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def quickstart():
    return QUICKSTART


@pytest.fixture
def plan_file(gpuplan, quickstart, tmp_path):
    """A saved plan of the quickstart scenario."""
    path = tmp_path / "plan.json"
    assert gpuplan("plan", quickstart, "--solver", "greedy", "-o", path).code == 0
    return path
