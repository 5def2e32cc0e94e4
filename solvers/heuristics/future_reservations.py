"""
Reserve resources for the start of a job in a later slot, and release them.

Anti-affinity is conservative: every job that runs on a node now, or has a reservation there, counts as
present in all slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.assignment import FutureAssignment, ReplicaSite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Level
    from gpuplan.solvers.state.feasible_nodes_cache import FeasibleNodes
    from gpuplan.solvers.state.job_ledger import JobLedger

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


def reserve_start(
    ledger: JobLedger, index: int, position: int, slot: int, nodes: Ints | None = None
) -> int | None:
    """
    Reserve the start of one job on the option at a position, in exactly this slot, by best fit.

    `nodes` restricts the choice. Returns the number of the reservation; None if there is no room or no quota,
    or if the predecessors of the job come too late.
    """
    job_class = ledger.problem.classes[index]
    if ledger.feasible_nodes is None or not may_reserve(ledger, index, position, slot):
        return None
    option = job_class.options[position]
    span = slot, option.ends[slot]
    lookout = ledger.feasible_nodes.of((job_class.shape, option.later_groups[slot], *span))
    room = np.where(_usable_nodes(ledger, index, lookout.nodes, nodes), lookout.room, 0)
    mark = ledger.mark()
    for near in _candidate_domains(ledger, index, lookout, room):
        sites = _take(ledger, index, span, lookout, near, room)
        if len(sites) == job_class.minimum:
            return _record(ledger, FutureAssignment(index, position, slot, tuple(sites)))
        ledger.rollback(mark)
    return None


def reserve_start_at(
    ledger: JobLedger, index: int, position: int, slot: int, sites: tuple[ReplicaSite, ...]
) -> int | None:
    """Reserve the start of one job on exactly these sites; None if that is not possible."""
    if not may_reserve(ledger, index, position, slot):
        return None
    job_class = ledger.problem.classes[index]
    option = job_class.options[position]
    span, groups = (slot, option.ends[slot]), set(option.later_groups[slot])
    nodes = np.array([site.node for site in sites], dtype=np.int64)
    if len(sites) != job_class.minimum or not all(ledger.group_of[node] in groups for node in nodes.tolist()):
        return None
    if not _usable_nodes(ledger, index, nodes, None).all() or not satisfies_locality(ledger, index, sites):
        return None
    mark = ledger.mark()
    for site in sites:
        if not _fits(ledger, index, site, span):
            ledger.rollback(mark)
            return None
        _reserve(ledger, index, site, span, 1)
    return _record(ledger, FutureAssignment(index, position, slot, sites))


def cancel_reservation(ledger: JobLedger, number: int) -> None:
    """Cancel a reservation."""
    booked = ledger.booked[number]
    job_class = ledger.problem.classes[booked.job_class]
    span = booked.slot, job_class.options[booked.option].ends[booked.slot]
    ledger.step(ledger.set_reservation, (number, None), (number, booked))
    _charge_quota(ledger, booked, -1)
    for site in booked.sites:
        _reserve(ledger, booked.job_class, site, span, -1)


def may_reserve(ledger: JobLedger, index: int, position: int, slot: int) -> bool:
    """True if only room, locality or anti-affinity can still forbid a reservation."""
    job_class = ledger.problem.classes[index]
    starts_later = job_class.role in (ClassRole.START, ClassRole.RESUME)
    if ledger.feasible_nodes is None or not 0 < slot < ledger.problem.slots or not starts_later:
        return False
    option = job_class.options[position]
    if slot < job_class.earliest or option.later[slot] is None or not ledger.jobs_left(index, now=False):
        return False
    ready = ledger.ready(index)
    if ready is None or ready > slot:
        return False
    span = slot, option.ends[slot]
    return ledger.future_headroom(job_class, option, job_class.minimum, span) > 0


def _usable_nodes(ledger: JobLedger, index: int, nodes: Ints, within: Ints | None) -> Bools:
    """True for each of the nodes that exists and where anti-affinity allows the job."""
    allowed: Bools = ledger.capacity.usable[nodes].copy()
    if within is not None:
        allowed &= np.isin(nodes, within)
    barred = ledger.company.conflicting_nodes(ledger.traits_before_start(index), [])
    return allowed if barred is None else allowed & ~barred[nodes]


def _candidate_domains(
    ledger: JobLedger, index: int, lookout: FeasibleNodes, room: Ints
) -> Iterator[Bools | None]:
    """Nodes for all replicas of one job: everywhere (None), or one domain after the other, tightest first."""
    job_class = ledger.problem.classes[index]
    rules = job_class.together
    if not room.any():
        return
    if rules.required is None:
        yield None
        return
    of = ledger.domains.of(rules.required)[lookout.nodes]
    totals = np.bincount(of, weights=np.minimum(room, job_class.minimum))
    tightness = np.zeros(len(totals), dtype=np.int64)
    np.add.at(tightness, of, lookout.tightness)
    large = np.flatnonzero(totals >= job_class.minimum)
    for domain in large[np.argsort(tightness[large], kind="stable")].tolist():
        near: Bools = of == domain
        yield near


def _take(
    ledger: JobLedger,
    index: int,
    span: tuple[int, int],
    lookout: FeasibleNodes,
    near: Bools | None,
    room: Ints,
) -> list[ReplicaSite]:
    """Reserve sites for one job, tightest nodes first; fewer than it needs if there is no room."""
    job_class, sites = ledger.problem.classes[index], list[ReplicaSite]()
    fitting = np.flatnonzero(room if near is None else np.where(near, room, 0))
    tightness = lookout.tightness[fitting]
    spread: Level | None = job_class.together.spread
    in_domain: dict[int, int] = {}
    tried = 0
    while len(sites) < job_class.minimum and tried < len(fitting):
        # Most jobs have few replicas: sorting pays only for gangs.
        if tried == 0:
            position = int(fitting[tightness.argmin()])
        else:
            if tried == 1:
                fitting = fitting[np.argsort(tightness, kind="stable")]
            position = int(fitting[tried])
        node = int(lookout.nodes[position])
        domain = -1 if spread is None else int(ledger.domains.of(spread)[node])
        most = job_class.minimum if spread is None else job_class.together.most - in_domain.get(domain, 0)
        got = _take_here(ledger, index, span, node, min(most, job_class.minimum - len(sites)))
        if not got and most > 0:
            lookout.shut(position)
        in_domain[domain] = in_domain.get(domain, 0) + len(got)
        sites += got
        tried += 1
    return sites


def _take_here(
    ledger: JobLedger, index: int, span: tuple[int, int], node: int, most: int
) -> list[ReplicaSite]:
    timetable, shape = ledger.timeline, ledger.problem.classes[index].shape
    sites = list[ReplicaSite]()
    while timetable is not None and len(sites) < most:
        site = timetable.find(shape, node, *span)
        if site is None or not timetable.has_power(shape.quota_milli, node, *span):
            break
        _reserve(ledger, index, site, span, 1)
        sites.append(site)
    return sites


def _fits(ledger: JobLedger, index: int, site: ReplicaSite, span: tuple[int, int]) -> bool:
    timetable, shape = ledger.timeline, ledger.problem.classes[index].shape
    return (
        timetable is not None
        and timetable.holds(shape, site, *span)
        and timetable.has_power(shape.quota_milli, site.node, *span)
    )


def satisfies_locality(ledger: JobLedger, index: int, sites: tuple[ReplicaSite, ...]) -> bool:
    """True if the sites of one job are in one domain of the required level and within its spread limit."""
    rules = ledger.problem.classes[index].together
    if rules.required is not None:
        of = ledger.domains.of(rules.required)
        if len({int(of[site.node]) for site in sites}) > 1:
            return False
    if rules.spread is not None:
        of = ledger.domains.of(rules.spread)
        domains = [int(of[site.node]) for site in sites]
        return all(domains.count(domain) <= rules.most for domain in set(domains))
    return True


def _record(ledger: JobLedger, booked: FutureAssignment) -> int:
    number = ledger.next_number()
    _charge_quota(ledger, booked, 1)
    ledger.step(ledger.set_reservation, (number, booked), (number, None))
    return number


def _reserve(ledger: JobLedger, index: int, site: ReplicaSite, span: tuple[int, int], times: int) -> None:
    ledger.step(ledger.reserve, (index, site, span, times), (index, site, span, -times))


def _charge_quota(ledger: JobLedger, booked: FutureAssignment, times: int) -> None:
    job_class = ledger.problem.classes[booked.job_class]
    option = job_class.options[booked.option]
    if milli := job_class.shape.quota_milli * len(booked.sites) * times:
        span = booked.slot, option.ends[booked.slot]
        where = job_class.queue, option.gpu_model
        ledger.step(ledger.charge_future_quota, (*where, milli, span, True), (*where, -milli, span, True))
