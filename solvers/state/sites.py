"""Sites: the places of replicas on nodes that a plan takes, reserves, or that running jobs leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.assignment import NOW
from gpuplan.solvers.state.constraints.constraint import methods, overriding, together

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.constraints.constraint import Constraint
    from gpuplan.solvers.state.disruption_state import JobDisruption
    from gpuplan.solvers.state.feasibility import Feasibility
    from gpuplan.solvers.state.undo_log import UndoLog


class Sites:
    """Takes sites and gives them back on every constraint; each call can be undone."""

    def __init__(
        self, problem: Problem, feasibility: Feasibility, constraints: tuple[Constraint, ...], undo: UndoLog
    ) -> None:
        self._problem, self._feasibility, self._undo = problem, feasibility, undo
        self.numbers_on = feasibility.numbers_on
        """Numbers of the jobs placed on each node."""
        self._fitting = overriding(constraints, "fits")
        self._fits_back = methods(constraints, "fits_back")
        self._may_give_up = methods(constraints, "may_give_up")
        self._take, self._leave = together(constraints, "take"), together(constraints, "leave")
        self._give_up = together(constraints, "give_up")
        self._disrupt = together(constraints, "disrupt")

    # --- sites of new jobs ---------------------------------------------------------------------------------

    def find(self, index: int, node: int) -> ReplicaSite:
        """The site that a replica of a class gets on a node with room for it."""
        rules, job_class = self._feasibility, self._problem.classes[index]
        left = rules.disruptions.gpus_left_by_moves(node)
        # A starting job may wait for GPUs that others leave; migrating jobs should not wait for each other.
        first = (
            set(rules.capacity.whole_gpus(node)) - left if left and job_class.role is ClassRole.MOVE else left
        )
        if rules.preemption_ranks.had_preemption(node) and not first:
            # Other free GPUs are open to every class, so those freed by preemption are taken first.
            first = rules.preemption_ranks.freed(node)
        return rules.choose_site(index, node, first)

    def find_later(self, index: int, node: int, span: Span) -> ReplicaSite | None:
        """A site for a replica of a class on a node in a span of slots; None if none is found."""
        shape = self._problem.classes[index].shape
        for timeline in self._feasibility.timelines:
            if not timeline.concerns(index):
                continue
            if (site := timeline.find(shape, node, *span)) is None:
                return None
            if all(each is timeline or each.fits(index, site, span) for each in self._fitting):
                return site
        return None

    def take(self, index: int, site: ReplicaSite) -> None:
        """Take exactly this site, which is free, from now until the end of the job."""
        self.reserve(index, site, self._from_now(index, site))

    def may_take(self, index: int, site: ReplicaSite) -> bool:
        """True if exactly this site is free for a class, now and until its end."""
        return self.may_reserve(index, site, self._from_now(index, site))

    def release(self, index: int, site: ReplicaSite) -> None:
        """Give a taken site back."""
        self.cancel(index, site, self._from_now(index, site))

    def _from_now(self, index: int, site: ReplicaSite) -> Span:
        rules = self._feasibility
        return (
            NOW if rules.timeline is None else (0, int(rules.timeline.ends(rules.tenants[index])[site.node]))
        )

    def reserve(self, index: int, site: ReplicaSite, span: Span) -> None:
        """Take a site for a replica of a class over a span of slots."""
        self._undo.step(self._take, (index, site, span, 1), (index, site, span, -1))

    def cancel(self, index: int, site: ReplicaSite, span: Span) -> None:
        """Give a site that is taken over a span back."""
        self._undo.step(self._take, (index, site, span, -1), (index, site, span, 1))

    def may_reserve(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """True if exactly this site is free for a class over a span of slots."""
        return all(each.fits(index, site, span) for each in self._fitting)

    # --- sites of running jobs -----------------------------------------------------------------------------

    def vacate(self, incumbent: int, site: ReplicaSite) -> None:
        """Remove a replica of a running job from its site."""
        self._undo.step(self._leave, (incumbent, site, 1), (incumbent, site, -1))

    def restore(self, incumbent: int, site: ReplicaSite) -> None:
        """Bring a replica of a running job back to its site, which is free."""
        self._undo.step(self._leave, (incumbent, site, -1), (incumbent, site, 1))

    def may_restore(self, incumbent: int, site: ReplicaSite) -> bool:
        """True if the old site of a running job's replica is free, now and until its end."""
        return all(fits(incumbent, site) for fits in self._fits_back)

    def may_preempt(self, incumbent: int, positions: frozenset[int]) -> bool:
        """True if a running job may be made to give up replicas, given the new jobs."""
        return all(may(incumbent, positions) for may in self._may_give_up)

    def count_preempted(self, index: int, positions: frozenset[int], times: int) -> None:
        """Count replicas that a running job is made to give up; `times` -1 restores them."""
        self._undo.step(self._give_up, (index, positions, times, False), (index, positions, -times, False))

    def count_moved(self, index: int, positions: frozenset[int], times: int) -> None:
        """Count replicas of a running job that leave to migrate; `times` -1 restores them."""
        self._undo.step(self._give_up, (index, positions, times, True), (index, positions, -times, True))

    def set_disruption(self, index: int, disruption: JobDisruption | None) -> None:
        """Set how a running job leaves its places, without these; None if it stays."""
        before = self._feasibility.disruptions[index]
        self._undo.step(self._disrupt, (index, before, disruption), (index, disruption, before))
