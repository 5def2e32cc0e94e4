"""What the policy leaves to people is told with the numbers; all else may be applied."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from gpuplan.models.plan.actions import ACTIONS, ActionKind, Change, changes_of
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Approval
from gpuplan.planner.service.clusters import approval_reason
from tests.support.builders.build import job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.samples.sample_plans import busy_plan

PLAN = busy_plan()
CHANGES = len(changes_of(PLAN.actions))


def why(**rules):
    return approval_reason(
        PLAN.model_copy(update={"policy": Policy(approval=Approval.model_validate(rules))})
    )


def test_by_default_nothing_is_left_to_people():
    assert why() == ""


def test_a_type_of_action_that_is_named_needs_approval_only_where_it_occurs():
    assert why(needed_for=["preempt"]) == "1 preemption, which approval.needed_for names"
    started = plan_of(snapshot(jobs=[job("a", gpus=1)]), placement("a", replica(gpus=[0])))
    rules = Policy(approval=Approval(needed_for=(ActionKind.PREEMPT,)))
    assert approval_reason(started.model_copy(update={"policy": rules})) == ""


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"most_changes": CHANGES - 1}, f"{CHANGES} changes, more than approval.most_changes {CHANGES - 1}"),
        ({"most_changes": CHANGES}, ""),
        ({"most_preemptions": 0}, "1 preemptions, more than approval.most_preemptions 0"),
        ({"most_preemptions": 1}, ""),
    ],
)
def test_limits_are_what_is_still_allowed(rules, told):
    assert why(**rules) == told


def test_all_reasons_are_told():
    assert why(needed_for=["scale_up", "scale_down"], most_changes=1).count(";") == 1


def test_every_change_there_is_can_be_named():
    members = get_args(Change)

    assert sorted(member.model_fields["type"].default for member in members) == sorted(ACTIONS)


@pytest.mark.parametrize("kind", ["keep", "wait", "dance"])
def test_only_kinds_that_change_a_cluster_can_need_approval(kind):
    with pytest.raises(ValidationError, match=r"expected one of release, start, .*, scale_down \["):
        Approval(needed_for=(kind,))
