"""
Rollout: waiting jobs that rather start later, because all jobs of the queue then complete sooner on average.

A job that fits now may fill GPUs for which a large gang waits, or run four times as long on the slow GPUs
that are free as on the fast ones that soon will be. An order alone cannot say so: list scheduling starts
whatever fits. So a few schedules of the whole queue are compared, and the best one tells what starts now.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from math import inf, log2
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpuplan.models.policy.settings import Goal
from gpuplan.models.timing.progress import age_in_doublings
from gpuplan.models.units import MILLI
from gpuplan.models.value.rollout_scope import is_simple
from gpuplan.models.value.scaled_sizes import suits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations

    _Free: TypeAlias = list[tuple[list[int], list[int]]]
    """By node: seconds at which its number of free GPUs changes, and that number from then on."""

_SIZE_POWERS: Final = (0.0, 0.5, 1.0)
"""Orders by time left times GPUs to this power: the shortest job first, …, the least service first."""

_WORTHWHILE: Final = 0.01
"""Least part of the weighted completion times that later starts must save; chosen on benchmark jobs."""

_MOST_WORK: Final = 3_000_000
"""Replicas times (nodes + jobs) times schedules that are compared at most: about a tenth of a second."""


class RolloutStart(NamedTuple):
    """A waiting job in the best schedule."""

    begins: int
    """Seconds from now to its start; 0 is now."""
    gpu_model: str
    """GPU model on which it starts."""
    saved: int
    """Seconds by which the schedule shortens the weighted mean completion time of the waiting jobs."""


class _Choice(NamedTuple):
    """A GPU model on which a job may run."""

    seconds: int
    gpu_model: str
    nodes: tuple[int, ...]


class _Start(NamedTuple):
    begins: int
    choice: _Choice


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A waiting job; jobs are numbered."""

    name: str
    gpus: int
    """Of one replica."""
    replicas: int
    weight: float
    choices: tuple[_Choice, ...]
    """The fastest GPU model first."""

    def index(self, power: float) -> float:
        """Smith's index as a logarithm, for jobs that count their GPUs to a power; the least comes first."""
        return log2(self.choices[0].seconds) + power * log2(self.gpus * self.replicas) - log2(self.weight)


class _Plan(NamedTuple):
    """A schedule of all jobs: how it was made, and what it costs."""

    order: tuple[int, ...]
    choices: tuple[tuple[_Choice, ...], ...]
    """Allowed GPU models of each job."""
    cost: float
    """Σ weight · completion, in seconds from now."""
    starts: dict[int, _Start]


