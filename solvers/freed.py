"""
Freed: what preempted jobs have freed of quotas and of the power of racks, which is for their rank and above.

For each rank there is a view: what queues use and racks draw had all victims of this rank and above stayed,
and no class of it or above come or moved. Whatever else comes has to fit there too, as long as a victim of
the rank is out. What preemption frees on nodes is a matter of `floors`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from planner.models.problem_jobs import Role
from planner.solvers.quota import UNLIMITED, QuotaUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.models.problem import Problem, QueueBudget
    from planner.models.problem_jobs import JobClass, Option
    from planner.solvers.site import Site


class _View:
    """Quotas and power without what is of a rank and above."""

    def __init__(self, problem: Problem) -> None:
        self.usage = QuotaUsage(problem)
        self.power_left = [cap.left for cap in problem.power_caps]
        self.victims = 0
        """Replicas that incumbents of just this rank have been made to give up."""


class Freed:
    """What classes may take beside victims that they do not outrank."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._views = {
            rank: _View(problem)
            for rank in sorted({each.rank for each in problem.incumbents if each.shape.quota_milli} - {0})
        }
        self._caps: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, cap in enumerate(problem.power_caps):
            for node, watts in zip(cap.nodes, cap.watts, strict=True) if self._views else ():
                self._caps[node].append((index, watts))

    def headroom(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """How many more portions of so many replicas the class's queue may hold on this option."""
        milli = job_class.shape.quota_milli * replicas
        if not milli:
            return UNLIMITED
        known = job_class.role is Role.MOVE
        return self.room(job_class.queue, option.gpu_model, job_class.rank, known=known) // milli

    def room(self, queue: int, gpu_model: str | None, rank: int, *, known: bool) -> int:
        """Thousandths of GPUs that a queue may still take for a rank; see `QuotaUsage.room`."""
        views = self._beside(rank)
        return min((view.usage.room(queue, gpu_model, known=known) for view in views), default=UNLIMITED)

    def obstacle(
        self, queue: int, gpu_model: str | None, milli: int, rank: int
    ) -> tuple[QueueBudget, int] | None:
        """The first limit that so much more for a rank would break; see `QuotaUsage.obstacle`."""
        found = (view.usage.obstacle(queue, gpu_model, milli) for view in self._beside(rank))
        return next((obstacle for obstacle in found if obstacle is not None), None)

    def powers(self, milli: int, node: int, rank: int) -> bool:
        """True if so many thousandths of GPUs more for a rank draw no more power than there is."""
        caps = self._caps.get(node, ()) if milli else ()
        return all(
            milli * watts <= view.power_left[cap] for cap, watts in caps for view in self._beside(rank)
        )

    def allows(self, index: int) -> bool:
        """True if an incumbent may be preempted, given who has come where others have moved away."""
        incumbent = self._problem.incumbents[index]
        view = self._views.get(incumbent.rank)
        if view is None or view.victims:
            return True
        if view.usage.room(incumbent.queue, incumbent.gpu_model, known=True) < 0:
            return False
        nodes = {hold.node for hold in incumbent.holds if hold.node is not None}
        caps = {cap for node in nodes for cap, _ in self._caps.get(node, ())}
        return all(view.power_left[cap] >= min(0, self._problem.power_caps[cap].left) for cap in caps)

    def count(self, job_class: JobClass, option: Option, milli: int) -> None:
        """Count GPUs that jobs of a class take, or give back if negative."""
        new = job_class.role is not Role.MOVE
        for rank, view in self._views.items():
            if job_class.rank < rank:
                view.usage.change(job_class.queue, option.gpu_model, milli, new=new)

    def enter(self, job_class: JobClass, site: Site, times: int) -> None:
        """Count a replica of a class on a site, with -1 off it."""
        self._draw(site.node, times * job_class.shape.quota_milli, job_class.rank)

    def preempt(self, index: int, positions: Iterable[int], times: int) -> None:
        """Count replicas that an incumbent is made to give up, with -1 those that it has back."""
        positions, rank = list(positions), self._problem.incumbents[index].rank
        if (view := self._views.get(rank)) is not None:
            view.victims += times * len(positions)
        self._leave(index, positions, times, rank)

    def move(self, index: int, positions: Iterable[int], times: int) -> None:
        """Count replicas of an incumbent that leaves to be moved, with -1 back."""
        move = self._problem.incumbents[index].move
        if move is not None:
            self._leave(index, list(positions), times, self._problem.classes[move].rank)

    def _leave(self, index: int, positions: list[int], times: int, rank: int) -> None:
        incumbent = self._problem.incumbents[index]
        milli = incumbent.shape.quota_milli
        for own, view in self._views.items() if milli else ():
            if rank < own:
                view.usage.change(incumbent.queue, incumbent.gpu_model, -times * milli * len(positions))
        for position in positions:
            if (node := incumbent.holds[position].node) is not None:
                self._draw(node, -times * milli, rank)

    def _draw(self, node: int, milli: int, rank: int) -> None:
        for cap, watts in self._caps.get(node, ()):
            for own, view in self._views.items():
                if rank < own:
                    view.power_left[cap] -= milli * watts

    def _beside(self, rank: int) -> Iterator[_View]:
        """Views of higher ranks of which a victim is out."""
        return (view for own, view in self._views.items() if own > rank and view.victims)
