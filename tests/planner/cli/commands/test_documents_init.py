"""`gpuplan init`: files that can be planned at once."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuplan import Policy, plan
from gpuplan.planner.cli.commands.documents import init_command
from gpuplan.planner.sources.files import STARTERS, starter_texts
from tests.support.builders.build import cluster, job, snapshot


@pytest.mark.parametrize("kind", STARTERS)
def test_a_starter_is_valid_and_something_starts(gpuplan, kind):
    assert gpuplan("init", "mine", "--for", kind).code == 0

    validated = gpuplan("validate", "mine")
    assert (validated.code, validated.err) == (0, "")
    plan = json.loads(gpuplan("plan", "mine", "--solver", "greedy", "--json").out)
    assert plan["metrics"]["jobs"]["started"] > 0


@pytest.mark.parametrize("kind", ["training", "inference", "batch"])
def test_a_starter_starts_the_shorter_job_at_once(kind):
    policy = Policy.model_validate(yaml.safe_load(starter_texts(kind)["policy.yaml"]))
    short, long = job("b", gpus=8, expected_duration="1h"), job("a", gpus=8, expected_duration="9h")

    found = plan(snapshot(nodes=cluster(1), jobs=[long, short]), policy, solver="greedy")

    assert [each.job for each in found.actions if each.type == "start"] == ["b"]
    # A promised start keeps room free, and jobs complete later on average.
    assert not any(each.promised for each in found.waiting)


def test_each_knob_of_a_policy_has_its_reason_beside_it(gpuplan, tmp_path):
    for kind in STARTERS:
        gpuplan("init", kind, "--for", kind)
        text = (tmp_path / kind / "policy.yaml").read_text()
        assert text.count(" # ") >= 1
        assert text.startswith("# For ")


def test_without_a_name_the_folder_is_demo(gpuplan, tmp_path):
    shown = gpuplan("init")

    assert shown.out == ""
    assert "Next: gpuplan plan demo" in shown.err
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        "cluster.yaml", "jobs.yaml", "policy.yaml", "queues.yaml",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_what_is_there_stays_as_it_is(gpuplan, tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "policy.yaml").write_text("mine")

    shown = gpuplan("init", "demo")

    assert shown.code == 1
    assert "demo is there already" in shown.err
    assert [path.read_text() for path in (tmp_path / "demo").iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made_is_told(gpuplan, tmp_path):
    (tmp_path / "file").write_text("")

    shown = gpuplan("init", "file/inside")

    assert shown.code == 1
    assert "file/inside cannot be made" in shown.err


def test_the_command_offers_what_there_is():
    (option,) = (each for each in init_command.params if each.name == "kind")

    assert option.type.choices == STARTERS
