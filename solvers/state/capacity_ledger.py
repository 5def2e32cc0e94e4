"""
The capacity of a ledger: free now and in later slots, with nodes of pools that open and close.

Every step is recorded with its inverse, so that a trial can be rolled back.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.constraints.quota import UNLIMITED, FutureQuota
from gpuplan.solvers.state.feasibility import Feasibility
from gpuplan.solvers.state.feasible_nodes_cache import FeasibleNodesCache
from gpuplan.solvers.state.node_scores import NodeScores

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from gpuplan.solvers.state.assignment import FutureAssignment, ReplicaSite
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]

Span: TypeAlias = tuple[int, int]
"""First slot, and the slot after the last."""


class CapacityLedger(Feasibility):
    """Feasibility now and later, changed step by step; with a single slot the later costs nothing."""

    def __init__(self, problem: Problem, params: PlacementParams = PlacementParams()) -> None:
        super().__init__(problem, params)
        self.booked: dict[int, FutureAssignment] = {}
        """Reserved later starts, by number."""
        ahead = self.timeline is not None
        self.future_quota = FutureQuota(problem) if ahead else None
        self.feasible_nodes = (
            FeasibleNodesCache(problem, self.timeline, params.ledger.max_feasible_nodes)
            if self.timeline is not None
            else None
        )
        awaited = (each.job_class for one in problem.classes for each in one.predecessors)
        self.awaited = frozenset(index for index in awaited if index is not None)
        """Classes of one job that are predecessors of others."""
        self._begun: dict[int, tuple[int, Option]] = {}
        """Slot and option of the starts of these jobs."""
        self._endless = tuple(replace(tenant, ends=()) for tenant in self.tenants)
        self._boards: OrderedDict[tuple[PlacementProfile, tuple[int, ...]], NodeScores] = OrderedDict()
        self._rooms: dict[tuple[int, str | None, bool, int, int], int] = {}
        """Thousandths of GPUs that queues may still take, by what it depends on."""
        self._rooms_seen = (0, 0)
        self.opened: dict[int, int] = {}
        """Opened nodes, with their pools."""
        self.closed: dict[int, int] = {}
        """Nodes to be removed, with their pools."""
        self.pool_points = 0
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # --- undo ----------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """A point to which `rollback` returns."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo everything done since a mark."""
        while len(self._undo) > mark:
            deed, arguments = self._undo.pop()
            deed(*arguments)

    def step(self, deed: Callable[..., None], arguments: tuple[Any, ...], undo: tuple[Any, ...]) -> None:
        """Do a step that the same function undoes with other arguments."""
        deed(*arguments)
        self._undo.append((deed, undo))

    def clear(self) -> None:
        """Take the current state as the beginning: earlier steps can no longer be undone."""
        self._undo.clear()

    # --- now and later -------------------------------------------------------------------------------------

    def node_scores(self, index: int, option: Option, nodes: Ints | None = None) -> NodeScores:
        """Costs of one more replica of a class on the nodes of an option; recently used boards are kept."""
        # How long a job runs makes a difference only beside reservations.
        booked = self.timeline is not None and self.timeline.bookings
        tenant = self.tenants[index] if booked else self._endless[index]
        if nodes is not None:
            return NodeScores(self, tenant, self.nodes_within(option, nodes))
        key = (tenant, option.groups)
        if (board := self._boards.get(key)) is None:
            board = self._boards[key] = NodeScores(self, tenant, self.nodes_of(option))
            if len(self._boards) > self.params.ledger.max_node_scores:
                self._boards.popitem(last=False)
        self._boards.move_to_end(key)
        return board

    def headroom(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """How many portions of `replicas` replicas the class's queue may hold from now until their end."""
        now = self.headroom_now(job_class, option, replicas)
        # Without reservations, quota that is free now stays free: other jobs only end.
        if self.future_quota is None or not self.booked or now <= 0:
            return now
        return min(now, self.future_quota.headroom(job_class, option, replicas, (1, option.ends[0])))

    def headroom_now(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """The same for this instant alone."""
        milli = job_class.shape.quota_milli * replicas
        if not milli:
            return UNLIMITED
        seen = self.quota.changes, self.freed.changes
        if seen != self._rooms_seen:
            self._rooms, self._rooms_seen = {}, seen
        known = job_class.role is ClassRole.MOVE
        # Many classes in a row ask about the same queue.
        key = job_class.queue, option.gpu_model, known, job_class.rank, job_class.claim
        if (room := self._rooms.get(key)) is None:
            room = self.quota.room(job_class.queue, option.gpu_model, known=known)
            beside = self.freed.room(job_class.queue, option.gpu_model, job_class, known=known)
            room = self._rooms[key] = min(room, beside)
        return room // milli

    def exceeded_limit(
        self, job_class: JobClass, option: Option, replicas: int
    ) -> tuple[QueueBudget, int] | None:
        """The first limit that `replicas` more replicas would break, and the lowest queue with it."""
        asked = job_class.queue, option.gpu_model, job_class.shape.quota_milli * replicas
        return self.quota.exceeded_limit(*asked) or self.freed.exceeded_limit(*asked, job_class)

    def future_headroom(self, job_class: JobClass, option: Option, replicas: int, span: Span) -> int:
        """How many portions of `replicas` replicas the class's queue may hold in all slots of a span."""
        if self.future_quota is None:
            return UNLIMITED
        return self.future_quota.headroom(job_class, option, replicas, span)

    def charge_future_quota(
        self, queue: int, gpu_model: str | None, milli: int, span: Span, new: bool = False
    ) -> None:
        """Count GPUs at a queue and all queues above it in a span of slots."""
        if self.future_quota is not None:
            self.future_quota.change(queue, gpu_model, milli, span, new=new)

    def reserve(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        """Reserve a site for a replica of a class in a span of slots; `times` -1 releases it."""
        if self.timeline is not None:
            self.timeline.reserve(self.problem.classes[index].shape, site, span, times)
            self.replica_counts[site.node] += times
            self.capacity.touch(site.node)
            for capped in self.timeline.capped:
                if site.node in capped:
                    self.capacity.touch(capped)

    def begin(self, index: int, slot: int, option: Option, times: int) -> None:
        """Record the slot and option of an awaited job's start; `times` -1 removes the record."""
        if index in self.awaited:
            if times > 0:
                self._begun[index] = slot, option
            else:
                del self._begun[index]

    def begins(self, index: int) -> int | None:
        """The slot in which the job of an awaited class starts; None if it is not planned."""
        begun = self._begun.get(index)
        return begun[0] if begun else None

    def ready(self, index: int) -> int | None:
        """
        The first slot by which enough predecessors of a class have started or ended, as far as it is planned.

        None if that is not within the horizon, or if too few of them are planned so far.
        """
        job_class = self.problem.classes[index]
        if not job_class.needed:
            return 0
        slots = []
        for each in job_class.predecessors:
            if each.job_class is None:
                slots.append(each.slot)
            elif (begun := self._begun.get(each.job_class)) is not None:
                slot, option = begun
                slots.append(option.ends[slot] if each.ended else slot + 1)
        slots = sorted(slot for slot in slots if slot < self.problem.slots)
        return slots[job_class.needed - 1] if len(slots) >= job_class.needed else None

    # --- nodes of pools ------------------------------------------------------------------------------------

    def open(self, pool: int) -> int | None:
        """Open the next node of a pool; None if there is none."""
        for group in self.problem.groups:
            for node in group.nodes if group.pool == pool else ():
                if node not in self.opened:
                    self.step(self._set_open, (node, pool, True), (node, pool, False))
                    return node
        return None

    def shut(self, node: int) -> None:
        """Cancel the opening of an unused node."""
        pool = self.opened[node]
        self.step(self._set_open, (node, pool, False), (node, pool, True))

    def close(self, node: int) -> bool:
        """Remove a node that is empty, or emptied by migration, if its pool may lose one; False otherwise."""
        if self.replica_counts[node] or node in self.closed or self.floors.had_preemption(node):
            return False
        for index, pool in enumerate(self.problem.pools):
            if node in pool.closable and list(self.closed.values()).count(index) < pool.most_closed:
                self.step(self._set_closed, (node, index, True), (node, index, False))
                return True
        return False

    def cancel_close(self, node: int) -> None:
        """Keep a node that was to be removed."""
        pool = self.closed[node]
        self.step(self._set_closed, (node, pool, False), (node, pool, True))

    def _set_open(self, node: int, pool: int, opened: bool) -> None:
        if opened:
            self.opened[node] = pool
        else:
            del self.opened[node]
        self.pool_points -= self.problem.pools[pool].opening_points * (1 if opened else -1)
        self.capacity.set_usable(node, opened)

    def _set_closed(self, node: int, pool: int, closed: bool) -> None:
        if closed:
            self.closed[node] = pool
        else:
            del self.closed[node]
        self.pool_points += (self.problem.nodes[node].closing_points or 0) * (1 if closed else -1)
        self.capacity.set_usable(node, not closed)
