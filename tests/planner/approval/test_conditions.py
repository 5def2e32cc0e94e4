"""What the policy leaves to people is told with the numbers; all else may be applied."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from gpuplan.models.plan.actions import ACTIONS, ActionKind, Change, changes_of
from gpuplan.models.policy.approval import Approval
from gpuplan.planner.approval.conditions import (
    affected_gpus,
    approval_reason,
    approval_reasons,
    lost_gpu_hours,
)
from tests.support.builders.build import job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.samples.sample_plans import busy_plan

PLAN = busy_plan()
CHANGES = len(changes_of(PLAN.actions))


def why(**rules):
    return approval_reason(PLAN, Approval.model_validate(rules))


def test_by_default_nothing_is_left_to_people():
    assert why() == ""


def test_a_type_of_action_that_is_named_needs_approval_only_where_it_occurs():
    assert why(needed_for=["preempt"]) == "1 preemption, which approval.needed_for names"
    started = plan_of(snapshot(jobs=[job("a", gpus=1)]), placement("a", replica(gpus=[0])))
    assert approval_reason(started, Approval(needed_for=(ActionKind.PREEMPT,))) == ""


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"most_changes": CHANGES - 1}, f"{CHANGES} changes, more than approval.most_changes {CHANGES - 1}"),
        ({"most_changes": CHANGES}, ""),
        ({"most_preemptions": 0}, "1 preemption, more than approval.most_preemptions 0"),
        ({"most_preemptions": 1}, ""),
    ],
)
def test_limits_are_what_is_still_allowed(rules, told):
    assert why(**rules) == told


def test_all_reasons_are_told():
    assert why(needed_for=["scale_up", "scale_down"], most_changes=1).count(";") == 1


def gpus_used(placement):
    return {
        (replica.node, held.index)
        for replica in (placement.replicas if placement else ())
        for held in replica.gpus
    }


def test_each_affected_gpu_counts_once_whatever_uses_it():
    found, nodes = set(), PLAN.snapshot.cluster.node_by_name
    for change in changes_of(PLAN.actions):
        if change.type in {"scale_up", "scale_down"}:
            node = nodes.get(change.node) or change.after
            found |= {(node.name, index) for index in node.gpus.by_index}
        elif change.type == "repartition":
            found.add((change.node, change.gpu))
        elif change.type not in {"cordon", "drain"}:
            found |= gpus_used(change.before) | gpus_used(change.after)

    assert affected_gpus(PLAN) == len(found) > 20
    assert why(most_gpus=len(found)) == ""
    assert why(most_gpus=len(found) - 1).startswith(f"{len(found)} affected GPUs, more than")


def test_shares_of_one_gpu_are_one_gpu():
    plan = plan_of(
        snapshot(jobs=[job("a", milli=300), job("b", milli=300)]),
        placement("a", replica(gpus=[0], milli=300)),
        placement("b", replica(gpus=[0], milli=300)),
    )
    assert affected_gpus(plan) == 1


def test_lost_work_is_that_after_the_last_checkpoint_times_gpus():
    lost = lost_gpu_hours(PLAN)

    assert lost > 0
    assert lost == pytest.approx(
        sum(action.reason.numbers.get("lost_gpu_hours", 0) for action in PLAN.actions), abs=0.01
    )
    assert why(most_lost_gpu_hours=int(lost) - 1).startswith(f"{lost:,.1f} lost GPU-hours")
    assert why(most_lost_gpu_hours=int(lost)) == ""


def test_a_queue_stands_for_all_below_it_and_starts_there_need_no_approval():
    jobs = PLAN.snapshot.job_by_name
    disturbed = {
        change.id: jobs[change.job].queue
        for change in changes_of(PLAN.actions)
        if change.type in {"preempt", "shrink", "grow", "migrate"}
    }
    started = {jobs[change.job].queue for change in changes_of(PLAN.actions) if change.type == "start"}
    for queue in PLAN.snapshot.queues:
        below = {each.name for each in PLAN.snapshot.queues if queue.name in (each.name, each.parent)}
        expected = tuple(id_ for id_, where in disturbed.items() if where in below)
        (reason,) = approval_reasons(PLAN, Approval(queues=(queue.name,))) or (None,)
        assert (reason.actions if reason else ()) == expected
    assert len(disturbed) > 1
    assert started
    assert why(queues=["nowhere"]) == ""


def test_every_change_there_is_can_be_named():
    members = get_args(Change)

    assert sorted(member.model_fields["type"].default for member in members) == sorted(ACTIONS)


@pytest.mark.parametrize("kind", ["keep", "wait", "dance"])
def test_only_kinds_that_change_a_cluster_can_need_approval(kind):
    with pytest.raises(ValidationError, match=r"expected one of release, start, .*, scale_down \["):
        Approval(needed_for=(kind,))
