"""
Problem: the frozen question of one epoch, in integers.

Identical jobs form a `JobClass`, interchangeable nodes a `NodeGroup`; both the greedy heuristic and the
formulation read this and nothing else. Plain tuples here; whoever computes turns them into arrays.

Points are differences to doing nothing: a running job that stays as it is counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from gpuplan.models.cluster import Level
    from gpuplan.models.problem.jobs import Booking, Incumbent, JobClass
    from gpuplan.models.problem.nodes import FreeNode, NodeGroup, PoolOption


@dataclass(frozen=True, slots=True)
class QueueBudget:
    """Limits of one resource over the queue tree (see `models.queue.QueueLimits`), in thousandths of GPUs."""

    resource: str
    """A GPU model, or `ALL_MODELS`."""
    leaves_first: tuple[int, ...]
    parent: tuple[int | None, ...]
    kept: tuple[int, ...]
    limit: tuple[int | None, ...]
    """Never below what running jobs already use, so that the question always has an answer."""
    firm: tuple[int | None, ...]
    """The limits that starts and growths must keep, whatever is used already."""
    own: tuple[int, ...]
    """Held by running jobs directly in each queue, incumbents included."""
    returns: tuple[tuple[int, int, int, int | None], ...] = ()
    """(slot, queue, thousandths, incumbent) of what running jobs give back as they end, by slot."""

    def counts(self, gpu_model: str | None) -> bool:
        """True if GPUs of this model count here."""
        return gpu_model is not None and self.resource in (ALL_MODELS, gpu_model)

    def upwards(self, queue: int) -> list[int]:
        """A queue and all above it."""
        way: list[int] = []
        above: int | None = queue
        while above is not None:
            way.append(above)
            above = self.parent[above]
        return way

    def up_the_tree(self, own: list[int]) -> list[int]:
        """What counts at each queue if so much is held directly in each: its own, and what others borrow."""
        usage = list(own)
        for queue in self.leaves_first:
            if (parent := self.parent[queue]) is not None:
                usage[parent] += max(0, usage[queue] - self.kept[queue])
        return usage


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a queue with all below it is owed of one resource: of its guarantee, or of its nominal quota."""

    resource: str
    queues: tuple[int, ...]
    """The queue and all below it."""
    owed: int
    """min(guarantee or nominal quota, demand that fits it), in thousandths of GPUs."""
    own: int
    """Held by running jobs of these queues, incumbents included."""
    price: int
    """Points of each GPU, rounded up, missing from what is owed; at least 0."""

    def counts(self, gpu_model: str | None) -> bool:
        """True if GPUs of this model count here."""
        return gpu_model is not None and self.resource in (ALL_MODELS, gpu_model)


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A cap on the power of the GPUs of several nodes."""

    nodes: tuple[int, ...]
    watts: tuple[int, ...]
    """Of one GPU, for each of the nodes."""
    left: int
    """Thousandths of watts that running jobs leave; negative where they draw too much."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """(incumbent, thousandths of watts it draws on nodes of the rack that take nothing new), sorted."""
    returns: tuple[tuple[int, int, int | None], ...] = ()
    """(slot, thousandths of watts, incumbent) of what running jobs give back as they end, by slot."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A running job that others may not, or would rather not, meet."""

    job: str
    incumbent: int | None
    """Index into `Problem.incumbents` if it may leave."""
    nodes: tuple[int, ...]
    workload: str
    carries: tuple[int, ...]
    avoids: tuple[tuple[int, Level], ...]


