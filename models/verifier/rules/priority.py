"""The rule about priorities: no job takes a place that a pending job of higher priority could use."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.policy import PriorityOrder
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.verifier.job_changes import Change, JudgedPlacement
from gpuplan.models.verifier.messages import truncated_names
from gpuplan.models.verifier.objective import points_if_started, points_of_starts
from gpuplan.models.verifier.rules.capacity import charged_amounts, offered_amounts
from gpuplan.models.verifier.rules.dependencies import co_start_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context

_SUNK_TERMS: Final = ("preemption", "migration", "nodes")
"""Terms of the cost that a plan pays for starts, whatever jobs these are."""

_COST_TERMS: Final = ("resize", "repartition", "locality", "data", "preference", "interference")
"""The other terms of that cost: they depend on the jobs that start and grow."""

_OBLIGATION_TERMS: Final = ("guarantee", "nominal", "fragmentation", "drain")
"""Terms that a start does not reduce."""

_TRIALS: Final = 40_000
"""Limit on placements checked in all hypothetical starts; in large plans only a few starts are tried."""

_FEWEST_TRIALS: Final = 4
"""Hypothetical starts that are tried even in the largest plans."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The other rules, and the terms of the objective."""

    is_within_quota: Callable[[Context], bool]
    is_legal: Callable[[Context], bool]
    terms: Mapping[str, Callable[[Context], int]]


def priority(case: Context, judges: RuleSet) -> Iterator[Violation]:
    """
    No job starts or grows with nodes or quota that a pending job of higher priority could use now.

    The pending job could start alone if jobs of lower priority that start or grow did not, either those on
    its nodes or all of them, while all else stays as planned. Its start breaks no other rule, leaves
    guarantees as they are, and gains more than the total cost of the plan's changes to other jobs, since
    these may have been made for the jobs that are left out. Starts that are promised, in a plan of several
    slots starts of all jobs that have waited `backfill.starving`, and jobs in a queue that has no more than
    its guarantee, do not count as a violation. Jobs with MIG instances or with a co-start group are not
    checked; neither are plans that break another rule, nor, in a rollback, the pending
    jobs of the plan that is undone.
    """
    if case.policy.priority.order is not PriorityOrder.TIERS:
        return
    order = _Order(case, judges)
    if not order.newcomers:
        return
    lowest = min(order.level(job) for job, _ in order.newcomers)
    waiting: dict[tuple[object, ...], Job] = {}
    for job in sorted(case.snapshot.waiting, key=lambda job: job.name):
        undone = job.name in case.undo.jobs
        if job.priority > lowest and not undone and order.could_be_first(job):
            waiting.setdefault(
                (job.priority, *job.requirements_key, job.datasets, str(job.anti_affinity)), job
            )
    for job in sorted(waiting.values(), key=lambda job: (-job.priority, job.name)):
        if (instead := order.displaced(job)) is not None:
            found = f"waits while {truncated_names(instead)} of lower priority took a place that it could use"
            yield Violation(Rule.PRIORITY, f"job {job.name} of priority {job.priority}", found, "its start")


