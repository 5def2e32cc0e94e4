"""
Progress of a plan on a cluster, and whether its remaining steps may be done there.

The cluster is the source of truth: a step is done if the cluster has performed it. The audit log only records
this; a log with more steps than the cluster has performed is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import StalePlanError, listed, truncated_names
from gpuplan.models.plan.actions import (
    NodeAction,
    PoolAction,
    Release,
    Repartition,
    ScaleUp,
    added_nodes,
    changes_of,
    opened_nodes,
    removed_nodes,
)
from gpuplan.models.plan.audit import ActionOutcome, AuditKind
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.plan.violation import Rule
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_timestamp
from gpuplan.models.validation.damage import survey_damage
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.action_marks import PROMISES
from gpuplan.planner.analysis.effects import ClusterView, apply_action, shows, snapshot_after
from gpuplan.planner.analysis.node_actions import rules_of
from gpuplan.planner.apply.outcome import (
    DriftedPlanError,
    OtherClusterError,
    UnperformedError,
    unfinished_error,
)
from gpuplan.planner.apply.plan_view import with_expected_gpus, with_untold
from gpuplan.planner.apply.promises import PromiseStep, promise_step, steps_of
from gpuplan.planner.apply.steps.group_start import starts_in_motion
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.executors.interface import ActionPhase, Pin, UnreachableError
from gpuplan.planner.plan_file.plan_file import uid_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.verify import Verification
    from gpuplan.planner.apply.promises import Step
    from gpuplan.planner.executors.interface import ClusterWriter, Executor


_CARRIED_OUT: Final = (ActionPhase.ASKED, ActionPhase.UNDER_WAY)


@dataclass(frozen=True, slots=True)
class ApplyProgress:
    """Progress of a plan on a cluster."""

    total: int
    """Steps of the plan."""
    done: tuple[Step, ...] = ()
    """Steps that the cluster has performed, in the plan's order."""
    left: tuple[Step, ...] = ()
    under_way: tuple[Change, ...] = ()
    """
    Of those that are left, the actions that an earlier apply began and the cluster still carries out, and all
    starts of a group of which it began some.
    """
    intended_at: Mapping[str, datetime] = field(default_factory=dict)
    """When the last attempt of each of these was recorded, by id; their deadlines count from then."""
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


def phases_of(plan: Plan, cluster: ClusterWriter) -> dict[str, ActionPhase]:
    """
    Where each step of a plan stands on a cluster, by its id.

    Raises
    ------
    UnreachableError
        The cluster cannot tell it for some step.
    """
    id_of = {key_of(plan, step): step.id for step in steps_of(plan)}
    found = {id_of[key]: progress.phase for key, progress in cluster.observe(id_of).items()}
    if unknown := [id_ for id_ in id_of.values() if found[id_] is ActionPhase.UNKNOWN]:
        raise UnreachableError(
            f"plan {plan.plan_id}: the cluster cannot tell how far {truncated_names(unknown)} went. "
            "Nothing was done; try again."
        )
    return found


def landed_steps(plan: Plan, cluster: ClusterWriter) -> frozenset[str]:
    """Ids of the steps that have landed on a cluster."""
    return frozenset(id_ for id_, phase in phases_of(plan, cluster).items() if phase is ActionPhase.LANDED)


def progress_of(
    plan: Plan, cluster: str, records: Iterable[AuditRecord], phases: Mapping[str, ActionPhase]
) -> ApplyProgress:
    """
    Progress of a plan on the cluster with this identity, where its steps stand as in `phases`.

    Raises
    ------
    UnperformedError
        The log records steps as done that the cluster has not performed.
    """
    own, steps = records_of(plan, cluster, records), steps_of(plan)
    recorded = {
        record.action for record in own if record.outcome in (ActionOutcome.DONE, ActionOutcome.SKIPPED)
    }
    moving = starts_in_motion(plan, phases, frozenset(recorded))
    done = tuple(
        step
        for step in steps
        if (phases[step.id] is ActionPhase.LANDED and step.id not in moving)
        or (phases[step.id] is ActionPhase.GONE and step.id in recorded)
    )
    landed = {step.id for step in done}
    left = tuple(step for step in steps if step.id not in landed)
    if lost := tuple(step.id for step in left if step.id in recorded):
        raise UnperformedError(plan.plan_id, lost)
    return ApplyProgress(
        total=len(steps),
        done=done,
        left=left,
        under_way=tuple(
            step
            for step in left
            if (phases[step.id] in _CARRIED_OUT or step.id in moving) and not isinstance(step, PromiseStep)
        ),
        intended_at={record.action: record.at for record in own if record.kind is AuditKind.INTENT},
        owed=tuple(step for step in done if step.id not in recorded),
        closed=not own or own[-1].kind is AuditKind.END,
    )


