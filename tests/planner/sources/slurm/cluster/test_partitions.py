"""Partitions: which jobs they take, and the order of jobs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gpuplan.planner.sources.slurm.cluster.partitions import SlurmPartition, partitions_of, weights_of

RECORDED = Path(__file__).parent / "recorded"


def read(text):
    notes = []
    return partitions_of(text, lambda *note: notes.append(note)), notes


def test_a_line_of_scontrol():
    line = (
        "PartitionName=a AllowAccounts=x,y AllowQos=ALL DenyQos=slow MaxNodes=4 MaxTime=1-12:00:00 "
        "OverSubscribe=EXCLUSIVE PriorityTier=3 State=DRAIN ResumeTimeout=90"
    )

    assert read(line)[0]["a"] == SlurmPartition(
        name="a",
        tier=3,
        state="DRAIN",
        most_nodes=4,
        most_minutes=2160,
        accounts=("x", "y"),
        refused_qos=("slow",),
        whole_nodes=True,
        resume_timeout=90,
    )


@pytest.mark.parametrize(
    "record",
    [
        {"name": "a", "priority_tier": 3, "state": "UP", "maximum_nodes_per_job": 4, "max_time_limit": 60,
         "allowed_accounts": "x", "denied_qos": "slow"},
        {"name": "a", "priority": {"tier": 3}, "partition": {"state": ["UP"]}, "maximums": {
            "nodes": {"set": True, "infinite": False, "number": 4},
            "time": {"set": True, "infinite": False, "number": 60}},
         "accounts": {"allowed": "x", "deny": ""}, "qos": {"allowed": "", "deny": "slow"}},
    ],
    ids=["v0.0.38", "v0.0.39 and later"],
)  # fmt: skip
def test_both_shapes_of_json_say_the_same(record):
    found = read(json.dumps({"partitions": [record]}))[0]["a"]

    assert found == SlurmPartition(
        "a", tier=3, most_nodes=4, most_minutes=60, accounts=("x",), refused_qos=("slow",)
    )


@pytest.mark.parametrize(
    ("record", "whole"),
    [
        ({"maximums": {"shares": 0}}, True),
        ({"maximums": {"shares": 1}}, False),
        ({"maximums": {"shares": 0}, "partition": {"exclusive": "NO"}}, False),
        ({"maximums": {"shares": 0}, "partition": {"exclusive": ["NODE"]}}, True),
    ],
)
def test_partitions_with_whole_nodes_in_json(record, whole):
    assert read(json.dumps({"partitions": [{"name": "a"} | record]}))[0]["a"].whole_nodes == whole


@pytest.mark.parametrize(
    ("field", "whole"), [("Exclusive=NODE", True), ("Exclusive=NO OverSubscribe=NO", False)]
)
def test_partitions_with_whole_nodes_in_26_05(field, whole):
    assert read(f"PartitionName=a {field}")[0]["a"].whole_nodes == whole


@pytest.mark.parametrize(
    ("about", "refused"),
    [
        ({}, False),
        ({"nodes": 5}, True),
        ({"minutes": 61}, True),
        ({"minutes": None}, True),
        ({"account": "z"}, True),
        ({"account": ""}, False),
        ({"qos": "slow"}, True),
    ],
)
def test_limits_of_a_partition(about, refused):
    partition = SlurmPartition("a", most_nodes=4, most_minutes=60, accounts=("x",), refused_qos=("slow",))

    job = {"nodes": 4, "minutes": 60, "account": "x", "qos": "normal"} | about
    assert (partition.objection(**job) is not None) == refused


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 500])
def test_weights_keep_the_order_of_priorities_of_32_bits(count):
    chance = random.Random(count)
    priorities = sorted({chance.randrange(2**32) for _ in range(count)})
    found = weights_of([(tier, each) for tier in (0, 7) for each in priorities])

    for tier in (0, 7):
        weights = [found[tier, each] for each in priorities]
        assert weights == sorted(weights)
        assert (weights[0], len(set(weights))) == (1, min(count, 20))
        assert weights[-1] < 2