class _Order:
    def __init__(self, case: Context, judges: RuleSet) -> None:
        self._case, self._judges = case, judges
        self._groups = co_start_groups(case)
        self._trials = max(_FEWEST_TRIALS, _TRIALS // (1 + len(case.placements)))
        self._lower: dict[int, frozenset[str]] = {}
        """Newcomers of lower priority than this, by priority."""
        self._nodes: dict[frozenset[str], tuple[list[Node], list[Node]]] = {}
        """The nodes, and those that have GPUs left, by the jobs that are absent."""
        self._left: dict[str, tuple[dict[int, int], dict[str, int]]] = {}
        """What nodes have left without the jobs in `_left_without`: by GPU, and by unit."""
        self._left_without: frozenset[str] | None = None
        self._later: dict[str, int] = {}

    @cached_property
    def newcomers(self) -> tuple[tuple[Job, JudgedPlacement], ...]:
        """Jobs that start or grow and can violate the rule."""
        return tuple(
            (job, occupant)
            for job, occupant in self._case.arrivals
            if occupant.change in (Change.STARTED, Change.GROWN)
            and not self._is_booked(job)
            and not self._is_owed(job)
        )

    def level(self, job: Job) -> int:
        """The priority of a job; for a co-start group the lowest of its jobs."""
        return min(each.priority for each in self._with_group(job))

    def _with_group(self, job: Job) -> list[Job]:
        """A job and those of its co-start group."""
        names = self._groups.get(job.co_start, [job.name]) if job.co_start else [job.name]
        return [self._case.jobs[name] for name in names]

    def _is_booked(self, job: Job) -> bool:
        """True if a job's start was decided before all others, or that of a job of its group."""
        if job.running is not None:
            return bool(job.promise)
        horizon, now = self._case.policy.horizon, self._case.snapshot.taken_at
        least = horizon.backfill.starving if horizon.slots > 1 else None
        return any(
            each.promise or (least is not None and each.waiting_seconds(now) >= least)
            for each in self._with_group(job)
        )

    def could_be_first(self, job: Job) -> bool:
        """True if a job does not start now, and its start does not depend on other jobs."""
        there = job.name in self._case.placement_counts
        return not (there or job.withheld or job.co_start or job.request.mig or not job.weight_milli)

    def _below(self, priority: int) -> frozenset[str]:
        """Newcomers of lower priority."""
        if priority not in self._lower:
            self._lower[priority] = frozenset(
                each.name for each, _ in self.newcomers if self.level(each) < priority
            )
        return self._lower[priority]

    @cached_property
    def _newcomers_on(self) -> dict[str, set[str]]:
        """Newcomers with new replicas on each node."""
        found: dict[str, set[str]] = defaultdict(set)
        for job, occupant in self.newcomers:
            for replica in occupant.new_replicas:
                found[replica.node].add(job.name)
        return found

    def displaced(self, job: Job) -> list[str] | None:
        """Jobs of lower priority without which a job could start; None if it could not."""
        gone = self._below(job.priority)
        if not gone:
            return None
        for replicas in self._places(job, gone):
            nodes = {replica.node for replica in replicas}
            near = gone & {name for node in nodes for name in self._newcomers_on[node]}
            for without in (near, gone) if near != gone else (gone,):
                if self._trials <= 0:
                    return None
                self._trials -= 1
                if without and self._is_better(job, replicas, without):
                    return sorted(without)
        return None

    def _is_better(self, job: Job, replicas: tuple[Replica, ...], without: frozenset[str]) -> bool:
        """True if the plan with a job on some places, and without some others, is legal and better."""
        # Cheap checks first: the gain is known without the trial, and most jobs that wait lack quota.
        gain = points_if_started(self._case, job, replicas) - self._points_later(job)
        if gain <= self._sunk_cost:
            return False
        trial = self._with(job, replicas, without)
        if not self._judges.is_within_quota(trial):
            return False
        terms = self._judges.terms
        cost = self._sunk_cost + sum(max(0, -terms[name](trial)) for name in _COST_TERMS)
        if gain <= cost or any(terms[name](trial) < self._duties[name] for name in _OBLIGATION_TERMS):
            return False
        return self._judges.is_legal(trial)

    @cached_property
    def _judged(self) -> dict[str, JudgedPlacement]:
        """The plan's placements with their changes, by job; a legal plan has one a job."""
        return {each.placement.job: each for each in self._case.judged_placements}

    def _points_later(self, job: Job) -> int:
        """Points of the later start that the plan has for a job; 0 if it has none."""
        if job.name not in self._later:
            self._later[job.name] = points_of_starts(self._case, job.name)
        return self._later[job.name]

    @cached_property
    def _sunk_cost(self) -> int:
        """
        Cost of the plan's changes to running jobs and nodes, which a trial does not change.

        What running jobs lose is the difference between the points of starts and the terms of which these
        are a part: starts are in both.
        """
        case, terms = self._case, self._judges.terms
        cost = sum(max(0, -terms[name](case)) for name in _SUNK_TERMS)
        if self._disturbs:
            earned = sum(terms[name](case) for name in ("completion", "deadlines", "tariffs"))
            cost += max(0, points_of_starts(case) - earned)
        return cost

    @cached_property
    def _disturbs(self) -> bool:
        """True if the plan preempts a running job, or changes one other than by growth."""
        case = self._case
        return bool(case.stopped) or any(
            job.running and occupant.change is not Change.GROWN for job, occupant in case.changed
        )

    @cached_property
    def _duties(self) -> dict[str, int]:
        return {name: self._judges.terms[name](self._case) for name in _OBLIGATION_TERMS}

    def _with(self, job: Job, replicas: tuple[Replica, ...], without: frozenset[str]) -> Context:
        kept = []
        for each in self._case.placements:
            if each.job not in without:
                kept.append(each)
            elif (before := self._case.jobs[each.job].placement) is not None:
                kept.append(before)
        planned = tuple(
            each
            for each in self._case.planned
            if each.job != job.name and self.level(self._case.jobs[each.job]) >= job.priority
        )
        here = Placement(job=job.name, replicas=replicas)
        placements = tuple(sorted((*kept, here), key=lambda placement: placement.job))
        return replace(self._case, placements=placements, planned=planned, judged=self._judged)

    def _is_owed(self, job: Job) -> bool:
        """True if a queue of the job has no more than its guarantee."""
        return any(
            self._held_by_queue[name] <= guarantee
            for name, guarantee in self._guaranteed.items()
            if name in self._chain(job.queue)
        )

    @cached_property
    def _guaranteed(self) -> dict[str, int]:
        return {
            queue.name: queue.quota.guarantee
            for queue in self._case.snapshot.queues
            if queue.quota and queue.quota.guarantee
        }

    @cached_property
    def _held_by_queue(self) -> dict[str, int]:
        held: dict[str, int] = defaultdict(int)
        for (queue, _), milli in self._case.usage_after.items():
            for name in self._chain(queue):
                held[name] += milli
        return held

    def _chain(self, queue: str) -> list[str]:
        """A queue and all queues above it."""
        found, above = [], self._parents.get(queue)
        while queue not in found:
            found.append(queue)
            if above is None:
                break
            queue, above = above, self._parents.get(above)
        return found

    @cached_property
    def _parents(self) -> dict[str, str | None]:
        return {queue.name: queue.parent for queue in self._case.snapshot.queues}

    # --- places --------------------------------------------------------------------------------------------

    @cached_property
    def _on_node(self) -> dict[str, list[tuple[str, Replica, bool]]]:
        """(job, replica, whether it is new) by node."""
        found: dict[str, list[tuple[str, Replica, bool]]] = defaultdict(list)
        for occupant in self._case.judged_placements:
            for number, replica in enumerate(occupant.placement.replicas):
                found[replica.node].append((occupant.placement.job, replica, number in occupant.new))
        return found

    def _places(self, job: Job, gone: frozenset[str]) -> Iterator[tuple[Replica, ...]]:
        """Possible placements of a job without those in `gone`: one GPU model, one domain if required."""
        rooms: dict[tuple[object, ...], list[Replica]] = defaultdict(list)
        spread: dict[tuple[object, ...], int] = defaultdict(int)
        level = job.locality.required
        for name in self._nodes_for(job, gone):
            node = self._case.nodes[name]
            if _chosen(job, self._left_on(node, gone)[0]) is None:  # on most nodes
                continue
            domain = self._case.domain(name, level) if level else ()
            key = (node.gpu_model if job.request.needs_gpu else None, domain)
            for replica in self._replicas(job, node, gone, job.gang.minimum - len(rooms[key])):
                if job.spread:
                    where = (*key, self._case.domain(name, job.spread.level))
                    spread[where] += 1
                    if spread[where] > job.spread.most:
                        break
                rooms[key].append(replica)
            if len(rooms[key]) >= job.gang.minimum:
                yield tuple(rooms.pop(key))

    def _nodes_for(self, job: Job, gone: frozenset[str]) -> Iterable[str]:
        """Nodes that a job might use; first those that the jobs in `gone` take."""
        if gone not in self._nodes:
            taken = {node for node, names in self._newcomers_on.items() if not gone.isdisjoint(names)}
            schedulable = (node for node in self._case.nodes_after if node.schedulable)
            nodes = sorted(schedulable, key=lambda node: (node.name not in taken, node.name))
            # In a full cluster few nodes have a part of a GPU left.
            open_ = [
                node for node in nodes if any(milli > 0 for milli in self._left_on(node, gone)[0].values())
            ]
            self._nodes[gone] = nodes, open_
        return (
            node.name
            for node in self._nodes[gone][job.request.needs_gpu]
            if not job.gpu_models or node.gpu_model in job.gpu_models
        )

    def _replicas(self, job: Job, node: Node, gone: frozenset[str], most: int) -> Iterator[Replica]:
        """At most `most` replicas of a job that fit a node if the jobs in `gone` are absent."""
        left, amounts = self._left_on(node, gone)
        free, offered = dict(left), dict(amounts)
        for _ in range(most):
            gpus = _chosen(job, free)
            if gpus is None:
                return
            request = job.request
            made = Replica(
                node=node.name,
                gpus=gpus,
                cpu_milli=print_milli(request.cpu_milli),
                memory_mib=request.memory_mib,
                disk_mib=request.disk_mib,
                resources=request.resources,
            )
            for unit, amount in charged_amounts(self._case, job, made).items():
                offered[unit] = offered.get(unit, 0) - amount
                if amount and offered[unit] < 0:
                    return
            for held in gpus:
                free[held.index] -= held.milli
            yield made

    def _left_on(self, node: Node, gone: frozenset[str]) -> tuple[dict[int, int], dict[str, int]]:
        """
        Thousandths left of each GPU of a node if the jobs in `gone` are absent, and amounts left by unit.

        Jobs come by priority, so that many in a row have the same `gone`; only its nodes are kept.
        """
        # Not `!=`, which takes as long as `gone` has jobs, for each node.
        if gone is not self._left_without:
            self._left, self._left_without = {}, gone
        if node.name not in self._left:
            there = [
                (name, replica)
                for name, replica, new in self._on_node.get(node.name, ())
                if not (new and name in gone)
            ]
            offered = offered_amounts(node)
            for name, replica in there:
                for unit, amount in charged_amounts(self._case, self._case.jobs.get(name), replica).items():
                    offered[unit] = offered.get(unit, 0) - amount
            self._left[node.name] = _free_gpus(node, (replica for _, replica in there)), offered
        return self._left[node.name]


def _free_gpus(node: Node, replicas: Iterable[Replica]) -> dict[int, int]:
    """Thousandths free of each healthy GPU of a node that is not in MIG mode."""
    gpus = node.gpus.by_index.values() if node.gpus else ()
    free = {gpu.index: MILLI for gpu in gpus if gpu.healthy and gpu.mig is None}
    for replica in replicas:
        for held in replica.gpus:
            if held.index in free:
                free[held.index] -= held.milli if isinstance(held, GpuShare) else MILLI
    return free


def _chosen(job: Job, free: Mapping[int, int]) -> tuple[GpuShare, ...] | None:
    """The GPUs for a replica: for a share the fullest GPU with room; None if there are too few."""
    request = job.request
    if request.gpu_milli:
        able = [(milli, index) for index, milli in free.items() if milli >= request.gpu_milli]
        return (GpuShare(index=min(able)[1], milli=request.gpu_milli),) if able else None
    whole = [index for index, milli in free.items() if milli == MILLI][: request.gpus]
    if len(whole) < request.gpus:
        return None
    return tuple(GpuShare(index=index, milli=MILLI) for index in whole)
