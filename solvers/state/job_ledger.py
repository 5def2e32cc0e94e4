"""
The jobs of a ledger: those placed or reserved on given sites, and the running jobs that leave.

It never takes more than is free: every rule holds after every call, which the verifier confirms.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import ClassRole, LocalityRule
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.assignment import JobAssignment
from gpuplan.solvers.state.capacity_ledger import CapacityLedger
from gpuplan.solvers.state.constraints.affinity import NO_AFFINITY, AffinityTraits
from gpuplan.solvers.state.constraints.disruption_budgets import nodes_of
from gpuplan.solvers.state.disruption_state import DisruptionKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import FutureAssignment, ReplicaSite
    from gpuplan.solvers.state.disruption_state import JobDisruption
    from gpuplan.solvers.state.node_scores import NodeScores

    Ints: TypeAlias = NDArray[np.int64]


class JobLedger(CapacityLedger):
    """Free capacity of every node and queue, the jobs placed so far, and the running jobs that leave."""

    def __init__(self, problem: Problem, params: PlacementParams = PlacementParams()) -> None:
        super().__init__(problem, params)
        self.placed: dict[int, JobAssignment] = {}
        """Newly placed jobs, by number."""
        self.on_node: dict[int, set[int]] = defaultdict(set)
        """Numbers of the jobs placed on each node."""
        self._left = [len(job_class.jobs) for job_class in problem.classes]
        self.in_bulk = [self._goes_in_bulk(index) for index in range(len(problem.classes))]
        """By class: True if all sites are equivalent for its jobs; many are then taken at once."""
        self._earned = 0
        self.served: dict[int, int] = defaultdict(int)
        """Points of jobs that start or grow, now or later, by priority."""
        self.current_priority: int | None = None
        """Jobs of lower priority than this may not be placed yet; None if all may."""
        self._next = 0

    # --- objective -----------------------------------------------------------------------------------------

    @property
    def objective(self) -> int:
        """Points of everything done so far, compared to changing nothing."""
        return (
            self._earned
            + self.pool_points
            + self.fates.points
            + self.quota.points
            + self.company.points
            + self.capacity.points
        )

    # --- placing -------------------------------------------------------------------------------------------

    def jobs_left(self, index: int, *, now: bool = True) -> int:
        """Jobs of a class that may still be placed or, without `now`, reserved."""
        job_class = self.problem.classes[index]
        if now and not job_class.startable:
            return 0
        if (
            self.current_priority is not None
            and job_class.priority < self.current_priority
            and not self._ignores_priority(index)
        ):
            return 0
        if job_class.role is ClassRole.START or not self._left[index] or job_class.incumbent is None:
            return self._left[index]
        fate = self.fates[job_class.incumbent]
        if job_class.role is ClassRole.GROW:
            return int(fate is None)
        leave = DisruptionKind.MOVE if job_class.role is ClassRole.MOVE else DisruptionKind.STOP
        return int(fate is not None and fate.leave is leave)

    def _ignores_priority(self, index: int) -> bool:
        """True if a class may come before its turn: its job has left its places, or a guarantee needs it."""
        job_class = self.problem.classes[index]
        if job_class.role.replaces_incumbent:
            return True
        model = job_class.options[0].gpu_model if job_class.options else None
        milli = job_class.shape.quota_milli
        return bool(self.problem.guarantees and milli and any(self.quota.owed(job_class.queue, model)))

    def is_placed(self, index: int) -> bool:
        """True if all jobs of a class are placed or reserved."""
        return not self._left[index]

    def settle(self, index: int, option: Option, sites: list[ReplicaSite], *, jobs: int) -> list[int]:
        """
        Form up to `jobs` jobs from taken sites, as large as these allow; give back what is left over.

        Returns the numbers of the jobs.
        """
        job_class = self.problem.classes[index]
        headroom = self.headroom(job_class, option, job_class.minimum)
        jobs = max(0, min(jobs, self.jobs_left(index), len(sites) // job_class.minimum, headroom))
        used = 0
        if jobs:
            used = jobs * job_class.minimum
            self._count(index, option, used)
            more = min(len(sites), jobs * job_class.most(option)) - used
            more = min(more, self.headroom(job_class, option, 1))
            self._count(index, option, more)
            used += more
        for site in sites[used:]:
            self.release_site(index, site)
        made, start = [], 0
        for position in range(jobs):
            size = used // jobs + (position < used % jobs)
            made.append(self.next_number())
            self.put(made[-1], JobAssignment(index, option, tuple(sites[start : start + size])))
            start += size
        return made

    def commit_at(self, index: int, option: Option, sites: tuple[ReplicaSite, ...]) -> int | None:
        """
        Place one job of a class on exactly these sites; its number, or None if it may not be there.

        After None the caller must roll back: some of the sites may have been taken.
        """
        job_class = self.problem.classes[index]
        nodes = np.array([site.node for site in sites], dtype=np.int64)
        if (
            self.headroom(job_class, option, len(sites)) < 1
            or not self.admits_now(self.tenants[index], nodes).all()
        ):
            return None
        for site in sites:
            if not self.may_take(index, site):
                return None
            self.take_site(index, site)
        self._count(index, option, len(sites))
        number = self.next_number()
        self.put(number, JobAssignment(index, option, sites))
        return number

    def add_sites(self, number: int, more: list[ReplicaSite]) -> None:
        """Add taken sites to a placed job that has quota for them."""
        placed = self.placed[number]
        self._count(placed.job_class, placed.option, len(more))
        larger = replace(placed, sites=(*placed.sites, *more))
        self.put(number, larger)

    def remove(self, number: int) -> None:
        """Take a placed job off its nodes."""
        placed = self.placed[number]
        self.put(number, None)
        self._count(placed.job_class, placed.option, -len(placed.sites))
        for site in placed.sites:
            self.release_site(placed.job_class, site)

    def remove_from_node(self, number: int, node: int) -> None:
        """Remove a placed job from one node: the replicas there, or the whole job if too few remain."""
        placed = self.placed[number]
        staying = tuple(site for site in placed.sites if site.node != node)
        if len(staying) < self.problem.classes[placed.job_class].minimum:
            self.remove(number)
            return
        self.put(number, replace(placed, sites=staying))
        self._count(placed.job_class, placed.option, len(staying) - len(placed.sites))
        for site in placed.sites:
            if site.node == node:
                self.release_site(placed.job_class, site)

    def take(self, index: int, board: NodeScores, count: int) -> list[ReplicaSite]:
        """Take up to `count` sites for replicas of a class, best fit first."""
        sites: list[ReplicaSite] = []
        while len(sites) < count and (node := board.best(self)) is not None:
            sites.append(self.take_site_on(index, node))
        return sites

    def take_site_on(self, index: int, node: int) -> ReplicaSite:
        """Take a site on a node that has room."""
        job_class = self.problem.classes[index]
        left = self.fates.gpus_left_by_moves(node)
        # A starting job may wait for GPUs that others leave; migrating jobs should not wait for each other.
        first = (
            set(self.capacity.whole_gpus(node)) - left if left and job_class.role is ClassRole.MOVE else left
        )
        if self.floors.had_preemption(node) and not first:
            # Other free GPUs are open to every class, so those freed by preemption are taken first.
            first = self.floors.freed(node)
        site = self.choose_site(index, node, first)
        self.take_site(index, site)
        return site

    def take_site(self, index: int, site: ReplicaSite) -> None:
        """Take exactly this site, which is free."""
        self.step(self._enter, (index, site, 1), (index, site, -1))

    def may_take(self, index: int, site: ReplicaSite) -> bool:
        """True if exactly this site is free for a class, now and until its end."""
        shape, until = self.problem.classes[index].shape, int(self.ends(self.tenants[index])[site.node])
        free = self.capacity.fits(shape, site)
        job_class = self.problem.classes[index]
        free = free and self.freed.has_power(shape.quota_milli, site.node, job_class)
        free = free and self.floors.fits(self.capacity, job_class, site)
        return free and (self.timeline is None or self.timeline.fits(shape, site, until))

    def release_site(self, index: int, site: ReplicaSite) -> None:
        """Give a taken site back."""
        self.step(self._enter, (index, site, -1), (index, site, 1))

    def _enter(self, index: int, site: ReplicaSite, times: int) -> None:
        self.capacity.charge(self.problem.classes[index].shape, site, times)
        self.replica_counts[site.node] += times
        if self.timeline is not None:
            until = int(self.ends(self.tenants[index])[site.node])
            self.timeline.occupy(self.problem.classes[index].shape, site, until, times)
        if self.problem.incumbents:
            self.floors.count_placed(index, site, times)
            self.freed.count_placed(self.problem.classes[index], site, times)

    def _count(self, index: int, option: Option, replicas: int) -> None:
        job_class = self.problem.classes[index]
        if milli := job_class.shape.quota_milli * replicas:
            arguments = job_class.queue, option.gpu_model
            change = partial(self.quota.change, new=job_class.role is not ClassRole.MOVE)
            self.step(change, (*arguments, milli), (*arguments, -milli))
            if self.problem.incumbents:
                self.step(self.freed.count, (job_class, option, milli), (job_class, option, -milli))
            if self.future_quota is not None:
                span, new = (1, option.ends[0]), job_class.role is not ClassRole.MOVE
                self.step(
                    self.charge_future_quota, (*arguments, milli, span, new), (*arguments, -milli, span, new)
                )

    def next_number(self) -> int:
        """A new number for one more job placed or reserved."""
        self._next += 1
        return self._next - 1

    def put(self, number: int, placed: JobAssignment | None) -> None:
        """Set the job of a number, change it, or remove it (None); its sites are taken already."""
        self.step(self._put, (number, placed), (number, self.placed.get(number)))

    def _put(self, number: int, placed: JobAssignment | None) -> None:
        if (old := self.placed.pop(number, None)) is not None:
            self._account(old, -1)
            for site in old.sites:
                self.on_node[site.node].discard(number)
        if placed is not None:
            self.placed[number] = placed
            self._account(placed, 1)
            for site in placed.sites:
                self.on_node[site.node].add(number)

    def _account(self, placed: JobAssignment, times: int) -> None:
        self._earned += times * self.worth(placed)
        self._count_points(placed.job_class, times * self._points(placed))
        self._left[placed.job_class] -= times
        self.begin(placed.job_class, 0, placed.option, times)
        tenant = self.tenants[placed.job_class]
        if tenant.affinity == NO_AFFINITY:
            return
        nodes = frozenset(site.node for site in placed.sites)
        self.company.count_new(tenant.affinity, nodes, times)
        if tenant.own is not None:  # it is counted already on its current nodes
            nodes -= self.fates.nodes(tenant.own)
        self.company.count(tenant.affinity, nodes, times)
        for concerned in self.company.affected_nodes(tenant.affinity, nodes):
            self.capacity.touch(concerned)

    def _points(self, placed: JobAssignment) -> int:
        return self.problem.classes[placed.job_class].points(placed.option, len(placed.sites))

    def _count_points(self, index: int, points: int) -> None:
        job_class = self.problem.classes[index]
        if not job_class.role.replaces_incumbent:
            self.served[job_class.priority] += points

    @property
    def meets_priority_floors(self) -> bool:
        """True if the classes of each priority earn at least its floor."""
        return all(self.served[priority] >= floor for priority, floor in self.problem.floors)

    def worth(self, placed: JobAssignment) -> int:
        """Points of a job on its new sites, as far as they are its own."""
        job_class = self.problem.classes[placed.job_class]
        points = self._points(placed)
        if job_class.node_points:
            by_node = self.node_points[job_class.node_points]
            points += sum(int(by_node[site.node]) for site in placed.sites)
        if job_class.together.preferred is not None and job_class.role is not ClassRole.GROW:
            of = self.domains.of(job_class.together.preferred)
            spanned = len({int(of[site.node]) for site in placed.sites})
            points -= self.problem.charges.domain * (spanned - 1)
        return points

    def _goes_in_bulk(self, index: int) -> bool:
        job_class, tenant = self.problem.classes[index], self.tenants[index]
        alike = job_class.together == LocalityRule() and tenant.affinity == NO_AFFINITY
        return alike and job_class.role is ClassRole.START and not self.is_priced(tenant)

    # --- future reservations -------------------------------------------------------------------------------

    def set_reservation(self, number: int, booked: FutureAssignment | None) -> None:
        """Set or remove (None) the reservation of a number; its sites are reserved already."""
        if (old := self.booked.pop(number, None)) is not None:
            self._account_reservation(old, -1)
        if booked is not None:
            self.booked[number] = booked
            self._account_reservation(booked, 1)

    def traits_before_start(self, index: int) -> AffinityTraits:
        """Affinity attributes of a job before it runs, without its workload: interference is priced later."""
        manners = self.tenants[index].affinity
        return AffinityTraits("", manners.carries, manners.avoids)

    def _account_reservation(self, booked: FutureAssignment, times: int) -> None:
        option = self.problem.classes[booked.job_class].options[booked.option]
        self._earned += times * (option.later[booked.slot] or 0)
        self._count_points(booked.job_class, times * (option.later[booked.slot] or 0))
        self._left[booked.job_class] -= times
        self.begin(booked.job_class, booked.slot, option, times)
        manners = self.traits_before_start(booked.job_class)
        if manners != NO_AFFINITY:
            nodes = frozenset(site.node for site in booked.sites)
            self.company.count_new(manners, nodes, times)
            self.company.count(manners, nodes, times)
            for concerned in self.company.affected_nodes(manners, nodes):
                self.capacity.touch(concerned)

    # --- running jobs --------------------------------------------------------------------------------------

    def vacate_site(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        """Remove a replica of a running job from its site; `times` -1 restores it."""
        self.step(self._vacate_site, (incumbent, site, times), (incumbent, site, -times))

    def _vacate_site(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        shape = self.problem.incumbents[incumbent].shape
        self.capacity.charge(shape, site, -times)
        self.replica_counts[site.node] -= times
        if self.timeline is not None:
            self.timeline.occupy(shape, site, self.problem.incumbents[incumbent].until, -times)

    def old_site_is_free(self, incumbent: int, site: ReplicaSite) -> bool:
        """True if the old site of a running job's replica is free, now and until its end."""
        one = self.problem.incumbents[incumbent]
        # Running jobs that draw more than a cap allows may continue while no new job is there.
        settled = not any(
            self.on_node[node]
            for cap in self.problem.power_caps
            if site.node in cap.nodes
            for node in cap.nodes
        )
        # The same holds on a node of which they ask for more than it has.
        overdrawn = self.problem.nodes[site.node].overdrawn and not self.on_node[site.node]
        if not self.capacity.fits(one.shape, site, power=not settled, amounts=not overdrawn):
            return False
        if not settled and not self.freed.has_power(one.shape.quota_milli, site.node, one):
            return False
        if not self.floors.fits(self.capacity, one, site):
            return False
        if self.timeline is None or not self.timeline.bookings:
            return True
        return self.timeline.fits(one.shape, site, one.until)

    def return_headroom(self, incumbent: int) -> int:
        """Thousandths of GPUs with which a running job may return, now and until its end."""
        one = self.problem.incumbents[incumbent]
        room = self.quota.room(one.queue, one.gpu_model, known=True)
        room = min(room, self.freed.room(one.queue, one.gpu_model, one, known=True))
        if self.future_quota is None or not self.booked:
            return room
        return min(room, self.future_quota.room(one.queue, one.gpu_model, (1, one.until), known=True))

    def charge_incumbent(self, incumbent: int, replicas: int) -> None:
        """Count replicas of a running job at its queues; negative ones are removed."""
        one = self.problem.incumbents[incumbent]
        if milli := one.shape.quota_milli * replicas:
            arguments = one.queue, one.gpu_model
            self.step(self.quota.change, (*arguments, milli), (*arguments, -milli))
            if self.future_quota is not None:
                span = 1, one.until
                self.step(self.charge_future_quota, (*arguments, milli, span), (*arguments, -milli, span))

    def count_preempted(self, index: int, position: int, times: int) -> None:
        """Count a replica that a running job is made to give up; `times` -1 restores it."""
        self.floors.preempt(index, position, times)
        self._touch_hold(index, position)

    def count_moved(self, index: int, position: int, times: int) -> None:
        """Count a replica of a running job that leaves to migrate; `times` -1 restores it."""
        self.floors.move(index, position, times)
        self._touch_hold(index, position)

    def _touch_hold(self, index: int, position: int) -> None:
        if (node := self.problem.incumbents[index].holds[position].node) is not None:
            self.capacity.touch(node)

    def set_disruption(self, index: int, fate: JobDisruption | None) -> None:
        """Set the fate of a running job without its places; `heuristics.vacate` does what else that means."""
        minded = self.fates.standing(index)
        for node in nodes_of(self.problem, self.fates.set(index, fate)):
            self.capacity.touch(node)
        for manners, nodes in (*minded, *self.fates.standing(index)):
            for concerned in self.company.affected_nodes(manners, nodes):
                self.capacity.touch(concerned)
