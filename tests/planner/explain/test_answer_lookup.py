"""What a name means: a job, a queue or a node."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.explain.answer import resolve_name
from gpuplan.planner.explain.job import explain
from gpuplan.planner.render.explain_job import explanation_text
from gpuplan.planner.render.style import Style
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
        ("nothing-like-it", r"no job, queue or node has the name .*\n  Known: job/q, n0, q, same\."),
    ],
)
def test_what_has_no_meaning_or_two_is_refused_with_what_to_say(name, said):
    with pytest.raises(BadInputError, match=said):
        resolve_name(world_of_names(), name, source="plan.json")


def slurm_jobs():
    names = {"11": "train", "12": "eval", "13": "eval", "14": "12"}
    jobs = [job(number, labels={"slurm/name": name}) for number, name in names.items()]
    return greedy_plan(snapshot(nodes=[node("n0")], queues=[queue("q")], jobs=jobs), CALM)


@pytest.mark.parametrize(
    ("name", "number"), [("train", "11"), ("job/train", "11"), ("12", "12"), ("14", "14")]
)
def test_jobs_of_slurm_are_found_by_number_and_by_the_name_of_their_user(name, number):
    assert resolve_name(slurm_jobs(), name, source="plan.json") == ("job", number)


@pytest.mark.parametrize("name", ["eval", "job/eval"])
def test_a_name_of_several_jobs_is_refused_with_their_numbers(name):
    with pytest.raises(BadInputError, match="2 jobs have the name 'eval': 12, 13"):
        resolve_name(slurm_jobs(), name, source="plan.json")


def test_an_explanation_has_the_name_that_the_user_gave():
    found = explain(slurm_jobs(), "11", source="plan.json")

    assert (found.job, found.given_name) == ("11", "train")
    assert explanation_text(found, Style(width=80)).startswith("Job 11 (train) ")
