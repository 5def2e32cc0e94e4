"""
Remedies by preemption: single jobs without which a job fits, and the lowest priority that lets it preempt
others.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.preemption_order import least_follower
from gpuplan.models.job import HIGHEST_PRIORITY
from gpuplan.models.units import MILLI
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.job_changes import unsaved_gpu_milli_seconds
from gpuplan.planner.explain.explanation import Remedy, RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.relaxation import Relaxation
from gpuplan.planner.problem_builder.quotas import Reclaiming, min_requested_gpu_milli, queue_and_model_of
from gpuplan.planner.text_format import join_jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.planner.explain.feasibility import CandidateNodes, PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis
    from gpuplan.planner.explain.verify_trial import TrialStart, TrialVerifier


_MOST_ASKED: Final = 400
"""Most jobs that get the full check. They are taken in order of cost, so the rest would cost more."""


def preemption_prices(ground: PlanFeasibility) -> dict[str, int]:
    """By placed job, the most points its stop can cost: the value of its work plus its disruption cost."""
    plan = ground.plan
    earnings = StartValue(plan.snapshot, plan.policy)
    jobs = plan.snapshot.job_by_name
    return {
        name: earnings.full_points(jobs[name]) + earnings.stop_points(jobs[name]) for name in ground.placed
    }


def jobs_in_the_way(question: Hypothesis, ground: PlanFeasibility, prices: dict[str, int]) -> list[str]:
    """Jobs that block alone, cheapest first; of jobs that start together, only the cheapest."""
    found: list[str] = []
    asked = 0
    question = max(question.by_member(), key=lambda each: _missing(each, ground))
    counts, missing = ground.counting.counts(question), _missing(question, ground)
    models: dict[tuple[str, frozenset[tuple[str, int]]], bool] = {}
    told: set[str] = set()
    for name in sorted(ground.placed.keys() - question.gone, key=lambda name: (prices[name], name)):
        if name in told:
            continue
        told |= (party := _party(name, ground))
        without = replace(question, stopped=question.stopped | party)
        if missing > 0 and ground.counting.gained(party, question, counts, enough=missing) < missing:
            continue
        if len(party) == 1:
            kind = ground.plan.snapshot.job_by_name[name].queue, frozenset(ground.quotas.held(name).items())
            if kind not in models:
                models[kind] = ground.is_within_quota(without)
            if not models[kind]:
                continue
        asked += 1
        if ground.has_room(without):
            found.append(name)
        if asked == _MOST_ASKED:
            break
    return found


def _missing(question: Hypothesis, ground: PlanFeasibility) -> int:
    """Replicas of the job that no node takes; negative if there is capacity for more than it has."""
    return question.job.gang.minimum - sum(ground.counting.counts(question).values())


def _party(name: str, ground: PlanFeasibility) -> frozenset[str]:
    """A job and all jobs that the plan starts with it; none of them starts without the others."""
    job = ground.plan.snapshot.job_by_name[name]
    if job.running is not None:
        return frozenset({name})
    return frozenset({name, *ground.outlook.co_start_jobs(job)}) & ground.placed.keys()


def stop_relaxation(name: str, ground: PlanFeasibility) -> Relaxation:
    """Stop a running job, or drop the plan's start of a waiting one."""
    job, party = ground.plan.snapshot.job_by_name[name], _party(name, ground)
    subject = f"{join_jobs([name])} (queue {job.queue}, priority {job.priority:,})"
    kind, text = RemedyKind.STOP, f"stop {subject}"
    if job.running is None:
        others = sorted(party - {name})
        subject = f"{subject}, and {join_jobs(others)} with it," if others else subject
        kind, text = RemedyKind.DEFER, f"let {subject} wait instead of starting in this plan"
    part = RemedyPart(kind=kind, subject=name, text=text)
    return Relaxation(
        1, lambda question, _: replace(question, stopped=question.stopped | party), lambda _: part
    )


def unsaved_gpu_hours(names: Iterable[str], ground: PlanFeasibility) -> float:
    """GPU-hours of work of running jobs since their last checkpoints."""
    plan = ground.plan
    jobs, now = plan.snapshot.job_by_name, plan.snapshot.taken_at
    total = sum(unsaved_gpu_milli_seconds(jobs[name], now) for name in names)
    return round(total / (MILLI * 3600), 3)


# Lowest priority at which a plan may preempt others for a job, and gains by it.
#
# The victims are chosen in two steps. Take the cheapest nodes among those that would have capacity without
# all preemptible jobs. Then, of the jobs there and of those that hold quota, keep every job that can go on.


_MOST_CHOSEN_FROM: Final = 40
_MOST_THRESHOLDS: Final = 3


