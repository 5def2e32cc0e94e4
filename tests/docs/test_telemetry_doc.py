"""What docs/telemetry.md shows is what gpuplan prints, reads and asks for."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gpuplan.models.health.measurement import BUSY, COOL, FATAL_XIDS, HealthPolicy
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.sources.dcgm import prometheus, telemetry
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")


def test_commands_print_what_is_shown():
    (block,) = fenced(TEXT, "console")
    words, expected = block.removeprefix("$ gpuplan ").split("\n", 1)

    done = run_command(words.split(), folder=ROOT)

    assert done.stderr + done.stdout == expected


def test_the_policy_that_is_shown_is_one():
    (shown,) = fenced(TEXT, "yaml")

    assert Policy.model_validate(yaml.safe_load(shown)).health.heat.lasting == 600


def test_the_defaults_and_limits_are_those_of_the_rules():
    rules = HealthPolicy()

    assert f"| `heat` | {rules.heat.celsius} °C for 10m: `{rules.heat.action}` |" in TEXT
    assert f"| `idle` | {rules.idle.percent} % for 30m: `{rules.idle.action}` |" in TEXT
    assert (rules.heat.lasting, rules.idle.lasting) == (600, 1800)
    assert f"| `uncorrectable` | `{rules.uncorrectable}` |" in TEXT
    assert f"| `row_remap` | `{rules.row_remap}` |" in TEXT
    (listed,) = re.findall(r"XIDs: ([\d, and]+), after", TEXT)
    assert {int(code) for code in re.findall(r"\d+", listed)} == set(FATAL_XIDS)
    assert f"at {COOL} °C and more" in TEXT
    assert f"at {BUSY} % and less" in TEXT


def test_metrics_and_variables_are_listed():
    source = Path(telemetry.__file__).read_text(encoding="utf-8")

    assert set(re.findall(r"DCGM_(?:FI|EXP)_[A-Z_]+", TEXT)) == set(
        re.findall(r"DCGM_(?:FI|EXP)_[A-Z_]+", source)
    )
    names = (prometheus.TOKEN_FILE, prometheus.CA_FILE, prometheus.CERT_FILE, prometheus.KEY_FILE)
    assert set(re.findall(r"GPUPLAN_[A-Z_]+", TEXT)) == set(names)
