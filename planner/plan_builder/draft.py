"""
draft(snapshot, policy, solution) → Plan: derive the actions from the states before and after, with reasons.

Only this package creates actions. Every job of the snapshot gets exactly one; a job without a change gets an
explicit `Keep`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gpuplan.models.base import hash_of
from gpuplan.models.placement import GpuShare, Placement
from gpuplan.models.plan.actions import (
    ACTIONS,
    ActionKind,
    Change,
    Grow,
    JobAction,
    Keep,
    Migrate,
    Preempt,
    Repartition,
    Shrink,
    Start,
    Wait,
)
from gpuplan.models.plan.plan import (
    Base,
    FallbackSummary,
    LeftOut,
    NodeChange,
    NodeState,
    Plan,
    SolutionSummary,
    StageSummary,
    Waiting,
)
from gpuplan.models.plan.precondition import Free, GpuLayout, JobRuns, JobWaits, Precondition
from gpuplan.models.plan.solution import Solution, SolveStatus
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.validation.damage import DamageSurvey, survey_damage
from gpuplan.models.value.disruption_cost import recovery_seconds
from gpuplan.planner.analysis.budget_use import budget_uses
from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges, free_preconditions
from gpuplan.planner.analysis.metrics import compute_metrics
from gpuplan.planner.analysis.node_actions import NODE_RULES
from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.plan_builder.beneficiaries import Beneficiaries, ReleasedResources
from gpuplan.planner.plan_builder.damage import after_releases, damage_findings, release_actions
from gpuplan.planner.plan_builder.later_starts import PlanPromises, deadline_outlooks
from gpuplan.planner.plan_builder.reasons import UNCHANGED, ActionValue, Reasons
from gpuplan.planner.plan_builder.step_order import JobStep, LayoutStep, NodeStep, Step, order_steps
from gpuplan.planner.plan_file.plan_file import with_id
from gpuplan.planner.problem_builder.incumbents import left_out
from gpuplan.planner.waiting.diagnose import waiting_reasons

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.job import Job
    from gpuplan.models.plan.reason import Reason
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


def draft(
    snapshot: Snapshot,
    policy: Policy,
    solution: Solution,
    verification_terms: dict[str, int],
    *,
    seed: int,
    created_at: datetime,
    last: Plan | None = None,
    damage: DamageSurvey | None = None,
    cache: EpochCache | None = None,
) -> Plan:
    """
    Turn a verified solution into the plan that operators review and `apply` carries out.

    `verification_terms` are the terms of the objective as computed by the verifier. The plan does not depend
    on the order of elements in the snapshot or in the target. It does not depend on the `last` plan either:
    only equal objects are reused from there. `damage` lists the losses that were removed from the snapshot.

    Raises
    ------
    PlannerError
        The changes cannot be carried out in any order.
    """
    snapshot = snapshot.canonical()
    damage, cache = damage or survey_damage(snapshot), cache or EpochCache()
    changes, rules = PlanChanges(snapshot, solution.target), policy.within(snapshot.cluster)
    target = changes.settled
    worth = ActionValue(changes, rules)
    future = ProjectedSchedule(snapshot, rules, target)
    promises = PlanPromises(future)
    released = release_actions(damage, snapshot.taken_at)
    points = {change.job.name: worth.points(change) for change in changes.jobs}
    steps = order_steps(changes, points, released)
    purpose = Beneficiaries(steps)
    why = Reasons(changes, purpose, worth, promises, ReleasedResources(changes))
    proven = solution.status is SolveStatus.OPTIMAL
    preempted = {
        step.change.job.name: why.makes_room_for(step)
        for step in steps
        if isinstance(step, JobStep) and step.change.kind is ActionKind.PREEMPT
    }
    reasons = waiting_reasons(snapshot, rules, target, preempted=preempted, proven=proven, changes=changes)
    # The fingerprint of the snapshot has the texts of jobs written, for those of single jobs too.
    base = Base(snapshot=snapshot.fingerprint(), policy=policy.fingerprint())
    kept = ReusedParts(last, cache)
    changed = {change.job.name for change in changes.jobs}
    made = (
        action(
            step,
            why.reason(step),
            changes,
            lambda name: hash_of((snapshot.job_by_name[name].canonical_text,)),
            promises=promises,
            recovery=partial(recovery_seconds, policy),
        )
        for step in steps
    )
    actions = (
        *released,
        *after_releases(made, released),
        *(kept.keep(placement) for placement in snapshot.running_placements if placement.job not in changed),
        *(kept.wait(name, reason) for name, reason in sorted(reasons.items()) if name not in changed),
    )
    of_job = {each.job: each for each in actions if isinstance(each, JobAction)} if damage.losses else {}
    plan = Plan(
        plan_id="",
        epoch=snapshot.taken_at,
        created_at=created_at,
        base=base,
        solution=_summary(solution, verification_terms, left_out(snapshot, rules, cache)),
        actions=actions,
        findings=damage_findings(damage, of_job, snapshot.taken_at),
        placements=target.placements,
        nodes=_node_states(changes, kept),
        waiting=tuple(
            kept.waiting(promises.waiting(name, reason)) for name, reason in sorted(reasons.items())
        ),
        planned=promises.planned(),
        # With a single slot the plan has no start times of pending jobs, so their completion is unknown.
        deadlines=tuple(deadline_outlooks(future)) if future.slots.count > 1 else (),
        metrics=compute_metrics(changes),
        budgets=budget_uses(snapshot, policy, target),
        seed=seed,
        snapshot=snapshot,
        policy=policy,
    )
    return with_id(plan)


def _summary(solution: Solution, terms: dict[str, int], unseen: tuple[LeftOut, ...]) -> SolutionSummary:
    fallback = solution.fallback
    return SolutionSummary(
        status=_proven_or_found(solution.status),
        solver=solution.solver,
        objective=solution.objective,
        bound=solution.bound,
        gap=solution.gap,
        greedy_objective=solution.greedy_objective,
        terms=dict(sorted(terms.items())),
        seconds=round(solution.seconds, 3),
        phases={phase: round(seconds, 3) for phase, seconds in solution.phases.items()},
        bound_note=solution.bound_note,
        ended=solution.ended,
        stages=tuple(
            StageSummary(priority=each.priority, points=each.points, proven=each.proven)
            for each in solution.stages
        ),
        fallback=FallbackSummary(tried=fallback.tried, used=fallback.used, reason=fallback.reason)
        if fallback
        else None,
        rejected=tuple(f"{rejected.solver}: {rejected.violations[0]}" for rejected in solution.rejected),
        not_disaggregated=solution.not_disaggregated,
        left_out=unseen,
    )


def _proven_or_found(status: SolveStatus) -> Literal["OPTIMAL", "FEASIBLE"]:
    match status:
        case SolveStatus.OPTIMAL:
            return "OPTIMAL"
        case SolveStatus.FEASIBLE:
            return "FEASIBLE"
        case SolveStatus.INFEASIBLE | SolveStatus.NO_ANSWER | SolveStatus.FAILED:
            raise ValueError(f"expected an answer to draft a plan from, found status {status}")


def _node_states(changes: PlanChanges, kept: ReusedParts) -> tuple[NodeState, ...]:
    """States of all existing and new nodes; a removed node has no free resources."""
    before, free = changes.snapshot.cluster.node_by_name, changes.free
    states = {
        name: NodeState(name=name, change=NodeChange.REMOVED, pool=before[name].pool)
        for name in changes.removed
    }
    for name, node in changes.cluster.node_by_name.items():
        change = NodeChange.ADDED if name in changes.added else NodeChange.KEPT
        states[name] = kept.node(node, free[name], change)
    return tuple(states[name] for name in sorted(states))


# Reuse of the last plan's objects for jobs and nodes that do not change.
#
# The parts of a plan are frozen. An equal part is taken over together with its cached values, mainly its
# text. From epoch to epoch this holds for most of a plan.


class ReusedParts:
    """Builds parts of a new plan, or takes equal ones from the `last` plan."""

    def __init__(self, last: Plan | None, cache: EpochCache) -> None:
        actions = last.actions if last else ()
        self._keeps = {action.job: action for action in actions if type(action) is Keep}
        self._waits = {action.job: action for action in actions if type(action) is Wait}
        self._waiting = {waiting.job: waiting for waiting in (last.waiting if last else ())}
        self._before = cache.node_states
        self._nodes: dict[str, tuple[object, NodeState]] = {}
        cache.node_states = self._nodes

    def keep(self, placement: Placement) -> Keep:
        """Action of a running job that stays as it is."""
        known = self._keeps.get(placement.job)
        if known and known.before is known.after is placement and known.reason is UNCHANGED:
            return known
        return Keep.of_valid(
            id=f"keep/{placement.job}", job=placement.job, before=placement, after=placement, reason=UNCHANGED
        )

    def wait(self, name: str, reason: Reason) -> Wait:
        """Action of a pending job that does not start."""
        known = self._waits.get(name)
        if known and known.reason == reason:
            return known
        return Wait.of_valid(id=f"wait/{name}", job=name, reason=reason)

    def waiting(self, found: Waiting) -> Waiting:
        """A pending job with its projected start."""
        known = self._waiting.get(found.job)
        return known if known == found else found

    def node(self, node: Node, left: FreeResources, change: NodeChange) -> NodeState:
        """State of a node after the plan, with its free resources."""
        known = self._before.get(node.name)
        if known is None or known[0] != (node, left, change):
            known = (node, left, change), _state(node, left, change)
        self._nodes[node.name] = known
        return known[1]


def _state(node: Node, left: FreeResources, change: NodeChange) -> NodeState:
    return NodeState(
        name=node.name,
        change=change,
        pool=node.pool,
        free_gpus=tuple([max(0, milli) for milli in left.gpu_milli]),
        free_cpu_milli=print_milli(max(0, left.cpu_milli)),  # constructors take cores
        free_memory_mib=max(0, left.memory_mib),
        mig=tuple(gpu for gpu in node.gpus.details if gpu.mig is not None) if node.gpus else (),
    )


# Build the action of each step of a plan.


def action(
    step: Step,
    reason: Reason,
    changes: PlanChanges,
    fingerprint: Callable[[str], str],
    *,
    promises: PlanPromises,
    recovery: Callable[[Job], int],
) -> Change:
    """
    The action of a step.

    `fingerprint` maps a job to the fingerprint of its document in the snapshot. `promises` has the kill time
    of a started job and the restart time of a preempted one. `recovery` gives the seconds before a job that
    was stopped works again.
    """
    common = {
        "id": step.id,
        "reason": reason,
        "preconditions": preconditions_of(step, changes.snapshot.cluster, fingerprint),
        "after_actions": step.after,
    }
    match step:
        case JobStep(change=change):
            return _of_job(change, common, promises, recovery)
        case LayoutStep(change=layout):
            return Repartition(
                node=layout.node, gpu=layout.gpu, before=layout.before, after=layout.after, **common
            )
        case NodeStep():
            return NODE_RULES[step.kind].action(step.node, changes, common)


def _of_job(
    change: JobChange,
    common: dict[str, Any],
    promises: PlanPromises,
    recovery: Callable[[Job], int],
) -> Change:
    job = {"job": change.job.name, **common}
    match change.kind:
        case ActionKind.START:
            again = recovery(change.job) if change.job.progress else 0
            kill_at = promises.kill_at(change.job.name)
            return Start.of_valid(after=change.after, kill_at=kill_at, recovery=again, **job)
        case ActionKind.PREEMPT:
            return Preempt(before=change.before, resumes_at=promises.resumes_at(change.job.name), **job)
        case ActionKind.SHRINK:
            return Shrink(before=change.before, after=change.after, interruption=recovery(change.job), **job)
        case ActionKind.GROW:
            return Grow(before=change.before, after=change.after, interruption=recovery(change.job), **job)
        case ActionKind.MIGRATE:
            return Migrate(before=change.before, after=change.after, recovery=recovery(change.job), **job)
        case _:
            raise ValueError(f"expected a change of job {change.job.name!r}, found {change.kind}")


# Preconditions of each step; apply checks them directly before it carries out the action.


def preconditions_of(
    step: Step, cluster: Cluster, fingerprint: Callable[[str], str]
) -> tuple[Precondition, ...]:
    """Preconditions of a step; `fingerprint` maps a job to that of its document in the snapshot."""
    match step:
        case JobStep(change=change):
            name = change.job.name
            asked = JobWaits if change.kind is ActionKind.START else JobRuns
            known = asked.of_valid(job=name, job_fingerprint=fingerprint(name))
            return known, *free_preconditions(change, cluster)
        case LayoutStep(change=layout):
            destroyed = tuple(
                instance for instance in layout.before or () if instance not in set(layout.after)
            )
            laid_out = GpuLayout(node=layout.node, gpu=layout.gpu, instances=layout.before, idle=destroyed)
            # MIG mode can be switched only while no job holds any part of the GPU.
            whole = Free(node=layout.node, gpus=(GpuShare(index=layout.gpu, milli=MILLI),))
            return (laid_out, whole) if layout.before is None else (laid_out,)
        case NodeStep():
            return (ACTIONS[step.kind].needs.model_validate({"node": step.node}),)