@dataclass(frozen=True, slots=True)
class Charges:
    """Prices in points, none negative."""

    domain: int = 0
    """Of each domain of the preferred level beyond one."""
    fragmentation: int = 0
    """Of each wholly free GPU beyond whole multiples of `reference_gpus` on its node."""
    reference_gpus: int = 8
    repartition: int = 0
    """Of each MIG instance created."""
    switch_mode: int | None = None
    """Of each GPU switched to MIG mode; None if that may not be done."""
    may_repartition: bool = True
    interference: tuple[tuple[str, str, int], ...] = ()
    """(workload, workload, points) of two jobs of these classes that come to share a node."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The frozen question of one epoch."""

    resources: tuple[str, ...]
    """Countable resources of a node beside GPUs: thousandths of cores, memory, disk, then others by name."""
    nodes: tuple[FreeNode, ...]
    groups: tuple[NodeGroup, ...]
    classes: tuple[JobClass, ...]
    queues: tuple[str, ...]
    budgets: tuple[QueueBudget, ...]
    incumbents: tuple[Incumbent, ...] = ()
    guarantees: tuple[Guarantee, ...] = ()
    pools: tuple[PoolOption, ...] = ()
    domains: tuple[tuple[Level, tuple[int, ...]], ...] = ()
    """Levels in use with the domain of each node; a node without one is a domain of its own."""
    power_caps: tuple[PowerCap, ...] = ()
    standing: tuple[Standing, ...] = ()
    charges: Charges = Charges()
    edges: tuple[int, ...] = (0, 3600)
    """Seconds from now at which each slot begins, and the end of the last (see `models.slots.Slots`)."""
    bookings: tuple[Booking, ...] = ()
    """Starts that are firm, at most one a class; `solvers.holding` finds them."""
    depth: int | None = None
    """Waiting jobs that may be promised a start, those of `bookings` included; None is all."""
    floors: tuple[tuple[int, int], ...] = ()
    """(priority, points that its classes earn at least): what classes of lower priority may not cost them."""

    @property
    def slots(self) -> int:
        """H, the number of slots; 1 is a question about this instant alone."""
        return len(self.edges) - 1

    @property
    def priorities(self) -> tuple[int, ...]:
        """The priorities of classes that start or grow, the highest first."""
        return tuple(sorted({one.priority for one in self.classes if not one.role.makes_good}, reverse=True))

    def precedence(self, index: int) -> tuple[int, int]:
        """What jobs that take the same are ordered by: the priority of their class, then its points."""
        return -self.classes[index].priority, -self.classes[index].most_points

    @property
    def claims(self) -> int:
        """One more than the last claim of a class."""
        return 1 + max((job_class.claim for job_class in self.classes), default=0)

    def domain_of(self, level: Level) -> tuple[int, ...]:
        """Domain of each node at a level in use."""
        return dict(self.domains)[level]

    @property
    def ceiling(self) -> int:
        """
        No plan scores more: every job at its best, every removable node removed, nothing missing or wasted.

        It needs no solver.
        """
        starts = sum(
            len(job_class.jobs) * max(0, job_class.best_points)
            for job_class in self.classes
            if not job_class.role.makes_good
        )
        leaves = sum(self._best_leave(incumbent) for incumbent in self.incumbents)
        closed = sum(max(0, node.closing_points or 0) for node in self.nodes)
        return starts + leaves + closed + self._missing + self._wasted

    @property
    def _missing(self) -> int:
        """Price of all that guarantees lack while nothing changes."""
        return sum(each.price * -(-max(0, each.owed - each.own) // MILLI) for each in self.guarantees)

    @property
    def _wasted(self) -> int:
        """Price of all fragmentation while nothing changes."""
        optional = {node for group in self.groups if group.pool is not None for node in group.nodes}
        free = (
            node.gpus.count(MILLI)
            for index, node in enumerate(self.nodes)
            if index not in optional and not node.opens
        )
        return self.charges.fragmentation * sum(gpus % self.charges.reference_gpus for gpus in free)

    def _best_leave(self, incumbent: Incumbent) -> int:
        gains = [0]
        if incumbent.stop_points is not None:
            again = 0 if incumbent.resume is None else self.classes[incumbent.resume].best_later_points
            gains.append(incumbent.stop_points + again)
        if incumbent.move is not None:
            gains.append(incumbent.leave_points + self.classes[incumbent.move].most_points)
        return max(gains) + incumbent.on_leaving
