"""How far a plan was carried out, by the audit log and by the cluster."""

from __future__ import annotations

from gpuplan.models.plan.audit import ActionOutcome, AuditEntry, AuditKind, seal
from gpuplan.planner.plan_file.plan_file import uid_of
from gpuplan.planner.service.clusters import applied_steps
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of

WORLD = snapshot(jobs=[job("a", gpus=1), job("b", gpus=1)])
PLAN = plan_of(WORLD, placement("a", replica(gpus=[0])), placement("b", replica(gpus=[1])))
HERE = "this cluster"
UID = uid_of(PLAN)


def entry(action="", outcome=None, *, cluster=HERE, plan=UID, kind=AuditKind.OUTCOME):
    made = AuditEntry(
        at=NOW, who="me@here", kind=kind, plan_uid=plan, cluster=cluster, action=action, outcome=outcome
    )
    return seal(made, 1, "0" * 64)


def trail(*records, performed=()):
    return applied_steps(PLAN, HERE, records, performed)


def test_a_plan_of_which_the_log_says_nothing_was_not_begun():
    found = trail(
        entry("a1", ActionOutcome.DONE, cluster="another"), entry("a1", ActionOutcome.DONE, plan="another")
    )

    assert (found.begun, found.done, found.failed) == (False, (), False)


def test_done_is_what_the_cluster_has_done_in_the_order_of_the_plan_whatever_is_recorded():
    intent = entry("a1", kind=AuditKind.INTENT)

    assert trail(intent, performed={"a2", "a1"}).done == ("a1", "a2")
    assert trail(intent, entry("a2", ActionOutcome.SKIPPED), performed={"a1"}).done == ("a1",)


def test_an_intent_alone_is_a_beginning_and_no_deed():
    assert trail(entry("a1", kind=AuditKind.INTENT)).done == ()


def test_a_failed_action_is_not_done():
    found = trail(entry("a1", ActionOutcome.DONE), entry("a2", ActionOutcome.FAILED), performed={"a1"})

    assert (found.done, found.failed) == (("a1",), True)


def test_an_action_that_failed_and_is_done_since_has_not_failed():
    landed = trail(entry("a1", ActionOutcome.FAILED), performed={"a1"})
    again = trail(entry("a1", ActionOutcome.FAILED), entry("a1", ActionOutcome.DONE), performed={"a1"})

    assert (landed.failed, again.failed) == (False, False)
