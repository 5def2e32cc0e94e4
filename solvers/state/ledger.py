"""
Ledger: a plan under construction on nodes.

It is made of constraints, which it holds in one tuple (`constraints`): those about nodes (`feasibility`),
quotas of queues, pools, and starts for which others wait. Sites are taken and given back on all of them
(`sites`), in steps that can be undone (`undo`). The ledger itself keeps the jobs, and what they earn. It
never takes more than is free: every rule holds after every call, which the verifier confirms.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.problem.jobs import ClassRole, LocalityRule
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.assignment import FutureAssignment, JobAssignment, firm_assignment
from gpuplan.solvers.state.constraints.constraint import Places, Shortage, overriding, together
from gpuplan.solvers.state.constraints.pools import NodePools
from gpuplan.solvers.state.constraints.predecessors import PlannedStarts
from gpuplan.solvers.state.constraints.queue_quotas import QueueQuotas
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.feasibility import Feasibility
from gpuplan.solvers.state.feasible_nodes_cache import FeasibleNodesCache
from gpuplan.solvers.state.node_scores import NodeScores
from gpuplan.solvers.state.placement_profile import NO_AFFINITY, interned
from gpuplan.solvers.state.sites import Sites
from gpuplan.solvers.state.undo_log import UndoLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite

    Ints: TypeAlias = NDArray[np.int64]


class Ledger:
    """The jobs placed and reserved so far, under constraints."""

    def __init__(self, problem: Problem, params: PlacementParams = PlacementParams()) -> None:
        self.problem, self.params = problem, params
        self.undo = UndoLog()
        self.feasibility = rules = Feasibility(problem, params)
        self.capacity, self.timeline, self.domains = rules.capacity, rules.timeline, rules.domains
        self.disruptions, self.preemption_ranks = rules.disruptions, rules.preemption_ranks
        self.affinity, self.tenants, self.group_of = rules.affinity, rules.tenants, rules.group_of
        self.queues = QueueQuotas(problem, rules.victims, rules.timeline, params.preemption.few_victim_sets)
        self.pools = NodePools(problem, rules.capacity, rules.preemption_ranks, self.undo)
        self.starts = PlannedStarts(problem)
        self.constraints = (self.starts, self.queues, *rules.constraints, self.pools)
        """All rules that concern this problem, the most severe shortages first."""
        self._priced = overriding(self.constraints, "points")
        self._lacking = overriding(self.constraints, "shortage")
        self._count_job = together(self.constraints, "count_job")
        self.sites = Sites(problem, rules, self.constraints, self.undo)
        self.feasible_nodes = (
            FeasibleNodesCache(problem, rules.timeline, rules.undisturbed, params.ledger.max_feasible_nodes)
            if rules.timeline is not None
            else None
        )
        self.placed: dict[int, JobAssignment] = {}
        """Newly placed jobs, by number."""
        self.numbers_of: list[set[int]] = [set() for _ in problem.classes]
        """Numbers of the placed jobs of each class."""
        self.reserved: dict[int, FutureAssignment] = {}
        """Reserved later starts, by number."""
        self.shared: dict[type, object] = {}
        """What searches for trades share and keep up to date with the ledger, by its class."""
        self.in_bulk = [self._goes_in_bulk(index) for index in range(len(problem.classes))]
        """By class: True if all sites are equivalent for its jobs; many are then taken at once."""
        self.served: dict[int, int] = defaultdict(int)
        """Points of jobs that start or grow, now or later, by priority."""
        self.current_priority: int | None = None
        """Jobs of lower priority than this may not be placed yet; None if all may."""
        self._left = [len(job_class.jobs) for job_class in problem.classes]
        self._earned = 0
        self._next = 0
        self.endless = interned(replace(tenant, ends=()) for tenant in self.tenants)
        """The tenants by class, however long their jobs run."""
        self._boards: OrderedDict[tuple[int, tuple[int, ...]], NodeScores] = OrderedDict()
        """By identity of a tenant, and the groups of an option."""
        self._reserve_firm()

    def _reserve_firm(self) -> None:
        """Begin with the firm reservations of the problem; those of slot 0 are started later."""
        for firm in self.problem.firm_reservations:
            if firm.slot > 0:
                self.reserve_at(firm_assignment(self.problem, firm))
        self.undo.clear()

    @cached_property
    def alike(self) -> list[int]:
        """By class, a number that it shares with all classes that find room in the same places."""
        known: dict[tuple[object, ...], int] = {}
        keys = (
            (
                id(tenant),
                each.minimum,
                each.together,
                each.queue,
                tuple(option.groups for option in each.options),
            )
            for tenant, each in zip(self.tenants, self.problem.classes, strict=True)
        )
        return [known.setdefault(key, len(known)) for key in keys]

    # --- objective -----------------------------------------------------------------------------------------

    @property
    def objective(self) -> int:
        """Points of everything done so far, compared to changing nothing."""
        return self._earned + sum(each.points for each in self._priced)

    # --- placing -------------------------------------------------------------------------------------------

    def jobs_left(self, index: int, *, now: bool = True) -> int:
        """Jobs of a class that may still be placed or, without `now`, reserved."""
        job_class, left = self.problem.classes[index], self._left[index]
        if not left or (now and not job_class.startable):
            return 0
        if (
            self.current_priority is not None
            and job_class.priority < self.current_priority
            and not self._ignores_priority(index)
        ):
            return 0
        if job_class.role is ClassRole.START or job_class.incumbent is None:
            return left
        disruption = self.disruptions[job_class.incumbent]
        if job_class.role is ClassRole.GROW:
            return int(disruption is None)
        leave = DisruptionKind.MOVE if job_class.role is ClassRole.MOVE else DisruptionKind.STOP
        return int(disruption is not None and disruption.kind is leave)

    def shortage(self, index: int) -> Shortage | None:
        """
        Why no more job of a class fits now, at its minimum, beside all that is placed; None if one does.

        It is the most severe one of the constraints, on the options that come closest. Beside reserved later
        starts only one share, or one set of MIG instances, counts on a node.
        """
        job_class, found = self.problem.classes[index], list[Shortage]()
        anywhere = Places(job_class, self.tenants[index], job_class.options, self._staying_nodes)
        if (not_yet := self.starts.shortage(anywhere)) is not None:
            return not_yet
        suited = [each for each in job_class.options if self._suits(job_class.shape, each)]
        # A gang has one GPU model; the options of a single replica are one choice.
        sets = [[each] for each in suited] if job_class.minimum > 1 else [suited] if suited else []
        for options in sets:
            shortage = self._shortage(index, options)
            if shortage is None:
                return None
            found.append(shortage)
        return max(found, key=_closeness, default=Shortage(ReasonCode.NO_MATCHING_NODE, {}))

    def _suits(self, shape: Shape, option: Option) -> bool:
        """True if a node of an option has as many GPUs as a replica needs, free or not."""
        nodes = self._staying_nodes(option).tolist()
        return any(len(self.problem.nodes[node].gpus) >= shape.gpus for node in nodes)

    def _shortage(self, index: int, options: list[Option]) -> Shortage | None:
        places = Places(self.problem.classes[index], self.tenants[index], options, self._staying_nodes)
        least: Shortage | None = None
        for each in self._lacking:
            if (found := each.shortage(places)) is not None and found.code is not ReasonCode.NOT_CHOSEN:
                return found
            least = least or found
        if least is None and not places.limit(self.feasibility.room(index, places.nodes, places.replicas)):
            # What is free now is promised to later starts, or freed by preemption for others.
            return Shortage(ReasonCode.NOT_CHOSEN, {"found": places.count()})
        return least

    def _staying_nodes(self, option: Option) -> Ints:
        """Nodes of an option that the plan does not close."""
        nodes = self.feasibility.nodes_of(option)
        return nodes[~np.isin(nodes, list(self.pools.closed))]

    def _ignores_priority(self, index: int) -> bool:
        """True if a class may come before its turn: its job has left its places, or a guarantee needs it."""
        job_class = self.problem.classes[index]
        if job_class.role.replaces_incumbent:
            return True
        if not self.queues.quota.unmet or not job_class.shape.quota_milli:
            return False
        model = job_class.options[0].gpu_model if job_class.options else None
        return bool(self.queues.quota.owed(job_class.queue, model))

    def is_placed(self, index: int) -> bool:
        """True if all jobs of a class are placed or reserved."""
        return not self._left[index]

    def settle(self, index: int, option: Option, sites: list[ReplicaSite], *, jobs: int) -> list[int]:
        """
        Form up to `jobs` jobs from taken sites, as large as these allow; give back what is left over.

        Returns the numbers of the jobs.
        """
        job_class = self.problem.classes[index]
        headroom = self.queues.headroom(job_class, option, job_class.minimum)
        jobs = max(0, min(jobs, self.jobs_left(index), len(sites) // job_class.minimum, headroom))
        used = 0
        if jobs:
            # The queue has room for the smallest jobs, and so for at least as many single replicas.
            most = min(len(sites), jobs * job_class.most(option))
            used = min(most, self.queues.headroom(job_class, option, 1))
        for site in sites[used:]:
            self.sites.release(index, site)
        made, start = [], 0
        for position in range(jobs):
            size = used // jobs + (position < used % jobs)
            made.append(self._next_number())
            self.put(made[-1], JobAssignment(index, option, tuple(sites[start : start + size])))
            start += size
        return made

    def settle_single(self, index: int, option: Option, site: ReplicaSite) -> None:
        """Form a job of one replica from a taken site; there is one left, and quota for it."""
        self.put(self._next_number(), JobAssignment(index, option, (site,)))

    def commit_at(self, index: int, option: Option, sites: tuple[ReplicaSite, ...]) -> int | None:
        """Place one job of a class on exactly these sites; its number, or None if it may not be there."""
        job_class = self.problem.classes[index]
        nodes = np.array([site.node for site in sites], dtype=np.int64)
        if (
            self.queues.headroom(job_class, option, len(sites)) < 1
            or not self.feasibility.admits_now(self.tenants[index], nodes).all()
        ):
            return None
        mark = self.undo.mark()
        for site in sites:
            if not self.sites.may_take(index, site):
                self.undo.rollback(mark)
                return None
            self.sites.take(index, site)
        number = self._next_number()
        self.put(number, JobAssignment(index, option, sites))
        return number

    def add_sites(self, number: int, more: list[ReplicaSite]) -> None:
        """Add taken sites to a placed job that has quota for them."""
        placed = self.placed[number]
        self.put(number, replace(placed, sites=(*placed.sites, *more)))

    def remove(self, number: int) -> None:
        """Take a placed job off its nodes."""
        placed = self.placed[number]
        self.put(number, None)
        for site in placed.sites:
            self.sites.release(placed.job_class, site)

    def remove_from_node(self, number: int, node: int) -> None:
        """Remove a placed job from one node: the replicas there, or the whole job if too few remain."""
        placed = self.placed[number]
        staying = tuple(site for site in placed.sites if site.node != node)
        if len(staying) < self.problem.classes[placed.job_class].minimum:
            self.remove(number)
            return
        self.put(number, replace(placed, sites=staying))
        for site in placed.sites:
            if site.node == node:
                self.sites.release(placed.job_class, site)

    def take(self, index: int, board: NodeScores, count: int) -> list[ReplicaSite]:
        """Take up to `count` sites for replicas of a class, best fit first."""
        sites: list[ReplicaSite] = []
        while len(sites) < count and (node := board.best(self.feasibility)) is not None:
            sites.append(self.take_site_on(index, node))
        return sites

    def take_site_on(self, index: int, node: int) -> ReplicaSite:
        """Take a site on a node that has room."""
        site = self.sites.find(index, node)
        self.sites.take(index, site)
        return site

    def node_scores(self, index: int, option: Option, nodes: Ints | None = None) -> NodeScores:
        """Costs of one more replica of a class on the nodes of an option; recently used boards are kept."""
        # How long a job runs makes a difference only beside reservations.
        reserved = self.timeline is not None and self.timeline.reservations
        tenant = self.tenants[index] if reserved else self.endless[index]
        if nodes is not None:
            return NodeScores(self.feasibility, tenant, self.feasibility.nodes_within(option, nodes))
        key = id(tenant), option.groups
        if (board := self._boards.get(key)) is None:
            board = self._boards[key] = NodeScores(
                self.feasibility, tenant, self.feasibility.nodes_of(option)
            )
            if len(self._boards) > self.params.ledger.max_node_scores:
                self._boards.popitem(last=False)
        self._boards.move_to_end(key)
        return board

    def _next_number(self) -> int:
        """A new number for one more job placed or reserved."""
        self._next += 1
        return self._next - 1

    def put(self, number: int, placed: JobAssignment | None) -> None:
        """Set the job of a number, change it, or remove it (None); its sites are taken already."""
        self.undo.step(self._put, (number, placed), (number, self.placed.get(number)))

    def _put(self, number: int, placed: JobAssignment | None) -> None:
        if (old := self.placed.pop(number, None)) is not None:
            self._account(old, -1)
            self.numbers_of[old.job_class].discard(number)
            for site in old.sites:
                self.sites.numbers_on[site.node].discard(number)
        if placed is not None:
            self.placed[number] = placed
            self._account(placed, 1)
            self.numbers_of[placed.job_class].add(number)
            for site in placed.sites:
                self.sites.numbers_on[site.node].add(number)

    def _account(self, placed: JobAssignment, times: int) -> None:
        points = self._points(placed)
        self._earned += times * self._worth(placed, points)
        self._count_points(placed.job_class, times * points)
        self._left[placed.job_class] -= times
        self._count_job(placed.job_class, placed.option, placed.sites, 0, times)

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
        return self._worth(placed, self._points(placed))

    def _worth(self, placed: JobAssignment, points: int) -> int:
        """The same, with the points that it has wherever it is."""
        job_class = self.problem.classes[placed.job_class]
        if job_class.node_points:
            by_node = self.feasibility.node_points[job_class.node_points]
            points += sum(int(by_node[site.node]) for site in placed.sites)
        if job_class.together.preferred is not None and job_class.role is not ClassRole.GROW:
            of = self.domains.of(job_class.together.preferred)
            spanned = len({int(of[site.node]) for site in placed.sites})
            points -= self.problem.charges.domain * (spanned - 1)
        return points

    def _goes_in_bulk(self, index: int) -> bool:
        job_class, tenant = self.problem.classes[index], self.tenants[index]
        alike = job_class.together == LocalityRule() and tenant.affinity == NO_AFFINITY
        return alike and job_class.role is ClassRole.START and not self.feasibility.is_priced(tenant)

    # --- future reservations -------------------------------------------------------------------------------

    def may_reserve(self, index: int, position: int, slot: int) -> bool:
        """True if only room, locality or anti-affinity can still forbid a reservation."""
        job_class = self.problem.classes[index]
        starts_later = job_class.role in (ClassRole.START, ClassRole.RESUME)
        if self.timeline is None or not 0 < slot < self.problem.slots or not starts_later:
            return False
        option = job_class.options[position]
        if slot < job_class.earliest or option.later[slot] is None or not self.jobs_left(index, now=False):
            return False
        ready = self.starts.ready(index)
        if ready is None or ready > slot:
            return False
        span = slot, option.ends[slot]
        return self.queues.future_headroom(job_class, option, job_class.minimum, span) > 0

    def reserve_at(self, reservation: FutureAssignment) -> int | None:
        """Reserve the start of one job on exactly these sites; its number, or None if that cannot be."""
        index, position, slot = reservation.job_class, reservation.option, reservation.slot
        if not self.may_reserve(index, position, slot):
            return None
        job_class, sites = self.problem.classes[index], reservation.sites
        option = job_class.options[position]
        span, groups = (slot, option.ends[slot]), set(option.later_groups[slot])
        nodes = np.array([site.node for site in sites], dtype=np.int64)
        if len(sites) != job_class.minimum or not all(
            self.group_of[node] in groups for node in nodes.tolist()
        ):
            return None
        if not self.feasibility.admits_later(index, nodes).all():
            return None
        if not self.domains.satisfies(job_class.together, sites):
            return None
        mark = self.undo.mark()
        for site in sites:
            if not self.sites.may_reserve(index, site, span):
                self.undo.rollback(mark)
                return None
            self.sites.reserve(index, site, span)
        return self.record(reservation)

    def record(self, reservation: FutureAssignment) -> int:
        """Record a reservation of which the sites are reserved already; its number."""
        number = self._next_number()
        self.undo.step(self._set_reservation, (number, reservation), (number, None))
        return number

    def cancel_reservation(self, number: int) -> None:
        """Cancel a reservation."""
        reservation = self.reserved[number]
        option = self.problem.classes[reservation.job_class].options[reservation.option]
        self.undo.step(self._set_reservation, (number, None), (number, reservation))
        for site in reservation.sites:
            self.sites.cancel(reservation.job_class, site, (reservation.slot, option.ends[reservation.slot]))

    def _set_reservation(self, number: int, reserved: FutureAssignment | None) -> None:
        """Set or remove (None) the reservation of a number; its sites are reserved already."""
        if (old := self.reserved.pop(number, None)) is not None:
            self._account_reservation(old, -1)
        if reserved is not None:
            self.reserved[number] = reserved
            self._account_reservation(reserved, 1)

    def _account_reservation(self, reserved: FutureAssignment, times: int) -> None:
        option = self.problem.classes[reserved.job_class].options[reserved.option]
        self._earned += times * (option.later[reserved.slot] or 0)
        self._count_points(reserved.job_class, times * (option.later[reserved.slot] or 0))
        self._left[reserved.job_class] -= times
        self._count_job(reserved.job_class, option, reserved.sites, reserved.slot, times)


_SEVERITY: Final = tuple(ReasonCode)
_LITTLE_FREE: Final = frozenset({ReasonCode.RESOURCES, ReasonCode.FRAGMENTED, ReasonCode.LAYOUT_BLOCKED})


def _closeness(shortage: Shortage) -> tuple[int, int, int]:
    """How close a job comes to a place: by what it passes, then by the replicas that find room."""
    stage = ReasonCode.RESOURCES if shortage.code in _LITTLE_FREE else shortage.code
    found = shortage.numbers.get("found", 0)
    return _SEVERITY.index(stage), int(found), _SEVERITY.index(shortage.code)
