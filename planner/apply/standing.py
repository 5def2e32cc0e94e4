"""
Progress of a plan on a cluster, and whether its remaining steps may be done there.

The cluster is the source of truth: a step is done if the cluster has performed it. The audit log only records
this; a log with more steps than the cluster has performed is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError, StalePlanError
from gpuplan.models.plan.audit import ActionOutcome, AuditKind
from gpuplan.models.units import print_timestamp
from gpuplan.planner.apply.outcome import (
    DriftedPlanError,
    OtherClusterError,
    UnperformedError,
    unfinished_error,
)
from gpuplan.planner.apply.progress import verify_remaining
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.plan_file.plan_file import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.promises import Step

_NAMED_AT_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class ApplyProgress:
    """Progress of a plan on a cluster."""

    total: int
    """Steps of the plan."""
    done: tuple[Step, ...] = ()
    """Steps that the cluster has performed, in the plan's order."""
    left: tuple[Step, ...] = ()
    owed: tuple[Step, ...] = ()
    """Steps that are done but not recorded as done."""
    closed: bool = True
    """True if no earlier apply of the plan was interrupted before it recorded its end."""

    @property
    def done_ids(self) -> tuple[str, ...]:
        """Ids of the done steps."""
        return tuple(step.id for step in self.done)


def key_of(plan: Plan, step: Step) -> str:
    """Permanent key of a step, shared by all applies of one plan file."""
    return f"{uid_of(plan)}:{step.id}"


def records_of(plan: Plan, cluster: str, records: Iterable[AuditRecord]) -> list[AuditRecord]:
    """Records of a plan on the cluster with this identity."""
    named = (uid_of(plan), cluster)
    return [record for record in records if (record.plan_uid, record.cluster) == named]


def progress_of(
    plan: Plan, cluster: str, records: Iterable[AuditRecord], performed: Callable[[Step], bool]
) -> ApplyProgress:
    """
    Progress of a plan on the cluster with this identity; `performed` asks the cluster about a step.

    Raises
    ------
    UnperformedError
        The log records steps as done that the cluster has not performed.
    """
    own, steps = records_of(plan, cluster, records), steps_of(plan)
    recorded = {
        record.action for record in own if record.outcome in (ActionOutcome.DONE, ActionOutcome.SKIPPED)
    }
    done = tuple(step for step in steps if performed(step))
    there = {step.id for step in done}
    if lost := tuple(step.id for step in steps if step.id in recorded - there):
        raise UnperformedError(plan.plan_id, lost)
    return ApplyProgress(
        total=len(steps),
        done=done,
        left=tuple(step for step in steps if step.id not in there),
        owed=tuple(step for step in done if step.id not in recorded),
        closed=not own or own[-1].kind is AuditKind.END,
    )


def require_applicable(
    plan: Plan, live: Snapshot, standing: ApplyProgress, *, resume: bool, drift_mode: Drift | None
) -> None:
    """
    Raise unless the remaining steps of a plan may be done in the live cluster.

    Raises
    ------
    StalePlanError
        The cluster has changed, or the plan is for another cluster.
    PartlyAppliedError
        A part of the plan is done, and `resume` is not set.
    """
    done = standing.done_ids
    if done and not resume:
        raise unfinished_error(plan.plan_id, done, [step.id for step in standing.left])
    if not done:
        _refuse_other_cluster(plan, live)
    if items := drift(plan, live, done=done, mode=drift_mode or plan.policy.drift):
        raise DriftedPlanError(plan.plan_id, items)
    _refuse_broken_rules(plan, live, done)


def _refuse_other_cluster(plan: Plan, live: Snapshot) -> None:
    """Raise if both clusters have names and these differ, or if they have no node in common."""
    meant, found = plan.snapshot.cluster, live.cluster
    other_name = meant.named and found.named and meant.name != found.name
    strange = meant.nodes and found.nodes and meant.node_by_name.keys().isdisjoint(found.node_by_name)
    if other_name or strange:
        raise OtherClusterError(plan.plan_id, meant, found)


def _refuse_broken_rules(plan: Plan, live: Snapshot, done: Collection[str]) -> None:
    """Raise if the cluster would break a rule, such as a quota, whatever drift is accepted."""
    past = sorted(each.job for each in plan.planned if each.promised and each.start <= live.taken_at)
    if past and not done:
        more = f" and {len(past) - 1} more" if len(past) > 1 else ""
        raise StalePlanError(
            f"Plan {plan.plan_id} is stale: it promises {past[0]}{more} a start that is past, as it is "
            f"{print_timestamp(live.taken_at)} in the cluster.\nRun `gpuplan plan` again."
        )
    violations = verify_remaining(plan, live, done).violations
    if violations:
        listed = "".join(f"\n  {violation}" for violation in violations[:_NAMED_AT_MOST])
        more = (
            f"\n  … and {len(violations) - _NAMED_AT_MOST} more" if len(violations) > _NAMED_AT_MOST else ""
        )
        raise StalePlanError(
            f"Plan {plan.plan_id} is stale: in the cluster as it is now it would break rules:{listed}{more}\n"
            "Run `gpuplan plan` again."
        )


def require_valid_order(plan: Plan) -> None:
    """Raise PlannerError if an action id occurs twice or an action precedes one that it depends on."""
    seen: set[str] = set()
    for action in plan.actions:
        if action.id in seen:
            raise PlannerError(
                f"plan {plan.plan_id}: expected each action id once, found {action.id} twice.\n"
                "Run `gpuplan plan` again, and report this plan."
            )
        if early := sorted(set(action.after_actions) - seen):
            raise PlannerError(
                f"plan {plan.plan_id}: action {action.id} must come after {', '.join(early)}; "
                "expected those before it, found them later or not at all.\n"
                "Run `gpuplan plan` again, and report this plan."
            )
        seen.add(action.id)
