"""A forged plan with sums made anew is still refused: its parts must say the same."""

from __future__ import annotations

import json

import pytest

from gpuplan.models.errors import BadInputError, TamperedError
from gpuplan.models.plan.plan import Base
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.plan_file.plan_file import load_plan, with_id
from tests.support.builders import build
from tests.support.builders.plan_builders import plan_of, save_stamped
from tests.support.builders.solution_builders import POLICY
from tests.support.oracles.plan_document import plan_document
from tests.support.samples.sample_plans import BUSY_WORLD, busy_plan

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
    return next(entry for entry in document["actions"] if entry.get("job") == job)


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


# --- a plan with every type of action ----------------------------------------------------------------------

BUSY = with_id(
    busy_plan().model_copy(
        update={"base": Base(snapshot=BUSY_WORLD.fingerprint(), policy=POLICY.fingerprint())}
    )
)


def step(document, id_):
    return next(entry for entry in document["actions"] if entry["id"] == id_)


def state(document, name):
    return next(entry for entry in document["nodes"] if entry["name"] == name)


def stop_another_job(document):
    step(document, "preempt/sweep-117")["job"] = "serve"


def keep_one_that_is_stopped(document):
    action = step(document, "preempt/sweep-117")
    action |= {"type": "keep", "after": action["before"]}


def call_a_move_a_start(document):
    step(document, "migrate/eval")["type"] = "start"


def move_from_elsewhere(document):
    step(document, "migrate/eval")["before"]["replicas"][0]["node"] = "old-2"


def shrink_to_nothing_else(document):
    step(document, "shrink/tune")["after"] = step(document, "shrink/tune")["before"]


def grow_unasked(document):
    del step(document, "grow/embed")["preconditions"][1]


def grow_asking_for_less(document):
    step(document, "grow/embed")["preconditions"][1]["gpus"] = []


def stop_without_asking(document):
    step(document, "preempt/sweep-117")["preconditions"] = []


def forget_to_wait_for_room(document):
    document["actions"].insert(
        0, document["actions"].pop(document["actions"].index(step(document, "start/distill")))
    )


def wait_for_none(document):
    step(document, "start/distill")["after_actions"] = ["preempt/ghost"]


def reuse_an_id(document):
    step(document, "start/render")["id"] = "start/distill"


def silence_the_victim(document):
    document["waiting"] = [entry for entry in document["waiting"] if entry["job"] != "sweep-117"]


def mourn_a_kept_job(document):
    document["waiting"].append(document["waiting"][0] | {"job": "serve"})


def add_another_node(document):
    step(document, "scale_up/cloud-1")["after"]["name"] = "cloud-2"


def add_to_another_pool(document):
    step(document, "scale_up/cloud-1")["pool"] = "old"


def add_a_node_that_exists(document):
    step(document, "scale_up/cloud-1")["node"] = "mig-1"


def add_without_asking(document):
    step(document, "scale_up/cloud-1")["preconditions"] = []


def add_in_secret(document):
    state(document, "cloud-1")["change"] = "kept"


def remove_another_node(document):
    step(document, "scale_down/old-2")["node"] = "h100-03"


def remove_twice(document):
    document["actions"].append(step(document, "scale_down/old-2") | {"id": "again"})


def remove_in_secret(document):
    state(document, "old-2")["change"] = "kept"


def remove_without_asking(document):
    step(document, "scale_down/old-2")["preconditions"][0]["node"] = "h100-03"


def cordon_nothing(document):
    cordon = step(document, "cordon/old-1")
    cordon["node"] = cordon["preconditions"][0]["node"] = "ghost"


def give_back_to_another_pool(document):
    step(document, "scale_down/old-2")["pool"] = "cloud"


def add_one_that_is_there(document):
    action = json.loads(json.dumps(step(document, "scale_up/cloud-1")).replace("cloud-1", "h100-03"))
    document["actions"].append(action)
    state(document, "h100-03")["change"] = "added"


def tell_a_node_twice(document):
    document["nodes"].append(document["nodes"][0])


