"""Consistency of the parts of a plan, so that the applied actions are the verified and reviewed ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import (
    ActionKind,
    Grow,
    JobAction,
    Migrate,
    NodeAction,
    PoolAction,
    Preempt,
    Release,
    Repartition,
    ScaleUp,
    Shrink,
    Start,
    Wait,
    info_of,
)
from gpuplan.models.plan.plan import DeadlineOutlook, DeadlineState, NodeChange, Plan
from gpuplan.models.plan.precondition import Free, GpuLayout, JobDamaged, JobRuns, JobWaits, NodeAbsent
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_timestamp
from gpuplan.models.validation.base import FindingOutcome
from gpuplan.planner.analysis.budget_use import budget_uses
from gpuplan.planner.analysis.job_changes import JobChange, free_preconditions, job_change
from gpuplan.planner.analysis.target_cluster import target_layouts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import MigInstance, Node


def contradictions(plan: Plan) -> Iterator[str]:
    """
    All contradictions in a plan; a plan that gpuplan made has none.

    Apply carries out the actions, while the verifier checks placements and nodes. So both must agree on the
    places of jobs, on nodes and on MIG layouts. Planned starts must agree with the entries of pending jobs.
    Each job of the snapshot must have one action. Each action must have its preconditions and follow the
    actions that it depends on. The objective's figures must agree.
    """
    yield from _jobs(plan)
    yield from _releases(plan)
    yield from _order(plan)
    yield from _places(plan)
    yield from _waiting(plan)
    yield from node_contradictions(plan)
    yield from time_contradictions(plan)
    yield from _figures(plan)
    if plan.budgets != budget_uses(plan.snapshot, plan.rules, plan.target):
        yield "the use of disruption budgets is not that of the placements"


def _jobs(plan: Plan) -> Iterator[str]:
    acted = Counter(action.job for action in plan.actions if isinstance(action, JobAction))
    known = {job.name for job in plan.snapshot.jobs}
    for job in sorted(known - acted.keys()):
        yield f"job {job} has no action"
    for job in sorted(acted.keys() - known):
        yield f"job {job} has an action and is not in the snapshot"
    for job, count in sorted(acted.items()):
        if count > 1:
            yield f"job {job} has {count} actions"
    if plan.rollback is not None:
        changed = {each.job for each in plan.actions if isinstance(each, JobAction) and each.type != "keep"}
        waits = {each.job for each in plan.actions if isinstance(each, Wait)}
        for job in sorted(changed - waits - set(plan.rollback.jobs)):
            yield f"job {job} is changed by a rollback of a plan that did not change it"


def _releases(plan: Plan) -> Iterator[str]:
    """Check that each released job has a finding, and that the snapshot has it without the lost places."""
    named = {each.job for each in plan.findings if each.outcome is not FindingOutcome.LEFT and each.job}
    released = [action for action in plan.actions if isinstance(action, Release)]
    for job in sorted(named ^ {release.job for release in released}):
        yield f"job {job} has a finding of damage or a release of lost places, not both"
    for release in released:
        known = plan.snapshot.job_by_name.get(release.job)
        if known is None or known.placement != release.after:
            yield f"action {release.id} leaves job {release.job} elsewhere than the snapshot has it"
        if JobDamaged(job=release.job) not in release.preconditions:
            yield f"action {release.id} releases a job without asking whether it is damaged"


def _order(plan: Plan) -> Iterator[str]:
    seen: set[str] = set()
    for action in plan.actions:
        if action.id in seen:
            yield f"two actions are called {action.id}"
        for early in sorted(set(action.after_actions) - seen):
            yield f"action {action.id} must come after {early}, which does not come before it"
        seen.add(action.id)


def _places(plan: Plan) -> Iterator[str]:
    placed = {placement.job: placement for placement in plan.placements}
    if len(placed) < len(plan.placements):
        yield f"{len(plan.placements) - len(placed)} jobs are placed twice"
    for job in sorted(placed.keys() - plan.snapshot.job_by_name.keys()):
        yield f"job {job} is placed and is not in the snapshot"
    for action in plan.actions:
        if not isinstance(action, JobAction) or action.job not in plan.snapshot.job_by_name:
            continue
        known, placement = plan.snapshot.job_by_name[action.job], placed.get(action.job)
        try:
            change = job_change(known, placement)
        except ValueError:
            yield f"job {action.job} is neither kept nor moved, shrunk or grown by its placement"
            continue
        if action.type != change.kind:
            yield f"action {action.id} would {action.type} job {action.job}, its placement says {change.kind}"
        elif (action.before, action.after) != (known.placement, placement):
            yield f"job {action.job} is placed elsewhere by its action than among the placements"
        elif change.kind not in (ActionKind.KEEP, ActionKind.WAIT):
            yield from _asks_for_what_it_takes(action, change, plan)


def _asks_for_what_it_takes(action: JobAction, change: JobChange, plan: Plan) -> Iterator[str]:
    match action:
        case Start():
            asks = any(isinstance(one, JobWaits) and one.job == action.job for one in action.preconditions)
            if not asks:
                yield f"action {action.id} starts a job without asking whether it waits"
        case Preempt() | Shrink() | Grow() | Migrate():
            asks = any(isinstance(one, JobRuns) and one.job == action.job for one in action.preconditions)
            if not asks:
                yield f"action {action.id} changes a job without asking whether it runs"
    asked = [one for one in action.preconditions if isinstance(one, Free)]
    for needed in free_preconditions(change, plan.snapshot.cluster):
        if not _covers([one for one in asked if one.node == needed.node], needed):
            yield f"action {action.id} does not ask for all it takes on node {needed.node}"


def _covers(asked: Iterable[Free], needed: Free) -> bool:
    """True if the sum of several demands on a node covers another demand."""
    total, least = _amounts(asked), _amounts([needed])
    return bool(asked) and all(total[name] >= amount for name, amount in least.items())


def _amounts(demands: Iterable[Free]) -> Counter[object]:
    amounts: Counter[object] = Counter()
    for demand in demands:
        amounts.update(demand.gpus)
        amounts.update(demand.resources)
        amounts.update(
            {
                "cpu milli": demand.cpu_milli,
                "memory mib": demand.memory_mib,
                "disk mib": demand.disk_mib,
            }
        )
    return amounts


def _waiting(plan: Plan) -> Iterator[str]:
    told = Counter(waiting.job for waiting in plan.waiting)
    waits = {action.job for action in plan.actions if isinstance(action, Wait | Preempt)}
    for job in sorted(waits ^ told.keys()):
        yield f"job {job} waits by its action or by the list of waiting jobs, not by both"
    for job, count in sorted(told.items()):
        if count > 1:
            yield f"job {job} waits {count} times"


def _figures(plan: Plan) -> Iterator[str]:
    solution = plan.solution
    total = sum(solution.terms.values())
    if total != solution.objective:
        yield f"the terms sum to {total:,}, the objective is {solution.objective:,}"
    if solution.bound is not None and solution.bound < solution.objective:
        yield f"the bound {solution.bound:,} is below the objective {solution.objective:,}"


# Consistency of a plan's node and MIG actions with its placements and its list of nodes.


def node_contradictions(plan: Plan) -> Iterator[str]:
    """All contradictions about nodes and MIG layouts."""
    yield from _pools(plan)
    yield from _states(plan)
    yield from _layouts(plan)
    for action in plan.actions:
        if isinstance(action, NodeAction) and not any(
            isinstance(one, info_of(action).needs) and getattr(one, "node", None) == action.node
            for one in action.preconditions
        ):
            yield f"action {action.id} does not ask whether node {action.node} is as it expects"


def _pools(plan: Plan) -> Iterator[str]:
    """Check that added and removed nodes agree with their actions."""
    known = plan.snapshot.cluster.node_by_name
    seen: Counter[tuple[str, str]] = Counter()
    for action in plan.actions:
        if not isinstance(action, NodeAction) or isinstance(action, Repartition):
            continue
        seen[action.type, action.node] += 1
        node = known.get(action.node)
        if info_of(action).needs is NodeAbsent:
            if node is not None:
                yield f"action {action.id} adds node {action.node}, which exists"
        elif node is None:
            yield f"action {action.id} is about node {action.node}, which is not in the snapshot"
        if isinstance(action, ScaleUp) and (action.after.name, action.after.pool) != (
            action.node,
            action.pool,
        ):
            yield f"action {action.id} adds another node than it says"
        elif isinstance(action, PoolAction) and node is not None and node.pool != action.pool:
            yield f"action {action.id} removes node {action.node} from a pool that it is not in"
    for (type_, name), count in sorted(seen.items()):
        if count > 1:
            yield f"node {name} has {count} actions {type_}"


def _states(plan: Plan) -> Iterator[str]:
    """Check that the list of nodes is complete and marks added and removed nodes."""
    target = plan.target
    expected = dict.fromkeys(plan.snapshot.cluster.node_by_name, NodeChange.KEPT)
    expected |= dict.fromkeys((node.name for node in target.added), NodeChange.ADDED)
    expected |= dict.fromkeys(target.removed, NodeChange.REMOVED)
    told = Counter(state.name for state in plan.nodes)
    for name in sorted(expected.keys() ^ told.keys()):
        where = "is not among the nodes" if name in expected else "is among the nodes and nowhere else"
        yield f"node {name} {where}"
    for name, count in sorted(told.items()):
        if count > 1:
            yield f"node {name} is {count} times among the nodes"
    for state in plan.nodes:
        if (change := expected.get(state.name)) not in (None, state.change):
            yield f"node {state.name} is {state.change} by the list of nodes, {change} by the actions"


def _layouts(plan: Plan) -> Iterator[str]:
    """Check that the repartitions lead from the snapshot's layouts to those that the placements need."""
    target = plan.target
    nodes = {node.name: node for node in (*plan.snapshot.cluster.nodes, *target.added)}
    steps: dict[tuple[str, int], list[Repartition]] = defaultdict(list)
    for action in plan.actions:
        if isinstance(action, Repartition):
            steps[action.node, action.gpu].append(action)
    needed = {(one.node, one.gpu): one.after for one in target_layouts(plan.snapshot, target)}
    for name, gpu in sorted(steps.keys() | needed.keys()):
        layout = _present(nodes.get(name), gpu)
        for action in steps[name, gpu]:
            if not _same(action.before, layout):
                yield f"action {action.id} expects another MIG layout than there is by then"
            yield from _destroys_only_idle(action)
            layout = action.after
        if not _same(layout, needed.get((name, gpu), _present(nodes.get(name), gpu))):
            yield f"GPU {gpu} of node {name} does not get the MIG layout that the placements need"
    for state in plan.nodes:
        node = nodes.get(state.name)
        if node is None or state.change is NodeChange.REMOVED:
            continue
        told = {gpu.index: gpu.mig for gpu in state.mig}
        for index in sorted(node.gpus.by_index) if node.gpus else []:
            after = needed.get((state.name, index), _present(node, index))
            if not _same(told.get(index), after):
                yield f"GPU {index} of node {state.name} has another MIG layout in the list of nodes"