def priority_remedy(question: Hypothesis, judge: TrialVerifier, prices: dict[str, int]) -> Remedy | None:
    """
    Raise the job's priority and preempt others for it; None if no priority makes the plan do it.

    Not tried if other jobs have to start with the job, because their priorities count as well.
    """
    ground, job = judge.ground, question.job
    if not question.policy.disruption.preempt or question.others:
        return None
    required = dict(_required(question, ground))
    left = [
        least_follower(question.policy, one, question.plan.snapshot.taken_at)
        for one in question.plan.snapshot.jobs
        if one.running and one.name not in ground.placed
    ]
    thresholds = sorted(
        {max(each, job.priority) for each in (*required.values(), *left) if each <= HIGHEST_PRIORITY}
    )
    if not thresholds or not ground.has_room(_without(question, required, thresholds[-1])):
        return None
    first = bisect_left(
        thresholds, True, key=lambda each: bool(ground.candidate_nodes(_without(question, required, each)))
    )
    best: tuple[int, Hypothesis, TrialStart] | None = None
    for priority in thresholds[first : first + _MOST_THRESHOLDS]:
        if best is not None and best[0] <= priority:
            break
        raised = replace(question, job=job.model_copy(update={"priority": priority}))
        chosen = _chosen(
            raised, ground, [name for name, each in required.items() if each <= priority], prices
        )
        if chosen is None or (start := _by_plan(judge.start(chosen))) is None:
            continue
        worth = _worthwhile(chosen, start, ground)
        if worth is None or worth == job.priority or (best is not None and best[0] <= worth):
            continue
        if worth != priority:
            chosen = replace(chosen, job=job.model_copy(update={"priority": worth}))
            if (start := _by_plan(judge.start(chosen))) is None:
                continue
        best = worth, chosen, start
    return None if best is None else _remedy(question, *best[1:], ground)


def _by_plan(start: TrialStart | None) -> TrialStart | None:
    """The start if a plan may stop these jobs: what an operator alone may do follows from no priority."""
    return None if start is None or start.by_hand else start


def _required(question: Hypothesis, ground: PlanFeasibility) -> Iterator[tuple[str, int]]:
    """Running jobs that may be preempted, each with the lowest priority that may preempt it."""
    plan, rules = ground.plan, question.policy.disruption
    reclaiming, asked = Reclaiming(plan.snapshot, question.policy), min_requested_gpu_milli(question.job)
    for name, placement in sorted(ground.placed.items()):
        job = plan.snapshot.job_by_name[name]
        if job.running is None or job.running.replicas != placement.replicas:
            continue
        if rules.may_disturb(job, plan.snapshot.taken_at):
            free = reclaiming.may_take(question.job.queue, asked, queue_and_model_of(job, plan.snapshot))
            if free or not reclaiming.keeps_turn(job, question.job.queue):
                yield name, 0 if free else least_follower(question.policy, job, plan.snapshot.taken_at)


def _without(question: Hypothesis, required: dict[str, int], priority: int) -> Hypothesis:
    job = question.job.model_copy(update={"priority": priority})
    gone = frozenset(name for name, least in required.items() if least <= priority)
    return replace(question, job=job, stopped=gone)


def _chosen(
    question: Hypothesis, ground: PlanFeasibility, names: list[str], prices: dict[str, int]
) -> Hypothesis | None:
    """The question with a minimal set of stopped jobs: the job would not start with one fewer stopped."""
    rooms = ground.candidate_nodes(replace(question, stopped=frozenset(names)))
    options = [_cheapest(room, ground, set(names), prices, question.job) for room in rooms]
    here = min(options, key=lambda each: (sum(prices[name] for name in each), sorted(each)))
    others = sorted(set(names) - here, key=lambda name: (prices[name], name))
    chosen = here
    if not ground.candidate_nodes(replace(question, stopped=frozenset(chosen))):
        # The nodes have capacity, so the other jobs must hold a quota that the job needs.
        chosen = here | set(others[:_MOST_CHOSEN_FROM])
    if not ground.candidate_nodes(replace(question, stopped=frozenset(chosen))):
        return None
    for name in sorted(chosen, key=lambda name: (-prices[name], name)):
        if ground.candidate_nodes(replace(question, stopped=frozenset(chosen - {name}))):
            chosen = chosen - {name}
    return replace(question, stopped=frozenset(chosen))


def _cheapest(
    room: CandidateNodes, ground: PlanFeasibility, names: set[str], prices: dict[str, int], job: Job
) -> set[str]:
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


def _worthwhile(question: Hypothesis, start: TrialStart, ground: PlanFeasibility) -> int | None:
    """Lowest priority, not below that of the question's job, at which the start gains points."""
    job, plan = question.job, question.plan
    model = next((ground.nodes[name].gpu_model for name in start.nodes), None)

    def points(priority: int) -> int:
        raised = job.model_copy(update={"priority": priority})
        earnings = StartValue(plan.snapshot, question.policy)
        return earnings.completion(raised, model, job.gang.minimum)

    costs = points(job.priority) - start.points
    if points(HIGHEST_PRIORITY) <= costs:
        return None
    low, high = job.priority, HIGHEST_PRIORITY
    while low < high:
        middle = (low + high) // 2
        if points(middle) > costs:
            high = middle
        else:
            low = middle + 1
    return low


def _remedy(question: Hypothesis, chosen: Hypothesis, start: TrialStart, ground: PlanFeasibility) -> Remedy:
    before, after = question.job.priority, chosen.job.priority
    stops = tuple(sorted(chosen.stopped))
    to = f", the least at which stopping {join_jobs(stops)} for it pays" if stops else ""
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
        lost_gpu_hours=unsaved_gpu_hours(stops, ground),
    )
