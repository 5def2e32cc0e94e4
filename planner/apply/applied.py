"""What of a plan was really done, for a rollback: by the cluster, or by the audit log and a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError, StalePlanError, truncated_names
from gpuplan.models.plan.audit import ActionOutcome, AuditKind
from gpuplan.models.units import print_timestamp
from gpuplan.planner.analysis.effects import likely_executor
from gpuplan.planner.apply.plan_view import with_expected_gpus, with_untold
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import (
    actions_done_in,
    phases_of,
    progress_of,
    records_of,
    refuse_other_cluster,
    snapshot_for,
)
from gpuplan.planner.executors.interface import Pin
from gpuplan.planner.plan_file.plan_file import uid_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.executors.interface import Executor


@dataclass(frozen=True, slots=True)
class AppliedPart:
    """The part of a plan that a cluster has carried out, and the cluster now."""

    done: frozenset[str]
    """Ids of the actions that were carried out."""
    live: Snapshot
    """With the plan's names of GPUs where the cluster chooses them, and with lost places."""
    pins_gpus: bool = True
    """False if the cluster chooses the GPUs of a job itself, on every node."""


def applied_on(plan: Plan, cluster: Executor, audit: AuditLog) -> AppliedPart:
    """
    The part of a plan that a cluster has carried out; nothing is changed.

    Raises
    ------
    PlannerError
        The log does not have the plan, or the cluster is at work on a part of it.
    UnperformedError
        The log records steps as done that the cluster has not performed.
    StalePlanError
        It is another cluster.
    """
    records = _records(audit)
    with cluster.looking():
        own = records_of(plan, cluster.identity, records)
        if not own and not steps_of(plan):
            return AppliedPart(frozenset(), cluster.snapshot())
        if not own:
            # The snapshot tells whether it is another cluster, which is the better message.
            refuse_other_cluster(plan, cluster.snapshot())
            raise _never_applied(plan, audit, [each.cluster for each in _of_plan(plan, records)])
        standing = progress_of(plan, cluster.identity, records, phases_of(plan, cluster))
        if standing.under_way:
            raise PlannerError(
                f"plan {plan.plan_id} is under way: the cluster still carries out "
                f"{truncated_names(step.id for step in standing.under_way)}.\n"
                "Wait until it ends, or end it with `gpuplan apply --resume`; then roll it back."
            )
        live = snapshot_for(plan, cluster, standing, promises=False)
    return AppliedPart(frozenset(standing.done_ids), live, Pin.GPU in cluster.pins)


def applied_by_log(plan: Plan, live: Snapshot, audit: AuditLog) -> AppliedPart:
    """
    The part of a plan that the audit log records as done, and a snapshot of the cluster.

    An action that was begun and has no outcome, as after a kill, counts as done if the snapshot shows it.

    Raises
    ------
    PlannerError
        The log does not have the plan, or has it on several clusters.
    StalePlanError
        The snapshot is of another cluster, or was taken before the plan was applied.
    """
    refuse_other_cluster(plan, live)
    own = _of_plan(plan, _records(audit))
    if not own and steps_of(plan):
        raise _never_applied(plan, audit, [])
    if len(clusters := {record.cluster for record in own}) > 1:
        raise PlannerError(
            f"plan {plan.plan_id} was applied on several clusters: {truncated_names(clusters)}.\n"
            "Leave SOURCE out, and name the cluster with --executor and --state."
        )
    _refuse_older(plan, live, own)
    last = {record.action: record for record in own if record.action}
    begun = {id_ for id_, record in last.items() if record.kind is AuditKind.INTENT}
    done = {id_ for id_ in last.keys() - begun if last[id_].outcome is not ActionOutcome.FAILED}
    live = with_expected_gpus(with_untold(live.canonical(), plan, promises=False), plan, done | begun)
    return AppliedPart(frozenset(done | (begun & actions_done_in(plan, live))), live)


def _refuse_older(plan: Plan, live: Snapshot, own: Iterable[AuditRecord]) -> None:
    """Raise if the snapshot is older than the last step: everything would seem to be undone already."""
    # A simulated cluster has a clock of its own, which the times of the log cannot be compared with.
    if likely_executor(live) == "simulated":
        return
    last = max((record.at.replace(microsecond=0) for record in own), default=live.taken_at)
    if live.taken_at < last:
        raise StalePlanError(
            f"SOURCE was taken at {print_timestamp(live.taken_at)}, before plan {plan.plan_id} was applied "
            f"to the end, at {print_timestamp(last)}.\n"
            "Take a new snapshot, or leave SOURCE out, so that the cluster is asked."
        )


def _records(audit: AuditLog) -> tuple[AuditRecord, ...]:
    if not audit.path.exists():
        raise PlannerError(
            f"no audit log is at {audit.path}: expected the log of the apply that is to be rolled back.\n"
            "Name it with --audit."
        )
    return tuple(audit.records())


def _of_plan(plan: Plan, records: Iterable[AuditRecord]) -> list[AuditRecord]:
    return [record for record in records if record.plan_uid == uid_of(plan)]


def _never_applied(plan: Plan, audit: AuditLog, elsewhere: Iterable[str]) -> PlannerError:
    where = f", only on {truncated_names(set(elsewhere))}" if elsewhere else ""
    return PlannerError(
        f"plan {plan.plan_id} was never applied here: the audit log {audit.path} does not have it{where}.\n"
        "Give the plan file that was applied, and the --executor, --state and --audit of that apply."
    )
