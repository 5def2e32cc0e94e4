"""Scenario documents: what is read, and every mistake at its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from gpuplan.models.errors import BadInputError
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.schemas import schema
from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot
from gpuplan.planner.whatif.patch.scenario import load_scenarios
from tests.support.builders.build import job, node, snapshot
from tests.support.output.golden import golden_section

SCENARIOS = Path(__file__).parents[4] / "scenarios"
TEXTS = Path(__file__).with_name("texts.golden.txt")
SHIPPED = sorted(SCENARIOS.glob("*/scenario.*.yaml"))
WORLD = snapshot(nodes=[node("n0", rack="r1")], jobs=[job("a")])


def problems(tmp_path, *texts):
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"s{number}.yaml")
        paths[-1].write_text(text)
    with pytest.raises(BadInputError) as refused:
        load_scenarios([str(path) for path in paths], WORLD, Policy())
    return str(refused.value).replace(f"{tmp_path}/", "") + "\n"


def test_every_mistake_is_told_with_its_line_and_what_was_meant(tmp_path):
    told = problems(
        tmp_path,
        "name: a\nchanges:\n  - {change: fail_node, nodes: {rack: r1}}\n  - {nodes: {rack: r1}}\n"
        "  - {change: scale_demand, facto: 2}\n  - change: set_policy\n    policy: {prices: {guarante: 1}}\n"
        "expectations:\n  - {jobs_running: many}\n",
    )

    assert told == golden_section(TEXTS, "mistakes in a scenario", told)


def test_what_does_not_fit_is_told_for_all_scenarios_at_once(tmp_path):
    told = problems(
        tmp_path,
        "name: a\nchanges:\n\n  - {change: fail_nodes, nodes: {rack: rack-1}}\n",
        "name: b\nexpectations:\n  - {job: aa, runs: true}\n",
        "name: a\n",
    )

    assert told == golden_section(TEXTS, "what does not fit in scenarios", told)


@pytest.mark.parametrize(
    "change",
    [
        {"change": "add_nodes"},
        {"change": "add_nodes", "like": "n0", "pool": "p"},
        {"change": "fail_nodes", "nodes": {}},
        {"change": "fail_nodes", "nodes": {"count": 2}},
        {"change": "set_price", "factor": 2},
        {"change": "set_price", "nodes": {"all": True}},
        {"change": "set_price", "nodes": {"all": True}, "factor": 2, "value": 0},
        {"change": "set_quota", "queue": "q"},
        {"change": "set_quota", "queue": "q", "unlimited": True, "nominal": 0},
        {"change": "set_quota", "queue": "q", "factor": 2, "nominal": 1},
        {"change": "set_quota", "queue": "q", "resource": "cpus", "guarantee": 1, "nominal": 1},
        {"change": "set_quota", "queue": "q", "resource": "memory", "gpu_model": "T4", "nominal": 1},
        {"change": "set_quota", "queue": "q", "resource": "memory", "nominal": "much"},
        {"change": "set_quota", "queue": "q", "resource": "cpus", "nominal": 1000001},
        {"change": "set_jobs", "jobs": {"names": ["a"]}},
        {"change": "set_pool", "pool": "p"},
        {"change": "add_jobs", "jobs": []},
    ],
)
def test_a_change_that_says_too_little_or_too_much_is_refused(tmp_path, change):
    text = yaml.safe_dump({"name": "a", "changes": [change]})

    assert "changes[0]" in problems(tmp_path, text)


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_scenarios_fit_their_snapshot_and_the_schema(path):
    source = str(path.parent)
    snapshot_, policy = load_snapshot(source), load_policy(default_policy_path(source))

    [(scenario, patched)] = load_scenarios([str(path)], snapshot_, policy)

    assert path.name == f"scenario.{scenario.name}.yaml"
    assert scenario.description
    assert scenario.expectations
    assert patched.snapshot != snapshot_
    Draft202012Validator(schema("scenario")).validate(yaml.safe_load(path.read_text()))


def test_some_scenarios_are_shipped():
    assert len(SHIPPED) >= 4
