"""
Rollout: waiting jobs that rather start later, because the jobs of a priority then complete sooner on average.

A job that fits now may fill GPUs for which a large gang waits, or run four times as long on the slow GPUs
that are free as on the fast ones that soon will be. An order alone cannot say so: list scheduling starts
whatever fits. So a few schedules of the whole queue are compared, and the best one tells what starts now.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from gpuplan.models.policy.policy import PriorityOrder
from gpuplan.models.policy.settings import Goal
from gpuplan.models.queue import ALL_MODELS, queue_and_above, queue_limits
from gpuplan.models.timing.progress import age_in_doublings, unserved_seconds
from gpuplan.models.units import MILLI
from gpuplan.models.value.list_schedule import (
    Choice,
    FreeGpus,
    ListedJob,
    ListedStart,
    Profile,
    Taken,
    first_start,
    start_now,
)
from gpuplan.models.value.rollout_scope import held_gpus, is_simple
from gpuplan.models.value.scaled_sizes import suits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations

_SIZE_POWERS: Final = (0.0, 0.5, 1.0)
"""Orders by time left times GPUs to this power: the shortest job first, …, the least service first."""

_WORTHWHILE: Final = 0.03
"""
Least part of the weighted completion times that later starts must save.

Jobs that come later lose by each GPU that is left free. With 1 % the mean completion under a lasting overload
was up to 38 % longer than without later starts (starvation, 14 days, seeds 0 to 7), with 3 % up to 16 %.
"""

_MOST_WORK: Final = 3_000_000
"""Replicas times (nodes + jobs) times schedules that are compared at most: about a tenth of a second."""

_PATIENCE: Final = 86_400
"""Seconds of waiting after which jobs start as they fit: estimates may be wrong for which they wait."""


class RolloutStart(NamedTuple):
    """A waiting job in the best schedule."""

    begins: int
    """Seconds from now to its start; 0 is now."""
    gpu_model: str
    """GPU model on which it starts."""
    saved: int
    """
    Seconds by which the schedule shortens the weighted mean completion time of waiting jobs of a priority.

    It is the lowest priority that gains by waits, and not lower than that of the job.
    """


class _Plan(NamedTuple):
    """A schedule of the jobs of a list: how it was made, and what it costs."""

    order: tuple[int, ...]
    choices: dict[int, tuple[Choice, ...]]
    """Allowed GPU models of jobs, where these are not all."""
    cost: float
    """Σ weight · completion of the jobs of a tier, in seconds from now."""
    starts: dict[int, ListedStart]
    takings: list[Taken]
    """What each of them takes, in their order."""


class _Change(NamedTuple):
    """A list like that of another schedule, but between two positions."""

    of: _Plan
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Tier:
    """Jobs of one priority, by number; of all priorities where these are weights."""

    jobs: tuple[int, ...]
    at_once: bool
    """True if none of them waits for another: one could stop running jobs, or has waited too long."""


def later_starts(snapshot: Snapshot, policy: Policy, durations: Durations) -> dict[str, RolloutStart]:
    """
    The start of each waiting job in the best schedule; empty if all start as they fit, or not `is_simple`.

    A schedule is a list: each job in turn gets the places where it completes first, now or when running jobs
    and jobs before it in the list are expected to end there, so that no job delays one before it. Quotas of
    GPUs are kept throughout. No further jobs arrive. The cost of a schedule is

        Σ_j w_j · completion_j   with  w_j = weight · 2^min(13, waiting time / `objective.doubling`)

    First come what list scheduling starts now, then the others by time left. That is compared with the lists
    by time left times GPUs to the power of 0, 1/2 and 1, divided by w_j (Smith, 1956). From the best of them
    `objective.rollouts` small changes are tried, and kept where they cost less: a job moves elsewhere in the
    list, or loses or regains a GPU model. The best schedule counts if it saves at least 3 % of the cost of
    the first. This is a rollout (Bertsekas, Tsitsiklis and Wu, Journal of Heuristics 3, 1997), with list
    scheduling by earliest completion (Ibarra and Kim, Journal of the ACM 24, 1977): if the estimates are
    right and nothing else arrives, following the best list costs less than starting now what fits and
    following a list after that. The next plan decides again.

    Each priority has a list of its own, after those of all higher ones; the first schedule of a priority also
    contains what starts now of lower ones. So a job waits for jobs of its priority and of higher ones, and
    the answer has the jobs of the highest priority in which one waits, and all of lower priority. Of a
    priority for which running jobs may be stopped, none waits. With `priority.order: weights` there is one
    list, and w_j is multiplied by 1 + priority.
    """
    if not _is_asked(policy):
        return {}
    waiting = [job for job in snapshot.waiting if not job.withheld and job.request.needs_gpu]
    nodes = [node for node in snapshot.cluster.nodes if node.schedulable and node.gpus and not node.ready_at]
    # A list is about as long as its jobs have replicas, and a node changes as often as jobs begin there.
    work = sum(job.gang.minimum for job in waiting) * (len(nodes) + len(waiting))
    passes = _MOST_WORK // max(1, work) - len(_SIZE_POWERS) - 1
    if not waiting or passes < 0 or not is_simple(snapshot, policy, waiting, durations):
        return {}
    starving = policy.horizon.backfill.starving
    if starving and any(unserved_seconds(job, snapshot.taken_at) >= starving for job in waiting):
        return {}
    return _Queue(snapshot, policy, durations, nodes, waiting).starts(min(passes, policy.objective.rollouts))


def _is_asked(policy: Policy) -> bool:
    objective = policy.objective
    return (
        objective.rollouts > 0
        and objective.goals == {Goal.COMPLETION}
        and policy.horizon.slots == 1
        and not policy.disruption.preempts_equals
    )


class _Queue:
    """The waiting jobs, and the GPUs that they may use over time."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        durations: Durations,
        nodes: list[Node],
        waiting: Sequence[Job],
    ) -> None:
        self._snapshot, self._policy, self._durations, self._nodes = snapshot, policy, durations, nodes
        self._profiles = _free_over_time(snapshot, durations, nodes)
        self._quotas: dict[str, dict[str, int]] = {}
        """Profiles of quotas, by resource and queue."""
        self._binding: dict[tuple[str, str], tuple[int, ...]] = {}
        """Profiles of the quotas that limit jobs, by queue and GPU model."""
        self._suited: dict[object, dict[str, tuple[int, ...]]] = {}
        self._jobs: list[ListedJob] = []
        self._aged: set[int] = set()
        weighted = policy.priority.order is PriorityOrder.WEIGHTS
        highest = max(job.priority for job in waiting)
        by_priority: dict[int, list[int]] = {}
        for job in waiting:
            if choices := self._choices(job):
                age = age_in_doublings(job, policy.objective.doubling, snapshot.taken_at)
                weight = job.weight_milli / MILLI * 2**age * (1 + job.priority if weighted else 1)
                number, size = len(self._jobs), (job.request.gpus, job.gang.minimum)
                if unserved_seconds(job, snapshot.taken_at) >= _PATIENCE:
                    self._aged.add(number)
                by_priority.setdefault(highest if weighted else job.priority, []).append(number)
                self._jobs.append(ListedJob(job.name, *size, weight, choices))
        running = [job for job in snapshot.jobs if job.running]
        self._tiers = [
            _Tier(tuple(jobs), not self._aged.isdisjoint(jobs) or self._may_stop(priority, running))
            for priority, jobs in sorted(by_priority.items(), reverse=True)
        ]
        every = [*running, *waiting]
        stops = self._may_stop(max(job.priority for job in every), every)
        # A job that may stop others would take slow GPUs that are left free instead of fast ones in use.
        self._is_simple = not (stops and any(len(job.choices) > 1 for job in self._jobs))

    def _may_stop(self, priority: int, jobs: Iterable[Job]) -> bool:
        """True if some of these jobs may be stopped for jobs of a priority."""
        rules = self._policy.disruption
        return rules.preempt and any(
            job.preemptible and job.priority + rules.priority_gap <= priority for job in jobs
        )

    def _choices(self, job: Job) -> tuple[Choice, ...]:
        """GPU models with enough GPUs for a job."""
        key = (job.requirements_key, job.gang)
        suited = self._suited.get(key)
        if suited is None:
            by_model: dict[str, list[int]] = {}
            for number, node in enumerate(self._nodes):
                if node.gpus and not node.gpus.may_be_unhealthy and suits(job, node):
                    by_model.setdefault(node.gpu_model or "", []).append(number)
            suited = self._suited[key] = {
                model: tuple(found)
                for model, found in by_model.items()
                if sum(self._profiles[number][1][-1] // job.request.gpus for number in found)
                >= job.gang.minimum
            }
        left = max(self._policy.objective.shortest, self._durations.until_completion(job))
        needed = job.request.gpus * job.gang.minimum
        return tuple(
            sorted(
                Choice(max(1, left * MILLI // max(1, job.speed_milli(model))), model, nodes, quotas)
                for model, nodes in suited.items()
                for quotas in [self._quotas_of(job.queue, model)]
                if all(self._profiles[number][1][-1] >= needed for number in quotas)
            )
        )

    def _quotas_of(self, queue: str, model: str) -> tuple[int, ...]:
        """Profiles of the quotas that limit jobs of a queue on a GPU model."""
        known = self._binding.get((queue, model))
        if known is not None:
            return known
        above = tuple(queue_and_above(queue, self._snapshot.parent_queues))
        found = list[int]()
        for resource in (ALL_MODELS, model):
            if resource not in self._quotas:
                self._quotas[resource] = self._add_quotas(resource)
            numbers = self._quotas[resource]
            found += [numbers[each] for each in above if each in numbers]
        self._binding[queue, model] = tuple(found)
        return self._binding[queue, model]

    def _add_quotas(self, resource: str) -> dict[str, int]:
        """Add a profile for each limit of a resource below the cluster's GPUs; its number, by queue."""
        gpus = sum(node.gpu_count for node in self._snapshot.cluster.nodes)
        limits = queue_limits(self._snapshot.queues, resource).limit
        binding = {
            name: limit for name, limit in limits.items() if limit is not None and limit < gpus * MILLI
        }
        ends: dict[str, Counter[int]] = {name: Counter() for name in binding}
        for job in self._snapshot.jobs if binding else ():
            if held := held_gpus(self._snapshot, job, resource):
                for queue in queue_and_above(job.queue, self._snapshot.parent_queues):
                    if queue in ends:
                        ends[queue][self._durations.remaining(job)] += held
        numbers = {}
        for queue, ended in ends.items():
            numbers[queue] = len(self._profiles)
            self._profiles.append(_profile(binding[queue] // MILLI, ended))
        return numbers

    def starts(self, changes: int) -> dict[str, RolloutStart]:
        """The start of each job of the tiers in which some rather wait, and of all tiers below."""
        found: dict[str, RolloutStart] = {}
        free = FreeGpus(self._profiles, (job.gpus for job in self._jobs))
        at_once = self._at_once(self._tiers, free)
        began, saved = at_once, None
        if not began or not self._is_simple:
            return {}
        for position, tier in enumerate(self._tiers):
            own = set(tier.jobs)
            chosen = self._first(tier, began, free)
            if not tier.at_once:
                best = self._best(tier, began, changes, free, chosen)
                if best.cost <= chosen.cost * (1 - _WORTHWHILE):
                    weight = sum(self._jobs[number].weight for number in tier.jobs)
                    saved, chosen = round((chosen.cost - best.cost) / weight), best
            for number in tier.jobs:
                start = chosen.starts[number]
                free.take(self._jobs[number], start)
                if saved is not None:
                    if start.begins and number in self._aged and number in at_once:
                        return {}
                    found[self._jobs[number].name] = RolloutStart(start.begins, start.choice.gpu_model, saved)
            below = self._tiers[position + 1 :]
            if saved is None:
                began = {number: choice for number, choice in began.items() if number not in own}
            else:
                began = self._at_once(below, free)
        return found

    def _at_once(self, tiers: Sequence[_Tier], free: FreeGpus) -> dict[int, Choice]:
        """The jobs that list scheduling starts now."""
        free, found = free.copy(), {}
        for tier in tiers:
            for number in self._sorted(tier, 0):
                job = self._jobs[number]
                if start := start_now(job, free):
                    free.take(job, start)
                    found[number] = start.choice
        return found

    def _first(self, tier: _Tier, began: dict[int, Choice], free: FreeGpus) -> _Plan:
        """The schedule that begins with what list scheduling starts now, also of lower tiers."""
        # Tiers come in order, so what starts now of this one is before what starts of lower ones.
        rest = [number for number in self._sorted(tier, 0) if number not in began]
        choices: dict[int, tuple[Choice, ...]] = {number: (choice,) for number, choice in began.items()}
        plan = self._plan(tier, (*began, *rest), choices, inf, free)
        assert plan is not None  # noqa: S101 - for the type checker
        return plan

    def _sorted(self, tier: _Tier, power: float) -> list[int]:
        return sorted(tier.jobs, key=lambda number: (self._jobs[number].index(power), number))

    def _best(
        self, tier: _Tier, began: dict[int, Choice], changes: int, free: FreeGpus, first: _Plan
    ) -> _Plan:
        """The least costly list of a tier, after so many small changes; `first` begins with `began`."""
        own = set(tier.jobs)
        kept = {each: choice for each, choice in began.items() if each in own}
        best = first if len(kept) == len(began) else self._first(tier, kept, free)
        for power in _SIZE_POWERS:
            best = self._plan(tier, tuple(self._sorted(tier, power)), {}, best.cost, free) or best
        # A fixed seed gives the same changes on every machine.
        dice = random.Random("rollout")  # noqa: S311 - a search, no secret
        jobs = len(tier.jobs)
        for number in range(changes):
            one, order, choices = int(dice.random() * jobs), list(best.order), dict(best.choices)
            other = one
            every = self._jobs[order[one]].choices
            if number % 2 and len(every) > 1:
                model, chosen = every[int(dice.random() * len(every))], choices.get(order[one], every)
                left = tuple(each for each in every if (each in chosen) != (each is model))
                if not left:
                    continue
                choices[order[one]] = left
            else:
                other = int(dice.random() * jobs)
                if other == one:
                    continue
                order.insert(other, order.pop(one))
            change = _Change(best, min(one, other), max(one, other))
            best = self._plan(tier, tuple(order), choices, best.cost, free, change) or best
        return best

    def _plan(
        self,
        tier: _Tier,
        order: tuple[int, ...],
        choices: dict[int, tuple[Choice, ...]],
        most: float,
        free: FreeGpus,
        change: _Change | None = None,
    ) -> _Plan | None:
        """The schedule of a list; None if it does not cost less than `most`."""
        free, cost, jobs, counted = free.copy(), 0.0, self._jobs, set(tier.jobs)
        starts, takings = dict[int, ListedStart](), list[Taken]()
        # Starts before the change are known, and after it if all in it start as before.
        known, differs = {}, True
        if change:
            known, differs = change.of.starts, False
            takings = change.of.takings[: change.first]
            free.take_again(takings)
        shortest = None if change else self._shortest(order)
        for position, number in enumerate(order):
            job = jobs[number]
            kept = change is not None and (
                position < change.first or (position > change.last and not differs)
            )
            if kept:
                start = known[number]
            else:
                start = first_start(
                    job, choices.get(number, job.choices), free, shortest[position] if shortest else 0
                )
            starts[number] = start
            if number in counted:
                cost += job.weight * (start.begins + start.choice.seconds)
            if cost >= most:
                return None
            if not kept:
                takings.append(free.take(job, start))
                differs = differs or start != known[number]
        if change and not differs:
            takings += change.of.takings[change.last + 1 :]
        return _Plan(order, choices, cost, starts, takings)

    def _shortest(self, order: Sequence[int]) -> list[int]:
        """By position in a list: least seconds of this job and all that follow with replicas of its size."""
        least: dict[int, int] = {}
        found = []
        for number in reversed(order):
            job = self._jobs[number]
            least[job.gpus] = min(job.choices[0].seconds, least.get(job.gpus, job.choices[0].seconds))
            found.append(least[job.gpus])
        return found[::-1]


def _free_over_time(snapshot: Snapshot, durations: Durations, nodes: Sequence[Node]) -> list[Profile]:
    """Free GPUs of each node until all running jobs have ended, if nothing else starts."""
    number = {node.name: index for index, node in enumerate(nodes)}
    gpus = [node.gpus.by_index.values() if node.gpus else () for node in nodes]
    usable = [{gpu.index for gpu in some if gpu.healthy and gpu.mig is None} for some in gpus]
    ends: list[Counter[int]] = [Counter() for _ in nodes]
    for job in snapshot.jobs:
        left = durations.remaining(job) if job.running else 0
        for replica in job.running.replicas if job.running else ():
            if (index := number.get(replica.node)) is not None:
                # A job may run on a GPU that no other job is given afterwards.
                ends[index][left] += sum(gpu.index in usable[index] for gpu in replica.gpus)
    return [_profile(len(whole), ended) for whole, ended in zip(usable, ends, strict=True)]


def _profile(usable: int, ends: Counter[int]) -> Profile:
    """What is free of so many GPUs, if jobs that hold some end at these seconds."""
    times, free = [0], [usable - ends.total()]
    for second in sorted(+ends):  # without those that hold nothing here
        times.append(second)
        free.append(free[-1] + ends[second])
    return times, free
