"""What is equal in a hundred thousand nouns is in memory once, wherever they come from."""

from __future__ import annotations

import json
import pickle

import pytest

from gpuplan.models import base
from gpuplan.models import job as job_module
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import Placement
from tests.support.builders import build

SHARES = [{"index": 0, "milli": 1000}, {"index": 1, "milli": 1000}]


def placements():
    """Of one job each: made by us, read from a document, and come from another process."""
    made = Placement(job="a", replicas=(build.replica("n0", gpus=(0, 1)),))
    read = Placement.model_validate({"job": "b", "replicas": [{"node": "n1", "gpus": SHARES}]})
    return made, read, *pickle.loads(pickle.dumps((made, read)))


def test_replicas_share_parts_of_gpus_that_are_equal():
    made, read, *sent = ([id(held) for held in each.replicas[0].gpus] for each in placements())

    assert made == read
    assert sent[0] == sent[1]


def test_nouns_share_the_names_of_the_fields_that_were_given():
    made, read, *sent = (id(each.model_fields_set) for each in placements())

    assert made == read
    assert sent[0] == sent[1]


def test_a_copy_with_more_fields_leaves_the_names_of_others_alone():
    made, read, *_ = placements()

    copied = made.model_copy(update={"slot": 1})

    assert copied.model_fields_set == {"job", "replicas", "slot"}
    assert made.model_fields_set == read.model_fields_set == {"job", "replicas"}


def test_nodes_share_gpus_that_are_equal_and_jobs_what_they_ask_for():
    world = build.snapshot(nodes=build.cluster(2, gpus=4), jobs=[build.job("a"), build.job("b")])
    read = type(world).model_validate(world.document())
    stated = Job.model_validate(build.job("c").document() | {"request": {}, "replicas": 1, "locality": {}})

    for each in (world, read):
        assert len({id(node.gpus) for node in each.cluster.nodes}) == 1
    jobs = (*world.jobs, *read.jobs, stated)
    for field in ("request", "gang", "locality"):
        assert len({id(getattr(job, field)) for job in jobs}) == 1, field


@pytest.mark.parametrize(
    "amounts",
    [
        {"gpus": 1, "gpu_memory_mib": 2},
        {"disk_mib": 2},
        {"memory_mib": 2},
        {"mig": {"1g.10gb": 2}},
        {"resources": {"licences": 2}},
    ],
)
def test_requests_that_differ_hash_differently(amounts):
    other = ResourceRequest.model_validate(amounts)
    (name, value), *_ = reversed(amounts.items())
    more = {key: each + 1 for key, each in value.items()} if isinstance(value, dict) else value + 1

    assert hash(other) == hash(ResourceRequest.model_validate(amounts))
    assert hash(other) != hash(ResourceRequest.model_validate(amounts | {name: more}))


def test_no_more_than_so_many_requests_are_kept(monkeypatch):
    monkeypatch.setattr(job_module, "_MOST_KNOWN", len(job_module._KNOWN))
    documents = [build.job(name).document() | {"request": {"disk_mib": 987_654_321}} for name in "ab"]
    first, second = map(Job.model_validate, documents)

    assert first.request == second.request
    assert first.request is not second.request


@pytest.mark.parametrize(
    "value", [None, 'é\n"', 3, 0.5, [], {}, {"b": [1, {"z": None, "a": True}], "a": "x" * 99}]
)
def test_canonical_json_is_the_same_with_and_without_the_encoder_of_c(value, monkeypatch):
    fast = base.canonical_json(value)

    monkeypatch.setattr(base, "_pieces", None)

    assert fast == base.canonical_json(value)
    assert json.loads(fast) == value


@pytest.mark.parametrize("fast", [True, False])
def test_canonical_json_has_only_what_json_has(fast, monkeypatch):
    if not fast:
        monkeypatch.setattr(base, "_pieces", None)
    for value, error in ((float("nan"), ValueError), ({1, 2}, TypeError)):
        with pytest.raises(error):
            base.canonical_json({"a": value})