def _destroys_only_idle(action: Repartition) -> Iterator[str]:
    destroyed = set(action.before or ()) - set(action.after)
    for one in action.preconditions:
        if isinstance(one, GpuLayout) and (one.node, one.gpu) == (action.node, action.gpu):
            if not _same(one.instances, action.before) or not destroyed <= set(one.idle):
                yield f"action {action.id} does not ask for the MIG layout it changes"
            return


def _present(node: Node | None, gpu: int) -> tuple[MigInstance, ...] | None:
    if node is None or node.gpus is None or gpu not in node.gpus.by_index:
        return None
    return node.gpus.by_index[gpu].mig


def _same(one: tuple[MigInstance, ...] | None, other: tuple[MigInstance, ...] | None) -> bool:
    if one is None or other is None:
        return one is other
    return Counter(one) == Counter(other)


# Consistency of a plan's later slots: planned starts, pending jobs, deadlines, kill times.


def time_contradictions(plan: Plan) -> Iterator[str]:
    """All contradictions about later slots."""
    yield from _planned(plan)
    yield from _projected(plan)
    yield from _kill_times(plan)
    yield from _deadlines(plan)


def _planned(plan: Plan) -> Iterator[str]:
    """Check that each later start is of a job that is not placed, in an existing slot, at the slot's time."""
    slots = TimeSlots.of(plan.policy.horizon, plan.epoch)
    placed = {placement.job for placement in plan.placements}
    for job, count in sorted(Counter(each.job for each in plan.planned).items()):
        known = plan.snapshot.job_by_name.get(job)
        if count > 1:
            yield f"job {job} is planned {count} times"
        if job in placed:
            yield f"job {job} is placed now and planned for later"
        if known is None:
            yield f"job {job} is planned and is not in the snapshot"
        elif known.withheld:
            yield f"job {job} is planned to start, though it is held"
    for each in plan.planned:
        if each.slot >= slots.count:
            yield f"job {each.job} is planned in slot {each.slot}, the horizon has {slots.count}"
        elif each.start != (begin := plan.epoch + timedelta(seconds=slots.edges[each.slot])):
            yield (
                f"job {each.job} is planned to start at {print_timestamp(each.start)}, "
                f"slot {each.slot} begins at {print_timestamp(begin)}"
            )