def wait_twice(document):
    document["waiting"].append(document["waiting"][0])


def act_on_a_stranger(document):
    document["actions"].append(step(document, "wait/train-moe") | {"id": "wait/ghost", "job": "ghost"})
    document["waiting"].append(document["waiting"][0] | {"job": "ghost"})


def place_a_stranger(document):
    document["placements"].append(document["placements"][0] | {"job": "ghost"})


def shrink_and_move(document):
    place = next(place for place in document["placements"] if place["job"] == "tune")
    place["replicas"][0]["node"] = step(document, "shrink/tune")["after"]["replicas"][0]["node"] = "h100-04"


def start_without_asking_the_job(document):
    del step(document, "start/render")["preconditions"][0]


def forget_a_node(document):
    document["nodes"] = document["nodes"][1:]


def invent_a_node(document):
    document["nodes"].append(document["nodes"][0] | {"name": "ghost"})


def lay_out_otherwise(document):
    step(document, "repartition/mig-1/gpu0")["after"][1]["start"] = 6


def lay_out_from_elsewhere(document):
    step(document, "repartition/mig-1/gpu0")["before"] = []


def lay_out_what_is_not_there(document):
    action = step(document, "repartition/mig-1/gpu0")
    action["before"] = action["preconditions"][0]["instances"] = action["preconditions"][0]["idle"] = []


def lay_out_another_gpu(document):
    step(document, "repartition/mig-1/gpu0")["gpu"] = 1


def destroy_what_is_in_use(document):
    step(document, "repartition/mig-1/gpu0")["preconditions"][0]["idle"] = []


def drop_a_layout(document):
    document["actions"].remove(step(document, "repartition/mig-1/gpu0"))
    step(document, "start/infer-a")["after_actions"] = []


def tell_another_layout(document):
    state(document, "mig-1")["mig"] = []


BUSY_FORGERIES = (
    stop_another_job, keep_one_that_is_stopped, call_a_move_a_start, move_from_elsewhere,
    shrink_to_nothing_else, grow_unasked, grow_asking_for_less, stop_without_asking, forget_to_wait_for_room,
    wait_for_none, reuse_an_id, silence_the_victim, mourn_a_kept_job, add_another_node, add_to_another_pool,
    add_a_node_that_exists, add_without_asking, add_in_secret, remove_another_node, remove_twice,
    remove_in_secret, remove_without_asking, cordon_nothing, forget_a_node, invent_a_node, lay_out_otherwise,
    give_back_to_another_pool, add_one_that_is_there, tell_a_node_twice, wait_twice, act_on_a_stranger,
    place_a_stranger, shrink_and_move, start_without_asking_the_job, lay_out_what_is_not_there,
    lay_out_from_elsewhere, lay_out_another_gpu, destroy_what_is_in_use, drop_a_layout, tell_another_layout,
)  # fmt: skip


def test_plan_as_it_was_made_contradicts_nothing(tmp_path):
    assert list(contradictions(PLAN)) == []
    assert load_plan(save_stamped(tmp_path / "plan.json", plan_document(PLAN))) == PLAN


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forged_plan_is_refused_though_its_sums_are_right(tmp_path, forge):
    document = json.loads(json.dumps(plan_document(PLAN)))
    forge(document)

    with pytest.raises(TamperedError, match="contradicts itself"):
        load_plan(save_stamped(tmp_path / "plan.json", document))


def test_a_plan_with_everything_contradicts_nothing():
    assert list(contradictions(BUSY)) == []


@pytest.mark.slow
@pytest.mark.parametrize("forge", BUSY_FORGERIES, ids=lambda forge: forge.__name__)
def test_no_part_of_a_plan_with_everything_can_be_changed_alone(tmp_path, forge):
    document = json.loads(json.dumps(plan_document(BUSY)))
    forge(document)

    with pytest.raises((TamperedError, BadInputError), match=r"contradicts itself|cannot be used"):
        load_plan(save_stamped(tmp_path / "plan.json", document))
