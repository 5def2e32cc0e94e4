"""JSON Schemas: what loads validates, most of what is refused does not, and defaults are as documents say."""

from __future__ import annotations

import copy
import json
from functools import cache

import pytest
from jsonschema import Draft202012Validator

from gpuplan.models.errors import BadInputError
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.schemas import KINDS, schema
from gpuplan.planner.sources.files import load_policy, load_snapshot, snapshot_text
from tests.support.builders.build import job, placement, pool, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.oracles.plan_document import plan_document
from tests.support.samples.full_document import GOOD


@cache
def validator(kind):
    return Draft202012Validator(schema(kind))


def valid(kind, document):
    return validator(kind).is_valid(document)


def good(**changes):
    """The good document, its first job changed."""
    document = copy.deepcopy(GOOD)
    document["jobs"][2] |= changes
    return document


def cluster(**changes):
    """The good document, its cluster changed."""
    return GOOD | {"cluster": GOOD["cluster"] | changes}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one(kind):
    made = schema(kind)

    Draft202012Validator.check_schema(made)
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert made["title"] == f"gpuplan {kind}"
    assert made["$id"] == f"urn:gpuplan:schema:{kind}:1.0"
    assert json.loads(json.dumps(made)) == made


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described(kind):
    made = schema(kind)

    fields = [
        (name, field, stated)
        for name, part in {"": made, **made["$defs"]}.items()
        for field, stated in part.get("properties", {}).items()
    ]
    assert len(fields) > 60
    assert [(name, field) for name, field, stated in fields if not stated.get("description")] == []


def test_a_snapshot_that_uses_nearly_every_field_validates():
    assert valid("snapshot", GOOD)


def test_a_snapshot_as_it_is_written_validates():
    world = snapshot(
        jobs=[job("a", gpus=2, at=[replica("n0", gpus=[0, 1])]), job("b", milli=250, datasets=["d"])],
        pools=[pool(provisioning="5m")],
        overcommit={"burstable": {"memory": 1.5}},
        datasets=[{"name": "d", "zones": {"z": 0.25}}],
    )

    assert valid("snapshot", json.loads(snapshot_text(world)))


def test_a_plan_as_it_is_written_validates():
    world = snapshot(
        jobs=[job("run", gpus=1, at=[replica("n0", gpus=[0])]), job("new", gpus=1), job("big", gpus=8)]
    )
    document = plan_document(plan_of(world, placement("new", replica("n1", gpus=[0]))))

    assert valid("plan", json.loads(json.dumps(document)))
    assert not valid("plan", {key: value for key, value in document.items() if key != "checksum"})


def test_policies_validate():
    assert valid("policy", {})
    assert valid("policy", Policy().model_dump(mode="json"))
    assert valid(
        "policy", {"weights": {"basis": "gpu_hour"}, "budget": {"time_limit": 5}, "solvers": ["cpsat"]}
    )
    assert valid(
        "policy",
        {
            "prices": {"drain": 5, "interference": [{"classes": ["a", "b"], "points": 1}]},
            "disruption": {"migrate": True, "minimum_runtime": "10m"},
            "mig": {"switch_mode": True},
            "pools": {"scale_down": False},
            "profiles": {"inference": "spread"},
        },
    )
    for wrong in (
        {"solvers": ["cplex"]},
        {"profiles": {"inference": "tight"}},
        {"prices": {"interference": [{"classes": ["a"], "points": 1}]}},
        {"prices": {"drain": -1}},
        {"disruption": {"minimum_runtime": -1}},
        {"mig": {"switch": True}},
    ):
        assert not valid("policy", wrong)


@pytest.mark.parametrize("step", [0, 1, 30, "0s", "0h0m", "1s", "0h20m", "10m"])
@pytest.mark.parametrize(
    "policy_of",
    [lambda step: {"weights": {"ageing": {"step": step}}}, lambda step: {"pools": {"horizon": step}}],
)
def test_a_duration_of_a_second_at_least_validates_exactly_if_it_loads(policy_of, step, tmp_path):
    document = policy_of(step)
    (tmp_path / "policy.json").write_text(json.dumps(document))

    try:
        loads = bool(load_policy(str(tmp_path / "policy.json")))
    except BadInputError:
        loads = False

    assert valid("policy", document) == loads


SHORT_FORMS = (
    good(replicas=4),
    good(gpu_models=["H100-80GB"]),
    good(datasets=[]) | {"cluster": GOOD["cluster"]["nodes"]},
)


@pytest.mark.parametrize("document", SHORT_FORMS)
def test_short_forms_validate_and_load(document, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(document))

    assert valid("snapshot", document)
    assert load_snapshot(str(tmp_path / "s.json"))


@pytest.mark.parametrize(
    "document",
    [
        good(replicas=0),
        good(replicas="4"),
        good(gpu_models=[1]),
        good(gpu_models=["a b"]),
        good(gpu_models={"a b": 1}),
        good(labels={"a b": "c"}),
        good(gpu_count=8),
        good(priority=1.5),
        good(name=""),
        good(qos="bronze"),
        good(spread={"most": 2}),
        good(affinity=[{"key": "a", "operator": "Maybe"}]),
        good(anti_affinity=[{"labels": {}}]),
        good(preferred_nodes=[{"match": {"key": "a", "values": ["b"]}}]),
        cluster(pools=[{"name": "a", "max": 3}]),
        cluster(pools=[{"name": "a", "template": {"name": "b"}, "max": -1}]),
        cluster(overcommit={"burstable": {"cpus": 0.5}}),
        cluster(overcommit={"bursty": {}}),
        cluster(datasets=[{"name": "a", "zones": {"z": -1}}]),
        cluster(rack_power=[{"rack": "r"}]),
        cluster(racks=[]),
        GOOD | {"cluster": [5]},
        GOOD | {"job": []},
        {key: value for key, value in GOOD.items() if key != "queues"},
    ],
)
def test_wrong_documents_do_not_validate(document):
    assert not valid("snapshot", document)


@pytest.mark.slow
def test_defaults_are_in_the_units_of_documents():
    snapshots, policies = schema("snapshot")["$defs"], schema("policy")["$defs"]

    assert snapshots["Job"]["properties"]["weight"]["default"] == 1
    assert policies["BudgetPolicy"]["properties"]["time_limit"]["default"] == "10s"
    assert policies["Weights"]["properties"]["smallest_size"]["default"] == 0.1
    assert policies["Ageing"]["properties"]["step"]["default"] == "6h"
    assert policies["PoolPolicy"]["properties"]["horizon"]["default"] == "1h"
    assert policies["Disruption"]["properties"]["restart"]["default"] == "5m"
    assert snapshots["Overcommit"]["properties"]["cpus"]["default"] == 1


def test_a_default_that_may_be_null_is_written_in_its_own_form():
    backfill = schema("policy")["$defs"]["Backfill"]["properties"]

    assert (backfill["starving"]["default"], backfill["depth"]["default"]) == ("168h", None)