def snapshot_for(
    plan: Plan,
    cluster: Executor,
    standing: ApplyProgress,
    begun: Collection[str] = (),
    *,
    promises: bool = True,
) -> Snapshot:
    """
    The live cluster as a plan sees it, with the steps `begun` beside those that the standing names.

    It has the promises before the plan where the cluster stores none, until its own are recorded, the facts
    of hosts that it does not tell, and the plan's GPU indices where the cluster chooses the GPUs. With
    `promises=False` only the cluster's own promises count.
    """
    names = {*standing.done_ids, *(step.id for step in standing.under_way), *begun}
    live = with_untold(cluster.snapshot(), plan, promises=promises and PROMISES not in standing.done_ids)
    return with_expected_gpus(live, plan, names, pinned=Pin.GPU in cluster.pins)


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
        refuse_other_cluster(plan, live)
    # What is under way may be done by half, so it is judged as if it had landed.
    begun = (*done, *(step.id for step in standing.under_way))
    live = snapshot_after(live, standing.under_way)
    if items := drift(plan, live, done=begun, mode=drift_mode or plan.policy.drift):
        raise DriftedPlanError(plan.plan_id, items)
    _refuse_broken_rules(plan, live, begun)


def refuse_other_cluster(plan: Plan, live: Snapshot) -> None:
    """Raise if a snapshot is of another cluster than the plan."""
    if is_other_cluster(plan.snapshot.cluster, live.cluster):
        raise OtherClusterError(plan.plan_id, plan.snapshot.cluster, live.cluster)


def is_other_cluster(meant: Cluster, found: Cluster) -> bool:
    """True if both clusters have names and these differ, or if both have nodes and none in common."""
    if meant.named and found.named and meant.name != found.name:
        return True
    both = meant.nodes and found.nodes
    return bool(both) and meant.node_by_name.keys().isdisjoint(found.node_by_name)


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
        raise StalePlanError(
            f"Plan {plan.plan_id} is stale: in the cluster as it is now it would break rules:"
            f"{listed(violations)}\nRun `gpuplan plan` again."
        )


# Progress of a plan on a cluster, derived only from a snapshot of the cluster.


def actions_done_in(plan: Plan, live: Snapshot) -> frozenset[str]:
    """Ids of the actions with an effect that is visible in the snapshot."""
    done: set[str] = set()
    relaid: set[tuple[str, int]] = set()
    busy = _busy(live)
    # If the last of several layouts of one GPU is present, the earlier ones are done as well.
    for change in reversed(changes_of(plan.actions)):
        gpu = (change.node, change.gpu) if isinstance(change, Repartition) else None
        if gpu in relaid or shows(change, live, busy):
            done.add(change.id)
            if gpu is not None:
                relaid.add(gpu)
    return frozenset(done)


def promises_recorded_in(plan: Plan, live: Snapshot) -> bool:
    """True if a snapshot shows that a plan was carried out to its last step, which records promises."""
    step, changes = promise_step(plan), changes_of(plan.actions)
    shown = {job.name: job.promise for job in live.jobs if job.promise and job.running is None}
    if step is None or shown != {name: each for name, each in step.promises.items() if name in shown}:
        return False
    return bool(shown or changes) and len(actions_done_in(plan, live)) == len(changes)


def _busy(live: Snapshot) -> frozenset[str]:
    """Names of the nodes with running jobs."""
    return frozenset(replica.node for placed in live.running_placements for replica in placed.replicas)


def verify_remaining(plan: Plan, live: Snapshot, done: Collection[str]) -> Verification:
    """
    Verify the cluster as the rest of a plan would leave it.

    Damage is left out, as it was when the plan was made. A remaining action breaks a rule only if two checks
    both report the violation, since each check alone has false alarms:

    - The rest of the plan on the live cluster. The done part can cause violations here: preempted jobs no
      longer borrow, and nodes that the plan cordoned take no jobs.
    - The whole plan on the live cluster without the done part. The time since can cause violations here: a
      job that the plan started is checked as if it started only now.
    """
    live = survey_damage(live).sound
    left = [change for change in changes_of(plan.actions) if change.id not in done]
    after = ClusterView(live)
    for change in left:
        apply_action(after, change)
    placements = tuple(after.placements[job] for job in sorted(after.placements))
    found = _judged(plan, live, placements, left)
    if not done or not found.violations:
        return found
    before, undone = _without(plan, live, done)
    whole = _judged(plan, _before_scaling(plan, before, done), placements, [*undone, *left])
    broken = {(violation.rule, violation.subject) for violation in whole.violations}
    both = tuple(each for each in found.violations if (each.rule, each.subject) in broken)
    return replace(found, violations=both)