def _projected(plan: Plan) -> Iterator[str]:
    """Check that pending jobs and preemptions agree with the planned starts and promises."""
    planned = {each.job: each for each in plan.planned}
    for action in plan.actions:
        start = planned.get(action.job) if isinstance(action, Preempt) else None
        if isinstance(action, Preempt) and action.resumes_at != (start.start if start else None):
            yield f"action {action.id} resumes job {action.job} at another time than the planned start"
    waiting = {waiting.job: waiting for waiting in plan.waiting}
    for job in sorted(planned.keys() - waiting.keys()):
        yield f"job {job} is planned for later and is not among the jobs that wait"
    for job, told in sorted(waiting.items()):
        start = planned.get(job)
        if told.projected_start != (start.start if start else None):
            yield f"job {job} has another start among the jobs that wait than among the planned ones"
        if told.promised != (start is not None and start.promised):
            yield f"job {job} has a promise among the jobs that wait or among the planned starts, not in both"
        known = plan.snapshot.job_by_name.get(job)
        promise = known.promise if known else None
        if told.earlier_promise is not None and told.earlier_promise != (promise.start if promise else None):
            yield f"job {job} has another promise in the snapshot than among the jobs that wait"


def _kill_times(plan: Plan) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, Start) and action.kill_at is not None:
            if action.kill_at <= plan.epoch:
                at = print_timestamp(action.kill_at)
                yield f"action {action.id} kills its job at {at}, before it starts"
            if not plan.policy.horizon.backfill.kill:
                yield f"action {action.id} kills its job, though the policy kills no job"
            if (job := plan.snapshot.job_by_name.get(action.job)) is not None and job.promise:
                yield f"action {action.id} kills its job, though that was promised its start"


def _deadlines(plan: Plan) -> Iterator[str]:
    told = Counter(outlook.job for outlook in plan.deadlines)
    for job, count in sorted(told.items()):
        if count > 1:
            yield f"the deadline of job {job} is listed {count} times"
    for outlook in plan.deadlines:
        known = plan.snapshot.job_by_name.get(outlook.job)
        if known is None:
            yield f"job {outlook.job} has a deadline and is not in the snapshot"
        elif (known.deadline, known.hard_deadline) != (outlook.deadline, outlook.hard):
            yield f"job {outlook.job} has another deadline in the snapshot than among the deadlines"
        elif _in_time(outlook) not in (None, outlook.state in (DeadlineState.MET, DeadlineState.CRITICAL)):
            yield f"the deadline of job {outlook.job} is {outlook.state} by its state, not by its finish"


def _in_time(outlook: DeadlineOutlook) -> bool | None:
    """Whether the job completes in time; None if its completion is unknown."""
    return None if outlook.projected_finish is None else outlook.projected_finish <= outlook.deadline
