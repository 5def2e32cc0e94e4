"""
Use GPUs that are idle while a guarantee is unmet: jobs make room there, and start elsewhere.

A GPU that misses from a guarantee costs more than most jobs are worth, so every idle one counts. GPUs stay
idle for two reasons: the cores or memory of their node are used up, or they were taken from running jobs that
no waiting job may follow. In the first case a job there gives way to jobs that use more of the GPUs. In the
second case a start that may follow moves there from another node, and leaves a place that others may take.
Starts of queues that hold more than they are owed give way, too.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.units import MILLI
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.guarantees.early_starts import start_higher_priorities
from gpuplan.solvers.state.preemption_candidates import PreemptionCandidates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import JobClass, Option, Shape
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]

    _Where: TypeAlias = tuple[tuple[str | None, tuple[int, ...]], ...]
    """(GPU model, node groups) of each option."""


def use_idle_gpus(ledger: Ledger, *, deadline: float | None = None) -> bool:
    """
    Exchange jobs on nodes with idle GPUs as long as a guarantee is unmet and that pays, until the deadline.

    What is then left is filled, and the order of priorities restored. True if anything changed; nothing does
    if a priority would earn less than its floor. Only jobs of one replica are exchanged, and running jobs on
    one node.
    """
    mark = ledger.undo.mark()
    if not _exchange(ledger, deadline):
        return False
    fill_free_capacity(ledger)
    start_higher_priorities(ledger, ledger.placed)
    if ledger.meets_priority_floors:
        return True
    ledger.undo.rollback(mark)
    return False


def _exchange(ledger: Ledger, deadline: float | None) -> bool:
    changed = False
    for _ in range(ledger.params.greedy.idle_rounds):
        exchange = _NodeExchange(ledger, deadline)
        if not exchange.waiting:
            break
        if not exchange.improve_nodes() | exchange.replace_spare_starts():
            break
        changed = True
    return changed


class _NodeExchange:
    """Exchanges of jobs on one node after the other."""

    def __init__(self, ledger: Ledger, deadline: float | None) -> None:
        self._ledger, self._deadline = ledger, deadline
        self._classes = ledger.problem.classes
        self.waiting = self._owed_classes()
        """Classes with jobs that would help to meet a guarantee, the largest replicas first."""
        shapes = [self._classes[index].shape for index in self.waiting]
        self._least = [
            min((shape.amounts[position] / shape.quota_milli for shape in shapes), default=0.0)
            for position in range(len(ledger.problem.resources))
        ]
        """By resource, the least that one of these takes for each thousandth of a GPU."""
        shape_of, needs = dict["Shape", int](), list[tuple[int, ...]]()
        for job_class in self._classes:
            if shape_of.setdefault(job_class.shape, len(needs)) == len(needs):
                needs.append((job_class.shape.quota_milli, *job_class.shape.amounts))
        self._shape_of = [shape_of[job_class.shape] for job_class in self._classes]
        """By class, its shape's row in `_needs`."""
        self._needs: Ints = np.array(needs, dtype=np.int64)
        """Thousandths of GPUs and amounts of a replica of each shape."""
        self._movable = self._movable_classes()
        self._wanting: dict[tuple[int, _Where, int], list[int]] = defaultdict(list)
        """`waiting` by queue, options and shape: for a guarantee, any one of these counts."""
        for index in self.waiting:
            job_class = self._classes[index]
            where = tuple((option.gpu_model, option.groups) for option in job_class.options)
            self._wanting[job_class.queue, where, self._shape_of[index]].append(index)

    def _movable_classes(self) -> list[list[list[int]]]:
        """
        Classes with jobs that may start elsewhere, in sets of the same rank and size, largest first.

        In each set those that find room on the same nodes (`Ledger.endless`) are together.
        """
        alike = defaultdict[tuple[int, int], dict[int, list[int]]](dict)
        for index, job_class in enumerate(self._classes):
            if _has_gpus(job_class) and not job_class.firm:
                kinds = alike[job_class.rank, -job_class.shape.quota_milli]
                kinds.setdefault(id(self._ledger.endless[index]), []).append(index)
        return [list(alike[key].values()) for key in sorted(alike)]

    def _owed_classes(self) -> list[int]:
        if not any(missing > 0 for missing in self._ledger.queues.quota.missing):
            return []
        found = [
            index
            for index, job_class in enumerate(self._classes)
            if job_class.minimum == 1
            and _has_gpus(job_class)
            and self._ledger.jobs_left(index)
            and any(self._is_wanted(job_class, option) for option in job_class.options)
        ]
        return sorted(
            found,
            key=lambda index: (-self._classes[index].shape.quota_milli, -self._classes[index].most_points),
        )

    def _is_wanted(self, job_class: JobClass, option: Option) -> bool:
        """True if a job would help to meet a guarantee, and has quota."""
        queues = self._ledger.queues
        owed = bool(queues.quota.owed(job_class.queue, option.gpu_model))
        return owed and queues.headroom(job_class, option, 1) > 0

    def improve_nodes(self) -> bool:
        """Try every node with idle GPUs, those with most first; True if anything changed."""
        capacity, changed = self._ledger.capacity, False
        idle = (capacity.gpu_free == MILLI).sum(axis=1) * capacity.usable
        for node in np.argsort(-idle, kind="stable")[: np.count_nonzero(idle)].tolist():
            while self._is_idle(node) and not is_late(self._deadline) and self._improve(node):
                changed = True
        return changed

    def replace_spare_starts(self) -> bool:
        """Use the places of starts that no guarantee needs; True if anything changed."""
        ledger, changed, failures = self._ledger, False, 0
        for number in sorted(ledger.placed):
            if is_late(self._deadline) or failures >= ledger.params.greedy.idle_failures:
                break
            if number in ledger.placed and self._may_give_way(number) and self._is_spare(number):
                node = ledger.placed[number].sites[0].node
                better = self._keeps_if_better(partial(self._replace_start, number, node))
                changed, failures = changed or better, failures + (not better)
        return changed

    def _is_spare(self, number: int) -> bool:
        placed, quota = self._ledger.placed[number], self._ledger.queues.quota
        job_class = self._classes[placed.job_class]
        held = job_class.queue, placed.option.gpu_model, -job_class.shape.quota_milli
        return not quota.points_of([held])

    def _is_idle(self, node: int) -> bool:
        return bool((self._ledger.capacity.gpu_free[node] == MILLI).any())

    def _improve(self, node: int) -> bool:
        return self._fetch(node) or any(self._keeps_if_better(change) for change in self._changes(node))

    def _changes(self, node: int) -> Iterator[Callable[[], bool]]:
        """One after the other, the jobs on a node that could give way."""
        ledger, tried = self._ledger, set[int]()
        for number in sorted(ledger.sites.numbers_on[node]):
            index = ledger.placed[number].job_class
            if index not in tried and self._may_give_way(number) and self._helps(node, self._shape(index), 1):
                tried.add(index)
                yield partial(self._replace_start, number, node)
        for index in PreemptionCandidates.shared(ledger).wholly_on(node):
            one = ledger.problem.incumbents[index]
            if self._helps(node, one.shape, len(one.holds)):
                yield partial(self._replace_running, index, node)

    def _keeps_if_better(self, change: Callable[[], bool]) -> bool:
        ledger = self._ledger
        mark, before = ledger.undo.mark(), ledger.objective
        if change() and ledger.objective > before:
            return True
        ledger.undo.rollback(mark)
        return False

    def _shape(self, index: int) -> Shape:
        return self._classes[index].shape

    def _helps(self, node: int, shape: Shape, replicas: int) -> bool:
        """False if the waiting jobs could not hold more GPUs in the place of replicas of a shape."""
        capacity, held = self._ledger.capacity, shape.quota_milli * replicas
        most = float(capacity.gpu_left[node] + held)
        for free, amount, least in zip(capacity.free[node].tolist(), shape.amounts, self._least, strict=True):
            if least:
                most = min(most, (free + amount * replicas) / least)
        return most > held

    def _may_give_way(self, number: int) -> bool:
        placed = self._ledger.placed[number]
        job_class = self._classes[placed.job_class]
        return _has_gpus(job_class) and not job_class.firm and len(placed.sites) == 1

    def _replace_start(self, number: int, node: int) -> bool:
        """Use the place of a start for others, and start it elsewhere if there is room."""
        ledger, placed = self._ledger, self._ledger.placed[number]
        ledger.remove(number)
        if not self._use(node):
            return False
        for option in self._classes[placed.job_class].options:
            if placement.place(ledger, placed.job_class, option, jobs=1):
                break
        return True

    def _replace_running(self, index: int, node: int) -> bool:
        """Preempt a job, and use its place."""
        return vacate.stop_incumbent(self._ledger, index) and self._use(node)

    def _use(self, node: int) -> bool:
        """Start waiting jobs on a node, then move starts there; False if neither is possible."""
        used = self._fill(node)
        while self._is_idle(node) and self._fetch(node):
            used = True
        return used

    def _fill(self, node: int) -> bool:
        """Start waiting jobs on a node; False if none fits."""
        ledger, full, filled = self._ledger, set[int](), False
        here, fits = np.array([node], dtype=np.int64), self._fitting(node)
        for index in self.waiting:
            kind = id(ledger.endless[index])
            if not fits[self._shape_of[index]] or kind in full or not ledger.jobs_left(index):
                continue
            for option in self._options_on(index, node):
                if ledger.queues.quota.owed(self._classes[index].queue, option.gpu_model):
                    if not ledger.feasibility.room(index, here, 1)[0]:
                        full.add(kind)
                        break
                    jobs = ledger.jobs_left(index)
                    filled |= placement.place(ledger, index, option, jobs=jobs, nodes=here) > 0
        return filled

    def _fitting(self, node: int, but: Shape | None = None) -> list[bool]:
        """By shape, False if a replica takes more than the node has free, with the place of one `but` it."""
        capacity = self._ledger.capacity
        free = np.append(capacity.gpu_left[node], capacity.free[node])
        if but is not None:
            free += (but.quota_milli, *but.amounts)
        fits: list[bool] = ((self._needs <= free) | (self._needs == 0)).all(axis=1).tolist()
        return fits

    def _options_on(self, index: int, node: int) -> list[Option]:
        group = self._ledger.group_of[node]
        return [option for option in self._classes[index].options if group in option.groups]

    def _fetch(self, node: int) -> bool:
        """Move a start to a node if waiting jobs then gain by its place; False if none does."""
        ledger, here, wanted = self._ledger, np.array([node], dtype=np.int64), self._wanted()
        if not wanted:
            return False
        fits, tries = self._fitting(node), ledger.params.greedy.idle_moves
        for alike in self._movable:
            numbers = list[int]()
            for kind in alike:
                if not fits[self._shape_of[kind[0]]]:
                    continue
                found = [number for index in kind for number in ledger.numbers_of[index]]
                if found and ledger.feasibility.room(kind[0], here, 1)[0]:
                    numbers += found
            for number in sorted(numbers):
                sites = ledger.placed[number].sites
                if len(sites) > 1 or sites[0].node == node:
                    continue
                if not tries:
                    return False
                tries -= 1
                if self._has_use(number, wanted) and self._keeps_if_better(partial(self._move, number, node)):
                    return True
        return False

    def _wanted(self) -> dict[int, set[int]]:
        """By node group, the shapes of waiting jobs that would help to meet a guarantee there."""
        ledger, wanted = self._ledger, defaultdict[int, set[int]](set)
        owed = cache(ledger.queues.quota.owed)
        for (queue, where, shape), indices in self._wanting.items():
            groups = {group for model, groups in where if owed(queue, model) for group in groups}
            if groups and any(map(ledger.jobs_left, indices)):
                for group in groups:
                    wanted[group].add(shape)
        return wanted

    def _has_use(self, number: int, wanted: Mapping[int, Collection[int]]) -> bool:
        """False if no wanted shape fits in the place of a start."""
        placed = self._ledger.placed[number]
        node = placed.sites[0].node
        shapes = wanted.get(self._ledger.group_of[node], ())
        fits = self._fitting(node, self._shape(placed.job_class)) if shapes else []
        return any(fits[each] for each in shapes)

    def _move(self, number: int, node: int) -> bool:
        """Start a job on a node instead of its own, and use its place there."""
        ledger, placed = self._ledger, self._ledger.placed[number]
        ledger.remove(number)
        here = np.array([node], dtype=np.int64)
        moved = any(
            placement.place(ledger, placed.job_class, option, jobs=1, nodes=here)
            for option in self._options_on(placed.job_class, node)
        )
        return moved and self._fill(placed.sites[0].node)


def _has_gpus(job_class: JobClass) -> bool:
    """True if its jobs start alone and take GPUs, or shares of these."""
    return job_class.starts_alone and bool(job_class.shape.gpus or job_class.shape.gpu_milli)
