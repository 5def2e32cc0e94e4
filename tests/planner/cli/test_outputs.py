"""Where an answer cannot be written: told before anything is planned, and never at the cost of the answer."""

from __future__ import annotations

import pytest

WRITERS = [
    ("plan", "SOURCE", "-o", "plan.json"),
    ("plan", "SOURCE", "--report", "plan.html"),
    ("whatif", "SOURCE", "SCENARIO", "--report", "page.html"),
    ("sweep", "SOURCE", "demand=1,2", "-o", "sweep.svg"),
    ("search-log", "LOG", "-o", "gap.svg"),
    ("snapshot", "--from", "simulated", "-o", "snapshot.json"),
]


@pytest.mark.parametrize("command", WRITERS, ids=lambda command: f"{command[0]} {command[-2]}")
def test_a_path_that_cannot_be_written_is_told_before_anything_is_read(gpuplan, command):
    *before, name = command

    shown = gpuplan(*before, f"none/{name}")

    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith(f"Error: none/{name} cannot be written: No such file or directory.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("plan", "SOURCE", "-o", "full.svg"), "Plan: 5 to start"),
        (("plan", "SOURCE", "--report", "full.svg"), "Plan: 5 to start"),
        (("plan", "SOURCE", "--json", "-o", "full.svg"), '"plan_id"'),
        (("whatif", "SOURCE", "SCENARIO", "--report", "full.svg"), "1 scenario,"),
        (("sweep", "SOURCE", "demand=1,2", "-o", "full.svg"), "Sweep of demand"),
    ],
)
def test_a_full_disk_does_not_cost_the_answer(gpuplan, quickstart, tmp_path, command, answer):
    (tmp_path / "full.svg").symlink_to("/dev/full")
    known = {"SOURCE": quickstart, "SCENARIO": quickstart / "scenario.other-quota.yaml"}

    shown = gpuplan(*(known.get(word, word) for word in command), "--solver", "greedy")

    assert shown.code == 1
    assert answer in shown.out
    assert "full.svg cannot be written: No space left on device." in shown.err
