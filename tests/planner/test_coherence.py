"""A forged plan whose sums were made anew is still refused: its parts must say the same."""

from __future__ import annotations

import json

import build
import pytest
from handmade import plan_of

from planner.coherence import contradictions
from planner.models.base import fingerprint_of
from planner.models.errors import TamperedError
from planner.planfile import load_plan, plan_document, plan_id_of

SNAPSHOT = build.snapshot(
    jobs=[
        build.job("a", gpus=1),
        build.job("b", gpus=1),
        build.job("r", gpus=1, at=[build.replica("n0", gpus=(7,))]),
        build.job("w", gpus=1),
    ]
)
PLAN = plan_of(
    SNAPSHOT,
    build.placement("a", build.replica("n0", gpus=(0,))),
    build.placement("b", build.replica("n0", gpus=(1,))),
)


def action(document, job):
    return next(entry for entry in document["actions"] if entry["job"] == job)


def move_a_start(document):
    action(document, "a")["after"]["replicas"][0]["node"] = "n1"


def drop_a_start(document):
    document["actions"].remove(action(document, "a"))


def double_a_start(document):
    document["actions"].append(action(document, "a") | {"id": "again"})


def start_one_that_waits(document):
    start = json.loads(json.dumps(action(document, "a")).replace('"a"', '"w"').replace('"a1"', '"w1"'))
    document["actions"] = [entry for entry in document["actions"] if entry["job"] != "w"] + [start]


def stop_asking(document):
    action(document, "a")["preconditions"] = []


def move_a_running_job(document):
    for entry in ("before", "after"):
        action(document, "r")[entry]["replicas"][0]["gpus"][0]["index"] = 6
    place = next(place for place in document["placements"] if place["job"] == "r")
    place["replicas"][0]["gpus"][0]["index"] = 6


def place_a_job_twice(document):
    document["placements"].append(document["placements"][0])


def lower_the_bound(document):
    document["solution"]["bound"] = document["solution"]["objective"] - 1


def praise_itself(document):
    document["solution"]["terms"]["bonus"] = 1000


def change_the_snapshot(document):
    document["snapshot"]["jobs"][0]["priority"] = 9


def change_the_policy(document):
    document["policy"]["drift"] = "preconditions"


FORGERIES = (
    move_a_start, drop_a_start, double_a_start, start_one_that_waits, stop_asking, move_a_running_job,
    place_a_job_twice, lower_the_bound, praise_itself, change_the_snapshot, change_the_policy,
)  # fmt: skip


def written(path, document):
    document["plan_id"] = plan_id_of(document)
    document["checksum"] = fingerprint_of(
        {key: value for key, value in document.items() if key != "checksum"}
    )
    path.write_text(json.dumps(document))
    return path


def test_plan_as_it_was_made_contradicts_nothing(tmp_path):
    assert list(contradictions(PLAN)) == []
    assert load_plan(written(tmp_path / "plan.json", plan_document(PLAN))) == PLAN


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forged_plan_is_refused_though_its_sums_are_right(tmp_path, forge):
    document = json.loads(json.dumps(plan_document(PLAN)))
    forge(document)

    with pytest.raises(TamperedError, match="contradicts itself"):
        load_plan(written(tmp_path / "plan.json", document))
