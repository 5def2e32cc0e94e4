"""An output never destroys an input, nor another output, by whatever name it is called."""

from __future__ import annotations

import shutil
import sys

import pytest

from gpuplan.planner.cli import cli
from gpuplan.planner.cli.outputs import NewFile, WritingCommand

SCENARIO = "world/scenario.more-nodes.yaml"
WRITERS = [
    ("plan", "world", "-o"),
    ("plan", "world", "--report"),
    ("plan", "world", "--search-log"),
    ("whatif", "world", SCENARIO, "--report"),
    ("simulate", "world", "--report"),
    ("simulate", "world", "--csv"),
    ("simulate", "world", "--scores"),
    ("run", "world", "--epochs", "1", "--metrics-file"),
    ("event", "world", "spot-notice", "--node", "h100-1", "--at", "+120s", "-o"),
]


@pytest.fixture
def world(tmp_path, quickstart):
    """A copy of a scenario, and what is in it."""
    folder = tmp_path / "world"
    shutil.copytree(quickstart, folder)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_command_that_writes_files_guards_its_inputs():
    writing = {
        name
        for name, command in cli.commands.items()
        if any(isinstance(each.type, NewFile) for each in command.params)
    }

    assert writing == {
        *("approve", "event", "plan", "rollback", "run", "search-log", "simulate", "snapshot", "sweep"),
        "whatif",
    }
    assert all(isinstance(cli.commands[name], WritingCommand) for name in writing)
    others = [each for name in cli.commands.keys() - writing for each in cli.commands[name].params]
    assert not any({"-o", "--out", "--report"} & set(each.opts) for each in others)


@pytest.mark.parametrize("command", WRITERS, ids=lambda command: f"{command[0]} {command[-1]}")
def test_a_document_of_the_source_is_not_written_over(gpuplan, world, command):
    before = contents(world)

    shown = gpuplan(*command, "world/jobs.yaml")

    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("Error: world/jobs.yaml cannot be written: SOURCE reads it")
    assert contents(world) == before


@pytest.mark.parametrize("name", ["./world/../world/jobs.yaml", "symbolic", "hard", "folder/jobs.yaml"])
def test_another_spelling_of_an_input_is_that_input(gpuplan, world, tmp_path, name):
    before = contents(world)
    (tmp_path / "symbolic").symlink_to("world/jobs.yaml")
    (tmp_path / "hard").hardlink_to(world / "jobs.yaml")
    (tmp_path / "folder").symlink_to("world")

    shown = gpuplan("plan", "world", "--solver", "greedy", "-o", name)

    assert shown.code == 1
    assert "SOURCE reads it" in shown.err
    assert contents(world) == before


def test_policies_plans_scenarios_and_pictures_of_logs_are_inputs_too(gpuplan, world, tmp_path):
    assert (
        gpuplan("plan", "world", "--solver", "greedy", "-o", "old.json", "--search-log", "log.svg").code == 0
    )
    shutil.copy(world / "policy.yaml", tmp_path / "mine.yaml")
    before = contents(world) | {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    told = [
        gpuplan(*command).err.partition("\n")[0]
        for command in (
            ("plan", "world", "-o", "world/policy.yaml"),
            ("plan", "world", "--policy", "mine.yaml", "-o", "mine.yaml"),
            ("plan", "world", "--after", "old.json", "-o", "old.json"),
            ("plan", "old.json", "--report", "old.json"),
            ("whatif", "world", SCENARIO, "--report", SCENARIO),
            ("search-log", "log.svg", "-o", "log.svg"),
            ("snapshot", "--from", "synthetic", "--profile", "world/jobs.yaml", "-o", "world/jobs.yaml"),
        )
    ]

    assert [line.partition("cannot be written: ")[2] for line in told] == [
        "SOURCE reads it, and --out would destroy that.",
        "--policy reads it, and --out would destroy that.",
        "--after reads it, and --out would destroy that.",
        "SOURCE reads it, and --report would destroy that.",
        "SOURCE reads it, and --report would destroy that.",
        "LOG_FILE reads it, and --out would destroy that.",
        "--profile reads it, and --out would destroy that.",
    ]
    after = contents(world) | {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert after == before


def test_a_source_on_standard_input_is_an_input(gpuplan, world, tmp_path, monkeypatch):
    (tmp_path / "in.yaml").write_text("jobs: []")
    with (tmp_path / "in.yaml").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)

        shown = gpuplan("plan", "-", "-o", "in.yaml")

    assert "SOURCE reads it" in shown.err
    assert (tmp_path / "in.yaml").read_text() == "jobs: []"


def test_two_outputs_of_one_name_are_refused(gpuplan, world):
    shown = gpuplan("plan", "world", "-o", "a.json", "--report", "./a.json")

    assert shown.code == 1
    assert "a.json cannot be written: --out writes it, and --report would destroy that." in shown.err


@pytest.mark.parametrize("name", ["world/plan.json", "world/mine.json", "elsewhere.json"])
def test_a_plan_may_follow_another_one_even_in_the_source(gpuplan, world, name):
    for _ in range(2):
        shown = gpuplan("plan", "world", "--solver", "greedy", "-o", name)

        assert shown.code == 0


def test_a_device_may_take_several_outputs(gpuplan, world):
    shown = gpuplan("plan", "world", "--solver", "greedy", "-o", "/dev/null", "--report", "/dev/null")

    assert shown.code == 0


def test_a_document_that_is_called_like_the_link_to_the_last_plan_is_kept(gpuplan, world):
    (world / "latest.json").write_text('{"jobs": []}')

    shown = gpuplan("run", "world", "--epochs", "1", "--solver", "greedy", "--plans", "world")

    assert shown.code == 1
    assert "latest.json" in shown.err
    assert (world / "latest.json").read_text() == '{"jobs": []}'
