"""Sites: the places of replicas on nodes that a plan takes, reserves, or that running jobs leave."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.constraints.disruption_budgets import nodes_of

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.disruption_state import JobDisruption
    from gpuplan.solvers.state.feasibility import Feasibility
    from gpuplan.solvers.state.undo_log import UndoLog


class Sites:
    """Takes sites and gives them back on every constraint of the nodes; each call can be undone."""

    def __init__(self, problem: Problem, feasibility: Feasibility, undo: UndoLog) -> None:
        self._problem, self._feasibility, self._undo = problem, feasibility, undo
        self.numbers_on: dict[int, set[int]] = defaultdict(set)
        """Numbers of the jobs placed on each node."""

    # --- sites of new jobs, in slot 0 ----------------------------------------------------------------------

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

    def take(self, index: int, site: ReplicaSite) -> None:
        """Take exactly this site, which is free."""
        self._undo.step(self._enter, (index, site, 1), (index, site, -1))

    def may_take(self, index: int, site: ReplicaSite) -> bool:
        """True if exactly this site is free for a class, now and until its end."""
        rules, job_class = self._feasibility, self._problem.classes[index]
        shape, until = job_class.shape, int(rules.ends(rules.tenants[index])[site.node])
        free = rules.capacity.fits(shape, site)
        free = free and rules.freed.has_power(shape.quota_milli, site.node, job_class)
        free = free and rules.preemption_ranks.fits(rules.capacity, job_class, site)
        return free and (rules.timeline is None or rules.timeline.fits(shape, site, until))

    def release(self, index: int, site: ReplicaSite) -> None:
        """Give a taken site back."""
        self._undo.step(self._enter, (index, site, -1), (index, site, 1))

    def _enter(self, index: int, site: ReplicaSite, times: int) -> None:
        rules, job_class = self._feasibility, self._problem.classes[index]
        rules.capacity.charge(job_class.shape, site, times)
        rules.capacity.replicas[site.node] += times
        if rules.timeline is not None:
            until = int(rules.ends(rules.tenants[index])[site.node])
            rules.timeline.occupy(job_class.shape, site, until, times)
        if self._problem.incumbents:
            rules.preemption_ranks.count_placed(index, site, times)
            rules.freed.count_placed(job_class, site, times)

    # --- reservations in later slots -----------------------------------------------------------------------

    def find_later(self, index: int, node: int, span: Span) -> ReplicaSite | None:
        """A site for a replica of a class on a node in a span of slots; None if none is found."""
        timelines, shape = self._feasibility.timelines(index), self._problem.classes[index].shape
        if not all(each.has_power(shape.quota_milli, node, *span) for each in timelines):
            return None
        for timeline in timelines:
            if (site := timeline.find(shape, node, *span)) is None:
                return None
            if all(each is timeline or each.holds(shape, site, *span) for each in timelines):
                return site
        return None

    def reserve(self, index: int, site: ReplicaSite, span: Span) -> None:
        """Reserve a site for a replica of a class in a span of slots."""
        self._undo.step(self._reserve, (index, site, span, 1), (index, site, span, -1))

    def cancel(self, index: int, site: ReplicaSite, span: Span) -> None:
        """Give a reserved site back."""
        self._undo.step(self._reserve, (index, site, span, -1), (index, site, span, 1))

    def may_reserve(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """True if exactly this site is free for a class in a span of slots."""
        timelines, shape = self._feasibility.timelines(index), self._problem.classes[index].shape
        return bool(timelines) and all(
            each.holds(shape, site, *span) and each.has_power(shape.quota_milli, site.node, *span)
            for each in timelines
        )

    def _reserve(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        timeline, capacity = self._feasibility.timeline, self._feasibility.capacity
        for each in self._feasibility.timelines(index):
            each.reserve(self._problem.classes[index].shape, site, span, times)
        if timeline is not None:
            capacity.replicas[site.node] += times
            capacity.touch(site.node)
            for capped in timeline.capped:
                if site.node in capped:
                    capacity.touch(capped)

    # --- sites of running jobs -----------------------------------------------------------------------------

    def vacate(self, incumbent: int, site: ReplicaSite) -> None:
        """Remove a replica of a running job from its site."""
        self._undo.step(self._vacate, (incumbent, site, 1), (incumbent, site, -1))

    def restore(self, incumbent: int, site: ReplicaSite) -> None:
        """Bring a replica of a running job back to its site, which is free."""
        self._undo.step(self._vacate, (incumbent, site, -1), (incumbent, site, 1))

    def _vacate(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        rules, one = self._feasibility, self._problem.incumbents[incumbent]
        rules.capacity.charge(one.shape, site, -times)
        rules.capacity.replicas[site.node] -= times
        if rules.timeline is not None:
            rules.timeline.occupy(one.shape, site, one.until, -times)

    def may_restore(self, incumbent: int, site: ReplicaSite) -> bool:
        """True if the old site of a running job's replica is free, now and until its end."""
        rules, one = self._feasibility, self._problem.incumbents[incumbent]
        # Running jobs that draw more than a cap allows may continue while no new job is there.
        settled = not any(
            self.numbers_on[node]
            for cap in self._problem.power_caps
            if site.node in cap.nodes
            for node in cap.nodes
        )
        # The same holds on a node of which they ask for more than it has.
        overdrawn = self._problem.nodes[site.node].overdrawn and not self.numbers_on[site.node]
        if not rules.capacity.fits(one.shape, site, power=not settled, amounts=not overdrawn):
            return False
        if not settled and not rules.freed.has_power(one.shape.quota_milli, site.node, one):
            return False
        if not rules.preemption_ranks.fits(rules.capacity, one, site):
            return False
        if rules.timeline is None or not rules.timeline.reservations:
            return True
        return rules.timeline.fits(one.shape, site, one.until)

    def count_preempted(self, index: int, positions: frozenset[int], times: int) -> None:
        """Count replicas that a running job is made to give up; `times` -1 restores them."""
        for position in sorted(positions):
            self._undo.step(self._count_preempted, (index, position, times), (index, position, -times))
        freed = self._feasibility.freed
        self._undo.step(freed.preempt, (index, positions, times), (index, positions, -times))

    def _count_preempted(self, index: int, position: int, times: int) -> None:
        self._feasibility.preemption_ranks.preempt(index, position, times)
        self._touch_hold(index, position)

    def count_moved(self, index: int, positions: frozenset[int], times: int) -> None:
        """Count replicas of a running job that leave to migrate; `times` -1 restores them."""
        for position in sorted(positions):
            self._undo.step(self._count_moved, (index, position, times), (index, position, -times))
        freed = self._feasibility.freed
        self._undo.step(freed.move, (index, positions, times), (index, positions, -times))

    def _count_moved(self, index: int, position: int, times: int) -> None:
        self._feasibility.preemption_ranks.move(index, position, times)
        self._touch_hold(index, position)

    def _touch_hold(self, index: int, position: int) -> None:
        if (node := self._problem.incumbents[index].holds[position].node) is not None:
            self._feasibility.capacity.touch(node)

    def set_disruption(self, index: int, disruption: JobDisruption | None) -> None:
        """Set how a running job leaves its places, without these; None if it stays."""
        before = self._feasibility.disruptions[index]
        self._undo.step(self._set_disruption, (index, disruption), (index, before))

    def _set_disruption(self, index: int, disruption: JobDisruption | None) -> None:
        rules = self._feasibility
        standing = rules.disruptions.standing(index)
        for node in nodes_of(self._problem, rules.disruptions.set(index, disruption)):
            rules.capacity.touch(node)
        for traits, nodes in (*standing, *rules.disruptions.standing(index)):
            for concerned in rules.affinity.affected_nodes(traits, nodes):
                rules.capacity.touch(concerned)
