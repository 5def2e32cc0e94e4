"""
Use GPUs that are idle while a guarantee is unmet: jobs make room there, and start elsewhere.

A GPU that misses from a guarantee costs more than most jobs are worth, so every idle one counts. GPUs stay
idle for two reasons: the cores or memory of their node are used up, or they were taken from running jobs that
no waiting job may follow. In the first case a job there gives way to jobs that use more of the GPUs. In the
second case a start that may follow moves there from another node, and leaves a place that others may take.
Starts of queues that hold more than they are owed give way, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.units import MILLI
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.guarantees.early_starts import start_higher_priorities
from gpuplan.solvers.state.preemption_candidates import PreemptionCandidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.problem.jobs import JobClass, Option, Shape
    from gpuplan.solvers.state.assignment import JobAssignment
    from gpuplan.solvers.state.ledger import Ledger


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
        here = np.array([node], dtype=np.int64)
        for index in self.waiting:
            kind = id(ledger.endless[index])
            if kind in full or not self._may_fit(node, index) or not ledger.jobs_left(index):
                continue
            for option in self._options_on(index, node):
                if ledger.queues.quota.owed(self._classes[index].queue, option.gpu_model):
                    if not ledger.feasibility.room(index, here, 1)[0]:
                        full.add(kind)
                        break
                    jobs = ledger.jobs_left(index)
                    filled |= placement.place(ledger, index, option, jobs=jobs, nodes=here) > 0
        return filled

    def _may_fit(self, node: int, index: int) -> bool:
        """False if a replica takes more than the node has free, whatever else forbids it."""
        capacity, shape = self._ledger.capacity, self._shape(index)
        free = capacity.free[node].tolist()
        return shape.quota_milli <= capacity.gpu_left[node] and all(
            amount <= left for amount, left in zip(shape.amounts, free, strict=True) if amount
        )

    def _options_on(self, index: int, node: int) -> list[Option]:
        group = self._ledger.group_of[node]
        return [option for option in self._classes[index].options if group in option.groups]

    def _fetch(self, node: int) -> bool:
        """Move a start to a node if waiting jobs then gain by its place; False if none does."""
        ledger, here, open_to = self._ledger, np.array([node], dtype=np.int64), dict[int, bool]()
        tries = ledger.params.greedy.idle_moves
        largest = sorted(ledger.placed.items(), key=self._by_size)
        for number, placed in largest:
            index = placed.job_class
            if not self._may_fit(node, index) or not self._may_give_way(number):
                continue
            kind = id(ledger.endless[index])
            if kind not in open_to:
                open_to[kind] = bool(ledger.feasibility.room(index, here, 1)[0])
            if open_to[kind] and placed.sites[0].node != node:
                if not tries:
                    return False
                tries -= 1
                if self._keeps_if_better(partial(self._move, number, node)):
                    return True
        return False

    def _by_size(self, entry: tuple[int, JobAssignment]) -> tuple[int, int, int]:
        return self._classes[entry[1].job_class].rank, -self._shape(entry[1].job_class).quota_milli, entry[0]

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