def later_starts(snapshot: Snapshot, policy: Policy, durations: Durations) -> dict[str, RolloutStart]:
    """
    The start of each waiting job in the best schedule; empty if all start as they fit, or not `is_simple`.

    A schedule is a list: each job in turn gets the places where it completes first, now or when running jobs
    and jobs before it in the list are expected to end there, so that no job delays one before it. No further
    jobs arrive. The cost of a schedule is

        Σ_j w_j · completion_j   with  w_j = weight · 2^(waiting time / `objective.doubling`)

    First come what list scheduling starts now, then the others by time left. That is compared with the lists
    by time left times GPUs to the power of 0, 1/2 and 1, divided by w_j (Smith, 1956). From the best of them
    `objective.rollouts` small changes are tried, and kept where they cost less: a job moves elsewhere in the
    list, or loses or regains a GPU model. The best schedule counts if it saves at least 1 % of the cost of
    the first. This is a rollout (Bertsekas, Tsitsiklis and Wu, Journal of Heuristics 3, 1997), with list
    scheduling by earliest completion (Ibarra and Kim, Journal of the ACM 24, 1977): if the estimates are
    right and nothing else arrives, following the best list costs less than starting now what fits and
    following a list after that. The next plan decides again.
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
    queue = _Queue(snapshot, policy, durations, nodes, waiting)
    if queue.first is None:
        return {}
    first, best = queue.first, queue.best(min(passes, policy.objective.rollouts))
    if best.cost > first.cost * (1 - _WORTHWHILE):
        return {}
    saved = round((first.cost - best.cost) / sum(job.weight for job in queue.jobs))
    return {
        queue.jobs[number].name: RolloutStart(start.begins, start.choice.gpu_model, saved)
        for number, start in best.starts.items()
    }


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
        self, snapshot: Snapshot, policy: Policy, durations: Durations, nodes: list[Node], waiting: list[Job]
    ) -> None:
        self._nodes = nodes
        self._free = _free_over_time(snapshot, durations, nodes)
        self._now = [free[0] for _, free in self._free]
        self._first = [_first_free(*free) for free in self._free]
        doubling, self._shortest = policy.objective.doubling, policy.objective.shortest
        self.jobs: list[_Waiting] = []
        self._suited: dict[object, dict[str, tuple[int, ...]]] = {}
        for job in waiting:
            if choices := self._choices(job, durations):
                age = age_in_doublings(job, doubling, snapshot.taken_at)
                size, weight = (job.request.gpus, job.gang.minimum), job.weight_milli / MILLI * 2**age
                self.jobs.append(_Waiting(job.name, *size, weight, choices))
        self.first = self._greedy()

    def _choices(self, job: Job, durations: Durations) -> tuple[_Choice, ...]:
        """GPU models with enough GPUs for a job."""
        key = (job.requirements_key, job.gang)
        if key not in self._suited:
            by_model: dict[str, list[int]] = {}
            for number, node in enumerate(self._nodes):
                enough = self._free[number][1][-1] >= job.request.gpus
                if enough and node.gpus and not node.gpus.may_be_unhealthy and suits(job, node):
                    by_model.setdefault(node.gpu_model or "", []).append(number)
            self._suited[key] = {
                model: tuple(found)
                for model, found in by_model.items()
                if sum(self._free[number][1][-1] // job.request.gpus for number in found) >= job.gang.minimum
            }
        left = max(self._shortest, durations.until_completion(job))
        return tuple(
            sorted(
                _Choice(max(1, left * MILLI // max(1, job.speed_milli(model))), model, nodes)
                for model, nodes in self._suited[key].items()
            )
        )

    def _greedy(self) -> _Plan | None:
        """The schedule that begins with what list scheduling starts now; None if nothing fits."""
        order = self._sorted(0)
        free, now, choices = list(self._now), [], [job.choices for job in self.jobs]
        for number in order:
            job = self.jobs[number]
            for choice in job.choices:
                if places := _places_now(job, choice, free):
                    for node in places:
                        free[node] -= job.gpus
                    now.append(number)
                    choices[number] = (choice,)
                    break
        started = set(now)
        rest = [number for number in order if number not in started]
        return self._plan((*now, *rest), tuple(choices), inf) if now else None

    def _sorted(self, power: float) -> list[int]:
        return sorted(range(len(self.jobs)), key=lambda number: (self.jobs[number].index(power), number))

    def best(self, changes: int) -> _Plan:
        """The least costly of the lists, after so many small changes."""
        assert self.first is not None  # noqa: S101 - for the type checker
        best, all_choices = self.first, tuple(job.choices for job in self.jobs)
        for power in _SIZE_POWERS:
            best = self._plan(tuple(self._sorted(power)), all_choices, best.cost) or best
        # A fixed seed gives the same changes on every machine.
        dice = random.Random("rollout")  # noqa: S311 - a search, no secret
        jobs = len(self.jobs)
        for number in range(changes):
            one, order, choices = int(dice.random() * jobs), list(best.order), list(best.choices)
            moved, every = order[one], all_choices[order[one]]
            if number % 2 and len(every) > 1:
                other = every[int(dice.random() * len(every))]
                kept = tuple(each for each in every if (each in choices[moved]) != (each is other))
                if not kept:
                    continue
                choices[moved] = kept
            else:
                order.insert(int(dice.random() * jobs), order.pop(one))
            best = self._plan(tuple(order), tuple(choices), best.cost) or best
        return best

    def _plan(
        self, order: tuple[int, ...], choices: tuple[tuple[_Choice, ...], ...], most: float
    ) -> _Plan | None:
        """The schedule of a list; None if it does not cost less than `most`."""
        free: _Free = [(list(times), list(counts)) for times, counts in self._free]
        first, starts, cost = list(self._first), dict[int, _Start](), 0.0
        for number in order:
            job = self.jobs[number]
            if job.replicas == 1:
                start, places = _first_place(job, choices[number], free, first)
            else:
                start, places = _first_places(job, choices[number], free)
            end = start.begins + start.choice.seconds
            cost += job.weight * end
            if cost >= most:
                return None
            starts[number] = start
            for node in places:
                _occupy(*free[node], start.begins, end, job.gpus)
                first[node] = _first_free(*free[node])
        return _Plan(order, choices, cost, starts)


def _free_over_time(snapshot: Snapshot, durations: Durations, nodes: Sequence[Node]) -> _Free:
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
    found: _Free = []
    for whole, ended in zip(usable, ends, strict=True):
        times, free = [0], [len(whole) - ended.total()]
        for second in sorted(+ended):  # without those that hold nothing here
            times.append(second)
            free.append(free[-1] + ended[second])
        found.append((times, free))
    return found


def _first_free(times: list[int], counts: list[int]) -> int:
    """The first second at which a node has a free GPU, or its last change."""
    position, last = 0, len(counts) - 1
    while position < last and counts[position] <= 0:
        position += 1
    return times[position]


def _places_now(job: _Waiting, choice: _Choice, free: Sequence[int]) -> list[int]:
    """Nodes for the replicas of a job, the fullest first; empty if they do not fit."""
    found: list[int] = []
    for node in sorted((node for node in choice.nodes if free[node] >= job.gpus), key=free.__getitem__):
        found += [node] * min(job.replicas - len(found), free[node] // job.gpus)
    return found if len(found) == job.replicas else []


def _first_place(
    job: _Waiting, choices: Iterable[_Choice], free: _Free, first: Sequence[int]
) -> tuple[_Start, list[int]]:
    """
    Where a job of one replica completes first; of equal nodes the one with the fewest free GPUs.

    `first` is the first second at which each node has a free GPU. So most nodes are passed over: there the
    job would complete later.
    """
    gpus, left, found, place = job.gpus, 0, None, 0
    earliest: float = inf
    for choice in choices:
        seconds = choice.seconds
        if seconds >= earliest:
            break
        latest = earliest - seconds
        for node in choice.nodes:
            if first[node] > latest:
                continue
            times, counts = free[node]
            last, position = len(times), 0
            while position < last:
                if counts[position] < gpus:
                    position += 1
                    continue
                end = times[position] + seconds
                if end > earliest or (end == earliest and counts[position] >= left):
                    break
                further = position + 1
                while further < last and times[further] < end and counts[further] >= gpus:
                    further += 1
                if further == last or times[further] >= end:
                    earliest, left, place, latest = end, counts[position], node, times[position]
                    found = _Start(times[position], choice)
                    break
                position = further
    assert found is not None  # noqa: S101 - once all others have ended there is room
    return found, [place]


def _first_places(job: _Waiting, choices: Iterable[_Choice], free: _Free) -> tuple[_Start, list[int]]:
    """The same for a gang, on the nodes of one GPU model."""
    found: _Start | None = None
    earliest: float = inf
    for choice in choices:
        begins = _first_begin(job, choice, free, earliest)
        if begins is not None:
            earliest, found = begins + choice.seconds, _Start(begins, choice)
    assert found is not None  # noqa: S101 - once all others have ended there is room
    begins, choice = found
    places: list[int] = []
    for node in choice.nodes:
        room = _least_free(*free[node], begins, begins + choice.seconds) // job.gpus
        places += [node] * min(room, job.replicas - len(places))
        if len(places) == job.replicas:
            break
    return found, places


def _first_begin(job: _Waiting, choice: _Choice, free: _Free, earliest: float) -> int | None:
    """First second from which all replicas have room on a GPU model, if the job then completes earlier."""
    seconds, steps = choice.seconds, list[tuple[int, int]]()
    for node in choice.nodes:
        times, counts = free[node]
        for needed in range(job.gpus, min(max(counts), job.replicas * job.gpus) + 1, job.gpus):
            # One more replica has room from the beginning of each long enough span with so many free GPUs.
            since = None
            for second, count in zip(times, counts, strict=True):
                if count < needed:
                    if since is not None and second - since >= seconds:
                        steps += [(since, 1), (second - seconds + 1, -1)]
                    since = None
                elif since is None:
                    since = second
            if since is not None:
                steps.append((since, 1))
    room = 0
    for second, step in sorted(steps):
        room += step
        if room >= job.replicas:
            return second if second + seconds < earliest else None
    return None


def _least_free(times: list[int], counts: list[int], begins: int, ends: int) -> int:
    """The fewest free GPUs of a node in a span."""
    least = counts[0]
    for second, count in zip(times, counts, strict=True):
        if second >= ends:
            break
        least = count if second <= begins else min(least, count)
    return least


def _occupy(times: list[int], counts: list[int], begins: int, ends: int, gpus: int) -> None:
    """Take GPUs of a node in a span."""
    for second in (begins, ends):
        position = len(times)
        while times[position - 1] > second:
            position -= 1
        if times[position - 1] != second:
            times.insert(position, second)
            counts.insert(position, counts[position - 1])
    for position, second in enumerate(times):
        if begins <= second < ends:
            counts[position] -= gpus
