"""A forged plan that says two things about later slots is refused, though its sums were made anew."""

from __future__ import annotations

import json

import pytest

from gpuplan.models.errors import TamperedError
from gpuplan.models.plan.solution import LaterStart
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.plan_file.plan_file import load_plan
from tests.support.builders.plan_builders import save_stamped
from tests.support.builders.solution_builders import drafted
from tests.support.oracles.plan_document import plan_document
from tests.support.samples.horizon_plans import LATER, STARTS, WORLD, looking_ahead, whole

PLAN = drafted(WORLD, *STARTS, policy=looking_ahead(kill=True), planned=LATER)


def of(part, job):
    return next(entry for entry in part if entry.get("job") == job)


def start_later(document):
    of(document["planned"], "eval")["start"] = "2026-11-20T14:00:00Z"


def start_later_everywhere(document):
    start_later(document)
    of(document["waiting"], "eval")["projected_start"] = "2026-11-20T14:00:00Z"


def plan_another_slot(document):
    of(document["planned"], "eval")["slot"] = 2


def plan_beyond_the_horizon(document):
    of(document["planned"], "eval")["slot"] = 12


def plan_in_secret(document):
    del of(document["waiting"], "eval")["projected_start"]


def project_what_is_not_planned(document):
    document["planned"].remove(of(document["planned"], "eval"))


def promise_in_secret(document):
    of(document["planned"], "notebook")["promised"] = True


def promise_what_is_only_foreseen(document):
    of(document["waiting"], "notebook")["promised"] = True


def plan_twice(document):
    document["planned"].append(of(document["planned"], "eval"))


def plan_a_stranger(document):
    document["planned"].append(of(document["planned"], "eval") | {"job": "ghost"})


def plan_one_that_starts(document):
    document["planned"].append(of(document["planned"], "eval") | {"job": "sweep"})


def plan_one_that_runs(document):
    document["planned"].append(of(document["planned"], "eval") | {"job": "train-a"})


def forget_a_promise(document):
    of(document["waiting"], "render")["earlier_promise"] = "2026-11-20T14:00:00Z"


def invent_a_promise(document):
    of(document["waiting"], "eval")["earlier_promise"] = "2026-11-20T14:00:00Z"


def kill_at_once(document):
    of(document["actions"], "sweep")["kill_at"] = "2026-11-20T12:00:00Z"


def put_a_deadline_off(document):
    of(document["deadlines"], "render")["deadline"] = "2026-11-20T19:00:00Z"


def soften_a_deadline(document):
    of(document["deadlines"], "late")["hard"] = False


def tell_a_deadline_twice(document):
    document["deadlines"].append(document["deadlines"][0])


def tell_the_deadline_of_a_stranger(document):
    document["deadlines"].append(document["deadlines"][0] | {"job": "ghost"})


def call_late_what_is_in_time(document):
    of(document["deadlines"], "train-moe")["state"] = "late"


def call_met_what_is_late(document):
    of(document["deadlines"], "render")["state"] = "met"


FORGERIES = (
    start_later, start_later_everywhere, plan_another_slot, plan_beyond_the_horizon, plan_in_secret,
    project_what_is_not_planned, promise_in_secret, promise_what_is_only_foreseen, plan_twice,
    plan_a_stranger, plan_one_that_starts, plan_one_that_runs, forget_a_promise, invent_a_promise,
    kill_at_once, put_a_deadline_off, soften_a_deadline, tell_a_deadline_twice,
    tell_the_deadline_of_a_stranger, call_late_what_is_in_time, call_met_what_is_late,
)  # fmt: skip


def test_the_plan_as_it_was_made_contradicts_nothing(tmp_path):
    assert list(contradictions(PLAN)) == []
    assert load_plan(save_stamped(tmp_path / "plan.json", plan_document(PLAN))) == PLAN


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_no_word_about_later_can_be_changed_alone(tmp_path, forge):
    document = json.loads(json.dumps(plan_document(PLAN)))
    forge(document)

    with pytest.raises(TamperedError, match="contradicts itself"):
        load_plan(save_stamped(tmp_path / "plan.json", document))


def test_a_job_resumes_when_it_is_planned_to():
    later = LaterStart("train-a", 3, whole("h100-1"))
    plan = drafted(WORLD, policy=looking_ahead(), stopped=("train-a",), planned=(later,))
    assert list(contradictions(plan)) == []

    for time in (None, PLAN.epoch):
        forged = tuple(
            each.model_copy(update={"resumes_at": time}) if each.type == "preempt" else each
            for each in plan.actions
        )
        assert list(contradictions(plan.model_copy(update={"actions": forged}))) == [
            "action preempt/train-a resumes job train-a at another time than the planned start"
        ]


def test_no_job_is_killed_under_a_policy_without_kills():
    plan = PLAN.model_copy(update={"policy": looking_ahead()})

    assert list(contradictions(plan)) == ["action start/sweep kills its job, though the policy kills no job"]
