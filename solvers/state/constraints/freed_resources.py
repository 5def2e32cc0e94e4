"""
Quota and rack power that preempted jobs have freed, for classes that may take their place.

There is a tally for each set of victims (`preemption_order`): what queues use and racks draw if all these
victims had stayed, and if no class that may take the place of any of them had come or migrated. As long as
one of the victims is out, every other class must also fit there. `preemption_ranks` treats what preemption
frees on nodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.preemption_order import conservative_victim_views, is_bound
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.constraints.quota import UNLIMITED, QuotaUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.eligibility.preemption_order import ClaimantOrIncumbent
    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from gpuplan.solvers.state.assignment import ReplicaSite


class _Tally:
    """Quota usage and power without what a view leaves out."""

    def __init__(self, problem: Problem) -> None:
        self.usage = QuotaUsage(problem)
        self.power_left = [cap.left for cap in problem.power_caps]
        self.victims = 0
        """Number of replicas that the victims were made to give up."""


class FreedResources:
    """What classes may take beside victims that they may not replace."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._views = {
            view: _Tally(problem)
            for view in conservative_victim_views(
                each for each in problem.incumbents if each.shape.quota_milli
            )
        }
        self._caps: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, cap in enumerate(problem.power_caps):
            for node, watts in zip(cap.nodes, cap.watts, strict=True) if self._views else ():
                self._caps[node].append((index, watts))

    def headroom(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """How many more portions of `replicas` replicas the class's queue may hold on this option."""
        milli = job_class.shape.quota_milli * replicas
        if not milli:
            return UNLIMITED
        known = job_class.role is ClassRole.MOVE
        return self.room(job_class.queue, option.gpu_model, job_class, known=known) // milli

    def room(self, queue: int, gpu_model: str | None, comer: ClaimantOrIncumbent, *, known: bool) -> int:
        """Thousandths of GPUs that a queue may still take for `comer`; see `QuotaUsage.room`."""
        views = self._binding_tallies(comer)
        return min((view.usage.room(queue, gpu_model, known=known) for view in views), default=UNLIMITED)

    def exceeded_limit(
        self, queue: int, gpu_model: str | None, milli: int, comer: ClaimantOrIncumbent
    ) -> tuple[QueueBudget, int] | None:
        """The first limit that `milli` more for `comer` would break; see `QuotaUsage.exceeded_limit`."""
        found = (view.usage.exceeded_limit(queue, gpu_model, milli) for view in self._binding_tallies(comer))
        return next((obstacle for obstacle in found if obstacle is not None), None)

    def has_power(self, milli: int, node: int, comer: ClaimantOrIncumbent) -> bool:
        """True if `milli` more thousandths of GPUs for `comer` stay within all power caps."""
        caps = self._caps.get(node, ()) if milli else ()
        return all(
            milli * watts <= view.power_left[cap]
            for cap, watts in caps
            for view in self._binding_tallies(comer)
        )

    def allows(self, index: int) -> bool:
        """True if a running job may be preempted, given the new jobs where other jobs have migrated away."""
        incumbent = self._problem.incumbents[index]
        nodes = {hold.node for hold in incumbent.holds if hold.node is not None}
        caps = {cap for node in nodes for cap, _ in self._caps.get(node, ())}
        return all(
            tally.usage.room(incumbent.queue, incumbent.gpu_model, known=True) >= 0
            and all(tally.power_left[cap] >= min(0, self._problem.power_caps[cap].left) for cap in caps)
            for view, tally in self._views.items()
            if not tally.victims and view.keeps(incumbent)
        )

    def count(self, job_class: JobClass, option: Option, milli: int) -> None:
        """Count GPUs that jobs of a class take, or give back if negative."""
        new = job_class.role is not ClassRole.MOVE
        for view, tally in self._views.items():
            if view.binds(job_class):
                tally.usage.change(job_class.queue, option.gpu_model, milli, new=new)

    def count_placed(self, job_class: JobClass, site: ReplicaSite, times: int) -> None:
        """Count a replica of a class on a site; `times` -1 removes it."""
        self._draw(site.node, times * job_class.shape.quota_milli, job_class)

    def preempt(self, index: int, positions: Iterable[int], times: int) -> None:
        """Count replicas that a running job is made to give up; `times` -1 restores them."""
        positions, incumbent = list(positions), self._problem.incumbents[index]
        for view, tally in self._views.items():
            if view.keeps(incumbent):
                tally.victims += times * len(positions)
        self._leave(index, positions, times, incumbent)

    def move(self, index: int, positions: Iterable[int], times: int) -> None:
        """Count replicas of a running job that leaves to migrate; `times` -1 restores them."""
        move = self._problem.incumbents[index].move
        if move is not None:
            self._leave(index, list(positions), times, self._problem.classes[move])

    def _leave(self, index: int, positions: list[int], times: int, comer: ClaimantOrIncumbent) -> None:
        incumbent = self._problem.incumbents[index]
        milli = incumbent.shape.quota_milli
        for view, tally in self._views.items() if milli else ():
            if is_bound(view, comer):
                tally.usage.change(incumbent.queue, incumbent.gpu_model, -times * milli * len(positions))
        for position in positions:
            if (node := incumbent.holds[position].node) is not None:
                self._draw(node, -times * milli, comer)

    def _draw(self, node: int, milli: int, comer: ClaimantOrIncumbent) -> None:
        for cap, watts in self._caps.get(node, ()):
            for view, tally in self._views.items():
                if is_bound(view, comer):
                    tally.power_left[cap] -= milli * watts

    def _binding_tallies(self, comer: ClaimantOrIncumbent) -> Iterator[_Tally]:
        """Tallies that bind `comer`, a class or a returning job, and of which a victim is out."""
        return (tally for view, tally in self._views.items() if tally.victims and is_bound(view, comer))
