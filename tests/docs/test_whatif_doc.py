"""What docs/whatif.md shows is read and printed by gpuplan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot
from gpuplan.planner.whatif.patch.scenario import Change, Expectation, Scenario, apply_scenario
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "whatif.md").read_text(encoding="utf-8")
QUICKSTART = str(ROOT / "scenarios" / "quickstart")


def without_times(text):
    return re.sub(r" *\d+\.\d s", " # s", text)


@pytest.mark.slow
def test_commands_print_what_is_shown():
    shown = fenced(TEXT, "console")

    assert len(shown) == 5
    for text in shown:
        prompt, expected = text.split("\n", 1)
        command = prompt.removeprefix("$ gpuplan ").split()
        done = run_command(command, folder=ROOT)
        assert without_times(done.stdout) == without_times(expected), done.stderr


def test_the_scenario_shown_fits_the_quickstart():
    [text] = fenced(TEXT, "yaml")
    policy = load_policy(default_policy_path(QUICKSTART))

    scenario = Scenario.model_validate(yaml.safe_load(text))

    assert apply_scenario(load_snapshot(QUICKSTART), policy, scenario).misfits == ()


def test_every_change_with_every_field_of_it_is_explained():
    table = [line for line in TEXT.splitlines() if line.startswith("| `")]
    for arm in Change.__args__[0].__args__:
        [tag] = arm.model_fields["change"].annotation.__args__
        [row] = [line for line in table if f"`{tag}`" in line.split("|")[1]]
        names = {field.alias or name for name, field in arm.model_fields.items()} - {"change", "memory_mib"}
        known = {"policy", "solver"}
        assert [name for name in sorted(names - known) if f"`{name}" not in row] == [], tag


def test_every_figure_that_may_be_expected_is_named():
    assert [name for name in Expectation.model_fields if name not in TEXT] == []
