"""`gpuplan mig`: layouts written and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

SCENARIO = Path(__file__).parents[4] / "scenarios" / "mig-repack"


@pytest.fixture
def plan(gpuplan):
    assert gpuplan("plan", SCENARIO, "--deterministic", "-o", "plan.json").code == 0
    return "plan.json"


def test_layouts_of_a_snapshot_are_the_same_there(gpuplan):
    Path("mig.yaml").write_text(gpuplan("mig", "export", SCENARIO).out)

    ran = gpuplan("mig", "check", "mig.yaml", SCENARIO)

    assert (ran.code, ran.out) == (0, "The same: 2 GPUs of 1 node.\n")
    assert json.loads(gpuplan("mig", "check", "mig.yaml", SCENARIO, "--json").out) == {
        "same": True,
        "differences": [],
    }


def test_layouts_after_a_plan_are_those_of_its_repartitions(gpuplan, plan):
    Path("mig.yaml").write_text(gpuplan("mig", "export", plan).out)
    assert yaml.safe_load(Path("mig.yaml").read_text())["mig-configs"] == {
        "a100-1": [
            {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.5gb": 3, "3g.20gb": 1}},
            {"devices": [1], "mig-enabled": True, "mig-devices": {"3g.20gb": 2}},
        ]
    }
    ran = gpuplan("mig", "check", "mig.yaml", SCENARIO)
    assert ran.code == 1
    assert ran.out.splitlines()[1] == "a100-1 GPU 1: expected 2 × 3g.20gb, found 7g.40gb"

    # After the plan the cluster has them.
    assert gpuplan("apply", plan, "--executor", "simulated", "--auto-approve").code == 0
    assert gpuplan("snapshot", "--from", "simulated", "-o", "after.json").code == 0
    assert gpuplan("mig", "check", "mig.yaml", "after.json").code == 0


def test_nodes_without_mig_are_not_in_the_file(gpuplan, quickstart):
    assert yaml.safe_load(gpuplan("mig", "export", quickstart).out) == {"version": "v1", "mig-configs": {}}


def test_a_bad_file_is_bad_input(gpuplan):
    Path("mig.yaml").write_text("version: v1\nmig-configs: {nowhere: []}\n")

    ran = gpuplan("mig", "check", "mig.yaml", SCENARIO)

    assert (ran.code, ran.out) == (24, "")
    assert "'nowhere'" in ran.err