def _judged(
    plan: Plan, live: Snapshot, placements: tuple[Placement, ...], changes: Iterable[Change]
) -> Verification:
    """
    Verify the cluster as these changes of a plan leave it.

    If the cluster has changed or time has passed, expected ends have moved. Then of the plan's later slots
    only the promises are checked. The order of priorities is not checked again, since jobs of higher priority
    may have been submitted since the plan was made.
    """
    changes = tuple(changes)
    relaid = {(each.node, each.gpu) for each in changes if isinstance(each, Repartition)}
    undo = replace(
        plan.undo,
        opened=opened_nodes(changes),
        layouts=tuple(each for each in plan.undo.layouts if (each.node, each.gpu) in relaid),
    )
    judged = partial(
        verify,
        live,
        plan.policy,
        placements,
        added=added_nodes(changes),
        removed=removed_nodes(changes),
        undo=undo,
    )
    if live == plan.snapshot:
        return judged(planned=plan.target.planned)
    found = judged(by_priority=False)
    now = {broken for broken in found.violations if broken.rule is not Rule.PROMISES}
    if not plan.planned and not any(job.promise for job in live.jobs):
        return replace(found, violations=tuple(sorted(now)))
    later = judged(planned=_still_planned(plan, live), by_priority=False).violations
    kept = {broken for broken in later if broken.rule is Rule.PROMISES}
    return replace(found, violations=tuple(sorted(now | kept)))


def _without(plan: Plan, live: Snapshot, done: Collection[str]) -> tuple[Snapshot, list[NodeAction]]:
    """
    The live cluster with the done changes undone, and those of nodes that are then to be done again.

    Added nodes are added again as they are now, since only the cluster knows when they are ready: while they
    are there, a reservation of so many nodes may choose others than the plan counted on. One with jobs of
    others stays, and so does anything that has changed again since.
    """
    jobs, nodes = dict(live.job_by_name), dict(live.cluster.node_by_name)
    known, base = plan.snapshot.job_by_name, plan.snapshot.cluster.node_by_name
    busy = _busy(live)
    again: list[NodeAction] = []
    for change in reversed(changes_of(plan.actions)):
        if change.id not in done:
            continue
        if isinstance(change, NodeAction):
            now = nodes.get(change.node)
            if (before := rules_of(change).without(change, now, base.get(change.node))) is not None:
                nodes[change.node] = before
                if now is None:
                    again.append(change)
            elif isinstance(change, ScaleUp) and now is not None:
                again.append(change.model_copy(update={"after": now.model_copy(update={"ready_at": None})}))
        elif not isinstance(change, Release) and shows(change, live, busy):
            # What a release gave up stays lost.
            jobs[change.job] = known[change.job]
    held = _busy(live.model_copy(update={"jobs": tuple(jobs.values())}))
    again = [change for change in again if not (isinstance(change, ScaleUp) and change.node in held)]
    added = {change.node for change in again if isinstance(change, ScaleUp)}
    left = [node for name, node in nodes.items() if name not in added]
    undone = live.with_nodes(left).model_copy(update={"jobs": tuple(jobs.values())})
    return undone.canonical(), again


def _before_scaling(plan: Plan, live: Snapshot, done: Collection[str]) -> Snapshot:
    """The snapshot with the pools' last scaling times from before the plan, where the plan scaled them."""
    scaled = {
        change.pool
        for change in changes_of(plan.actions)
        if isinstance(change, PoolAction) and change.id in done
    }
    if not scaled:
        return live
    before = {pool.name: pool for pool in plan.snapshot.cluster.pools if pool.name in scaled}
    pools = tuple(pool.with_scaling_times_of(before.get(pool.name, pool)) for pool in live.cluster.pools)
    return live.model_copy(update={"cluster": live.cluster.model_copy(update={"pools": pools})})


def _still_planned(plan: Plan, live: Snapshot) -> tuple[LaterStart, ...]:
    """The plan's later starts of jobs that still exist, in the slots that begin at these times from now."""
    edges = TimeSlots.of(plan.policy.horizon, live.taken_at).edges[:-1]
    slot_at = {live.taken_at + timedelta(seconds=edge): slot for slot, edge in enumerate(edges) if slot}
    free = {job.name for job in live.jobs if not job.withheld}
    return tuple(
        LaterStart(each.job, slot_at[each.start], each.replicas, promised=each.promised)
        for each in plan.planned
        if each.start in slot_at and each.job in free
    )
