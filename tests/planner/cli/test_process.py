"""What only a process of its own shows: start-up, pipes, signals."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

GPUPLAN = (sys.executable, "-m", "gpuplan")
HEAVY = ("numpy", "pandas", "ortools", "pulp", "highspy", "pydantic", "rich", "jinja2", "yaml")


def run(*arguments, **more):
    return subprocess.run(
        [*GPUPLAN, *map(str, arguments)], capture_output=True, text=True, check=False, **more
    )


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from click.testing import CliRunner; from gpuplan.planner.cli import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert shown.stdout == "[]\n"


def test_a_plan_imports_no_data_frames(quickstart):
    script = (
        "import sys; from click.testing import CliRunner; from gpuplan.planner.cli import cli\n"
        f"assert CliRunner().invoke(cli, ['plan', {str(quickstart)!r}]).exit_code == 0\n"
        "print([name for name in ('pandas', 'ortools', 'pulp') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert shown.stdout == "[]\n"


def test_snapshot_flows_through_a_pipe(quickstart):
    snapshot = "".join(
        (quickstart / name).read_text() + "\n---\n" for name in ("cluster.yaml", "queues.yaml", "jobs.yaml")
    )

    shown = run("plan", "-", "--solver", "greedy", input=snapshot.removesuffix("---\n"))

    assert shown.returncode == 0, shown.stderr
    assert "Plan: 5 to start" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert shown.stderr == ""


def test_reader_that_leaves_early_is_no_error(quickstart):
    command = f"{' '.join(GPUPLAN)} schema plan | head -n 1; echo ${{PIPESTATUS[0]}}"

    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert shown.stdout == "{\n0\n"
    assert shown.stderr == ""


def test_output_that_cannot_carry_signs_is_ascii(quickstart):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}

    shown = run("plan", quickstart, "--solver", "greedy", env=environment)

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.isascii()


def test_closed_standard_output_is_no_error(quickstart):
    command = f"{' '.join(GPUPLAN)} plan {quickstart} --solver greedy >&-"

    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (shown.returncode, shown.stderr) == (0, "")


def test_in_a_pipe_nothing_is_cut_or_wrapped_unless_columns_says_so(quickstart):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}

    whole = run("plan", quickstart, "--solver", "greedy", env=environment).stdout
    narrow = run("plan", quickstart, "--solver", "greedy", env=environment | {"COLUMNS": "60"}).stdout

    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, whole.splitlines()))
    assert "no node matches: node lacks label disk=nvme (5 nodes), node is cordoned (1 node)\n" in whole
    # One line an action, so that a pipe can count and filter them.
    changed = [line for line in whole.splitlines() if line.startswith(("  +", "  ."))]
    assert len(changed) == len(whole.split("\n\n")[1].splitlines()) + len(whole.split("\n\n")[2].splitlines())
