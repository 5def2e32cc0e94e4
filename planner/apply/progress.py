"""Progress of a plan on a cluster, derived only from a snapshot of the cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, assert_never

from gpuplan.models.plan.desired_state import Planned
from gpuplan.models.plan.plan import (
    Cordon,
    Drain,
    Grow,
    Migrate,
    Preempt,
    Release,
    Repartition,
    ScaleDown,
    ScaleUp,
    Shrink,
    Start,
)
from gpuplan.models.plan.replica_identity import same_holdings
from gpuplan.models.plan.violation import Rule
from gpuplan.models.timing.time_slots import Slots
from gpuplan.models.validation.damage import survey
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.apply.effects import change_jobs, changes_of, with_layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Change, Plan
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.verify import Verification


def done_in(plan: Plan, live: Snapshot) -> frozenset[str]:
    """Ids of the actions with an effect that is visible in the snapshot."""
    done: set[str] = set()
    relaid: set[tuple[str, int]] = set()
    busy = _busy(live)
    # If the last of several layouts of one GPU is present, the earlier ones are done as well.
    for change in reversed(changes_of(plan.actions)):
        gpu = (change.node, change.gpu) if isinstance(change, Repartition) else None
        if gpu in relaid or _shows(change, live, busy):
            done.add(change.id)
            if gpu is not None:
                relaid.add(gpu)
    return frozenset(done)


def _busy(live: Snapshot) -> frozenset[str]:
    """Names of the nodes with running jobs."""
    return frozenset(replica.node for placed in live.running_placements for replica in placed.replicas)


def _shows(change: Change, live: Snapshot, busy: Collection[str]) -> bool:
    """True if the snapshot shows the effect of the change."""
    nodes = live.cluster.node_by_name
    match change:
        case Start() | Shrink() | Grow() | Migrate():
            job = live.job_by_name.get(change.job)
            return (
                job is not None
                and job.running is not None
                and same_holdings(job.running.replicas, change.after.replicas)
            )
        case Release():
            return change.job not in survey(live).losses
        case Preempt():
            job = live.job_by_name.get(change.job)
            return job is not None and job.running is None
        case Repartition():
            node = nodes.get(change.node)
            gpu = node.gpus.by_index.get(change.gpu) if node and node.gpus else None
            return gpu is not None and gpu.mig is not None and set(gpu.mig) == set(change.after)
        case Cordon():
            return change.node not in nodes or nodes[change.node].cordoned
        case Drain():
            return change.node not in busy
        case ScaleUp():
            return change.node in nodes
        case ScaleDown():
            return change.node not in nodes
        case _:
            assert_never(change)


def verify_rest(plan: Plan, live: Snapshot, done: Collection[str]) -> Verification:
    """
    Verify the cluster as the rest of a plan would leave it.

    Damage is left out, as it was when the plan was made. A remaining action breaks a rule only if two checks
    both report the violation, since each check alone has false alarms:

    - The rest of the plan on the live cluster. The done part can cause violations here: preempted jobs no
      longer borrow, and nodes that the plan cordoned take no jobs.
    - The whole plan on the live cluster without the done part. The time since can cause violations here: a
      job that the plan started is checked as if it started only now.
    """
    live = survey(live).sound
    left = [change for change in changes_of(plan.actions) if change.id not in done]
    running = {placement.job: placement for placement in live.running_placements}
    for change in left:
        change_jobs(running, change)
    placements = tuple(running[job] for job in sorted(running))
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
    judged = partial(
        verify,
        live,
        plan.policy,
        placements,
        added=tuple(change.after for change in changes if isinstance(change, ScaleUp)),
        removed=tuple(sorted(change.node for change in changes if isinstance(change, ScaleDown))),
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


def _without(plan: Plan, live: Snapshot, done: Collection[str]) -> tuple[Snapshot, list[ScaleDown]]:
    """
    The live cluster with the done changes undone, and the node removals that are then to be done again.

    Added nodes stay, since only the cluster knows when they are ready. Anything that has changed again since
    stays as well.
    """
    jobs, nodes = dict(live.job_by_name), dict(live.cluster.node_by_name)
    known, base = plan.snapshot.job_by_name, plan.snapshot.cluster.node_by_name
    busy = _busy(live)
    removed: list[ScaleDown] = []
    for change in reversed(changes_of(plan.actions)):
        if change.id not in done:
            continue
        match change:
            case Start() | Preempt() | Shrink() | Grow() | Migrate():
                if _shows(change, live, busy):
                    jobs[change.job] = known[change.job]
            case Repartition():
                if change.node in nodes:
                    nodes[change.node] = with_layout(nodes[change.node], change.gpu, change.before)
            case Cordon():
                if change.node in nodes and not base[change.node].cordoned:
                    nodes[change.node] = nodes[change.node].model_copy(update={"cordoned": False})
            case ScaleDown():
                if change.node not in nodes:
                    nodes[change.node] = base[change.node]
                    removed.append(change)
            case Release() | Drain() | ScaleUp():
                pass  # lost places stay lost, and added nodes stay
            case _:
                assert_never(change)
    cluster = live.cluster.model_copy(update={"nodes": tuple(nodes.values())})
    return live.model_copy(update={"cluster": cluster, "jobs": tuple(jobs.values())}).canonical(), removed


def _before_scaling(plan: Plan, live: Snapshot, done: Collection[str]) -> Snapshot:
    """The snapshot with the pools' last scaling times from before the plan, where the plan scaled them."""
    scaled = {
        change.pool
        for change in changes_of(plan.actions)
        if isinstance(change, ScaleUp | ScaleDown) and change.id in done
    }
    if not scaled:
        return live
    before = {pool.name: pool for pool in plan.snapshot.cluster.pools if pool.name in scaled}
    pools = tuple(pool.scaled_as(before.get(pool.name, pool)) for pool in live.cluster.pools)
    return live.model_copy(update={"cluster": live.cluster.model_copy(update={"pools": pools})})


def _still_planned(plan: Plan, live: Snapshot) -> tuple[Planned, ...]:
    """The plan's later starts of jobs that still exist, in the slots that begin at these times from now."""
    edges = Slots.of(plan.policy.horizon, live.taken_at).edges[:-1]
    slot_at = {live.taken_at + timedelta(seconds=edge): slot for slot, edge in enumerate(edges) if slot}
    free = {job.name for job in live.jobs if not job.held}
    return tuple(
        Planned(each.job, slot_at[each.start], each.replicas, promised=each.promised)
        for each in plan.planned
        if each.start in slot_at and each.job in free
    )
