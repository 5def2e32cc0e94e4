"""What a name means: a job, a queue or a node."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.explain.answer import resolve_name
from tests.support.builders.build import job, node, queue, snapshot
from tests.support.harness.explain_helpers import CALM, greedy_plan


def world_of_names():
    nodes = [node("same"), node("n0")]
    return greedy_plan(snapshot(nodes=nodes, queues=[queue("q")], jobs=[job("same"), job("job/q")]), CALM)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("q", ("queue", "q")),
        ("n0", ("node", "n0")),
        ("node/same", ("node", "same")),
        ("job/same", ("job", "same")),
        ("job/q", ("job", "job/q")),
    ],
)
def test_names_mean_jobs_queues_and_nodes(name, expected):
    assert resolve_name(world_of_names(), name, source="plan.json") == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("same", "Say job/same or node/same."),
        ("smae", "Maybe 'same' was meant."),
        ("queue/same", "no queue has the name 'same'"),
        ("nothing-like-it", "no job, queue or node has the name"),
    ],
)
def test_what_has_no_meaning_or_two_is_refused_with_what_to_say(name, said):
    with pytest.raises(BadInputError, match=said):
        resolve_name(world_of_names(), name, source="plan.json")
