"""What docs/running.md shows is what gpuplan prints, and tells of every outcome, event, metric, alert."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpuplan.models.policy.policy import Policy
from gpuplan.planner.service.history import EpochOutcome
from tests.support.output.markdown_blocks import fenced
from tests.support.output.metric_names import full_exposition
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")


def timeless(text):
    """Without times of day, and what a slow machine adds."""
    shown = re.sub(r"\s+\d+ ticks? skipped$", "", text, flags=re.MULTILINE)
    return re.sub(r"\d\d:\d\d:\d\d", "##:##:##", shown)


@pytest.mark.slow
def test_commands_print_what_is_shown(tmp_path):
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (shown,) = fenced(TEXT, "console")

    for step in shown.split("$ gpuplan ")[1:]:
        words, expected = step.split("\n", 1)
        command = words.split()
        done = run_command(command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert timeless(done.stdout) == timeless(expected)


def test_policies_shown_are_policies_under_which_some_plans_wait():
    (shown,) = fenced(TEXT, "yaml")
    policy = Policy.model_validate(yaml.safe_load(shown))

    assert policy.approval.has_conditions
    assert not policy.approval.signatures


@pytest.mark.parametrize("outcome", EpochOutcome)
def test_every_outcome_is_explained(outcome):
    assert f"| `{outcome.value}` |" in TEXT


def test_every_event_is_named():
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "planner" / "service").glob("*.py"))
    events = {event for source in sources for event in re.findall(r'\blog_event\(\s*_LOG,\s*"(\w+)"', source)}

    assert {event for event in events if f"`{event}`" not in TEXT} == set()
    assert len(events) > 8


def test_every_metric_is_explained_with_its_labels_and_no_other():
    shown = {
        name: set(re.findall(r"`(\w+)`", labels))
        for name, labels in re.findall(r"^\| `(gpuplan_\w+)` \|([^|]*)\|", TEXT, re.MULTILINE)
    }
    exported = {}
    for family in text_string_to_metric_families(full_exposition().text()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = set().union(*(sample.labels for sample in family.samples))
        exported[name] = labels - {"le"}

    assert shown == exported


def test_every_alert_is_explained():
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    names = {rule["alert"] for group in groups["groups"] for rule in group["rules"]}

    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", TEXT, re.MULTILINE)) == names
