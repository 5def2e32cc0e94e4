"""What `--help` says of each command, and what completes a command line at the prompt."""

from __future__ import annotations

import shlex

import click
import pytest
from click.shell_completion import ShellComplete

from gpuplan.planner.cli import SECTIONS, cli


def commands():
    for name, command in cli.commands.items():
        yield (name,), command
        if isinstance(command, click.Group):
            yield from (((name, inner), each) for inner, each in command.commands.items())


COMMANDS = dict(commands())


def completed(*words):
    """What may follow these words; the last of them is incomplete."""
    *known, incomplete = words
    found = ShellComplete(cli, {}, "gpuplan", "_GPUPLAN_COMPLETE").get_completions(known, incomplete)
    return [item.value if item.type == "plain" else item.type for item in found]


def test_each_command_is_listed_in_one_section_with_a_whole_sentence(gpuplan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    lines = gpuplan("--help").out.splitlines()

    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(cli.commands)
    rows = [next(line for line in lines if line.startswith(f"  {name} ")) for name in listed]
    assert all(row.endswith(".") and not row.endswith("...") for row in rows)
    assert max(map(len, rows)) <= 80
    order = [line.removesuffix(":") for line in lines if line.removesuffix(":") in SECTIONS]
    assert order == list(SECTIONS)


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_each_command_has_an_example_that_can_be_typed(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = COMMANDS[names].epilog.removeprefix("Example: ").partition(" && ")[0].partition(" > ")[0]
    program, *words = shlex.split(example)

    assert program == "gpuplan"
    assert tuple(words[: len(names)]) == names
    command = cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    # A name or an option that does not exist would be a usage error.
    command.make_context(command.name, words)


def test_jobs_queues_and_nodes_of_the_source_are_completed(quickstart):
    source = str(quickstart)

    assert completed("explain", source, "train") == ["train-base", "train-ranker"]
    assert completed("explain", source, "h100-") == ["h100-1", "h100-2", "h100-3", "h100-4"]
    assert completed("explain", source, "queue/") == ["queue/company", "queue/products", "queue/research"]
    assert completed("fit", source, "h100-") == []
    assert completed("capacity", source, "abl") == ["ablation"]


def test_jobs_of_a_saved_plan_are_completed(plan_file):
    assert completed("explain", str(plan_file), "render") == ["render"]


def test_nodes_of_a_simulated_cluster_are_completed(gpuplan, quickstart):
    assert gpuplan("simulated", "create", quickstart, "--state", "c.db").code == 0

    assert completed("simulated", "fail", "--state", "c.db", "a100") == ["a100-1"]


def test_files_are_completed_by_the_shell():
    assert completed("plan", "x") == ["file"]
    assert completed("plan", "x", "--policy", "p") == ["file"]
    assert completed("show", "pl") == ["file"]


def test_a_source_that_cannot_be_read_completes_nothing(tmp_path):
    (tmp_path / "bad.json").write_text("{")

    assert completed("explain", str(tmp_path / "bad.json"), "a") == []
    assert completed("explain", str(tmp_path / "missing"), "a") == []


def test_a_backspace_marks_lines_that_stay_as_they_are(gpuplan):
    shown = gpuplan("approve", "--help").out

    assert "\\b" not in shown
    assert "    gpuplan approve plan.json --statement -o statement\n    ssh-keygen -Y sign" in shown
