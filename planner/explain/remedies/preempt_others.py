"""
Lowest priority at which a plan may preempt others for a job, and gains by it.

The victims are chosen in two steps. Take the cheapest nodes among those that would have capacity without all
preemptible jobs. Then, of the jobs there and of those that hold quota, keep every job that can go on.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.value.start_value import Earnings
from gpuplan.planner.explain.answers.remedies import Remedy, RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.preempt_remedy import lost_gpu_hours
from gpuplan.planner.formatting import named
from gpuplan.planner.problem_builder.reclaiming import Reclaiming, holding_of, least_asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import Job
    from gpuplan.planner.explain.feasibility import Ground, Room
    from gpuplan.planner.explain.hypothesis import Question
    from gpuplan.planner.explain.verify_trial import Judge, Start

_HIGHEST: Final = 10_000
"""Highest priority that a job may have."""

_MOST_CHOSEN_FROM: Final = 40
_MOST_THRESHOLDS: Final = 3


def by_priority(question: Question, judge: Judge, prices: dict[str, int]) -> Remedy | None:
    """
    Raise the job's priority and preempt others for it; None if no priority makes the plan do it.

    Not tried if other jobs have to start with the job, because their priorities count as well.
    """
    ground, job = judge.ground, question.job
    if not question.policy.disruption.preempt or question.others:
        return None
    required = dict(_required(question, ground))
    gap = question.policy.disruption.priority_gap
    left = [
        one.priority + gap
        for one in question.plan.snapshot.jobs
        if one.running and one.name not in ground.placed
    ]
    thresholds = sorted({max(each, job.priority) for each in (*required.values(), *left) if each <= _HIGHEST})
    if not thresholds or not ground.has_room(_without(question, required, thresholds[-1])):
        return None
    first = bisect_left(
        thresholds, True, key=lambda each: bool(ground.rooms(_without(question, required, each)))
    )
    best: tuple[int, Question, Start] | None = None
    for priority in thresholds[first : first + _MOST_THRESHOLDS]:
        if best is not None and best[0] <= priority:
            break
        raised = replace(question, job=job.model_copy(update={"priority": priority}))
        chosen = _chosen(
            raised, ground, [name for name, each in required.items() if each <= priority], prices
        )
        if chosen is None or (start := judge.start(chosen)) is None:
            continue
        worth = _worthwhile(chosen, start)
        if worth is None or worth == job.priority or (best is not None and best[0] <= worth):
            continue
        if worth != priority:
            chosen = replace(chosen, job=job.model_copy(update={"priority": worth}))
            if (start := judge.start(chosen)) is None:
                continue
        best = worth, chosen, start
    return None if best is None else _remedy(question, *best[1:], ground)


def _required(question: Question, ground: Ground) -> Iterator[tuple[str, int]]:
    """Running jobs that may be preempted, each with the lowest priority that may preempt it."""
    plan, rules = ground.plan, question.policy.disruption
    reclaiming, asked = Reclaiming(plan.snapshot, question.policy), least_asked(question.job)
    for name, placement in sorted(ground.placed.items()):
        job = plan.snapshot.job_by_name[name]
        if job.running is None or job.running.replicas != placement.replicas:
            continue
        if rules.may_disturb(job, plan.snapshot.taken_at):
            free = reclaiming.may_take(question.job.queue, asked, holding_of(job, plan.snapshot))
            yield name, 0 if free else job.priority + rules.priority_gap


def _without(question: Question, required: dict[str, int], priority: int) -> Question:
    job = question.job.model_copy(update={"priority": priority})
    gone = frozenset(name for name, least in required.items() if least <= priority)
    return replace(question, job=job, stopped=gone)


def _chosen(question: Question, ground: Ground, names: list[str], prices: dict[str, int]) -> Question | None:
    """The question with a minimal set of stopped jobs: the job would not start with one fewer stopped."""
    rooms = ground.rooms(replace(question, stopped=frozenset(names)))
    options = [_cheapest(room, ground, set(names), prices, question.job) for room in rooms]
    here = min(options, key=lambda each: (sum(prices[name] for name in each), sorted(each)))
    others = sorted(set(names) - here, key=lambda name: (prices[name], name))
    chosen = here
    if not ground.rooms(replace(question, stopped=frozenset(chosen))):
        # The nodes have capacity, so the other jobs must hold a quota that the job needs.
        chosen = here | set(others[:_MOST_CHOSEN_FROM])
    if not ground.rooms(replace(question, stopped=frozenset(chosen))):
        return None
    for name in sorted(chosen, key=lambda name: (-prices[name], name)):
        if ground.rooms(replace(question, stopped=frozenset(chosen - {name}))):
            chosen = chosen - {name}
    return replace(question, stopped=frozenset(chosen))


def _cheapest(room: Room, ground: Ground, names: set[str], prices: dict[str, int], job: Job) -> set[str]:
    """Jobs on as many of the room's nodes as the job needs; nodes with the least cost per replica first."""
    there = {
        node: names.intersection(each.job.name for each in ground.on_node.get(node, ()))
        for node in room.counts
    }
    cost = {node: sum(prices[name] for name in owners) / room.counts[node] for node, owners in there.items()}
    found: set[str] = set()
    replicas = 0
    for node in sorted(room.counts, key=lambda node: (cost[node], node)):
        if replicas >= job.gang.minimum:
            break
        found |= there[node]
        replicas += min(room.counts[node], job.spread.most) if job.spread else room.counts[node]
    return found


def _worthwhile(question: Question, start: Start) -> int | None:
    """Lowest priority, not below that of the question's job, at which the start gains points."""
    job, plan = question.job, question.plan
    model = next((plan.snapshot.cluster.node_by_name[name].gpu_model for name in start.nodes), None)

    def points(priority: int) -> int:
        raised = job.model_copy(update={"priority": priority})
        earnings = Earnings(plan.snapshot, question.policy)
        return earnings.completion(raised, model, job.gang.minimum)

    costs = points(job.priority) - start.points
    if points(_HIGHEST) <= costs:
        return None
    low, high = job.priority, _HIGHEST
    while low < high:
        middle = (low + high) // 2
        if points(middle) > costs:
            high = middle
        else:
            low = middle + 1
    return low


def _remedy(question: Question, chosen: Question, start: Start, ground: Ground) -> Remedy:
    before, after = question.job.priority, chosen.job.priority
    stops = tuple(sorted(chosen.stopped))
    to = f", the least at which stopping {named(stops)} for it pays" if stops else ""
    part = RemedyPart(
        kind=RemedyKind.PRIORITY,
        subject="priority",
        before=before,
        after=after,
        text=f"raise its priority from {before:,} to {after:,}{to}",
    )
    return Remedy(
        parts=(part,),
        points=start.points,
        nodes=start.nodes,
        stops=stops,
        lost_gpu_hours=lost_gpu_hours(stops, ground),
    )
