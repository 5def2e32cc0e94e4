"""
Reserve resources for the start of a job in a later slot, by best fit.

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
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


def reserve_start(
    ledger: Ledger, index: int, position: int, slot: int, nodes: Ints | None = None
) -> int | None:
    """
    Reserve the start of one job on the option at a position, in exactly this slot, by best fit.

    `nodes` restricts the choice. Returns the number of the reservation; None if there is no room or no quota,
    or if the predecessors of the job come too late.
    """
    job_class = ledger.problem.classes[index]
    if ledger.feasible_nodes is None or not ledger.may_reserve(index, position, slot):
        return None
    option = job_class.options[position]
    span = slot, option.ends[slot]
    waits = job_class.role is ClassRole.START
    feasible = ledger.feasible_nodes.of((job_class.shape, option.later_groups[slot], *span, waits))
    usable = ledger.feasibility.admits_later(index, feasible.nodes)
    if nodes is not None:
        usable &= np.isin(feasible.nodes, nodes)
    room = np.where(usable, feasible.room, 0)
    mark = ledger.undo.mark()
    for near in _candidate_domains(ledger, index, feasible, room):
        sites = _take(ledger, index, span, feasible, near, room)
        if len(sites) == job_class.minimum:
            return ledger.record(FutureAssignment(index, position, slot, tuple(sites)))
        ledger.undo.rollback(mark)
    return None


def _candidate_domains(
    ledger: Ledger, index: int, feasible: FeasibleNodes, room: Ints
) -> Iterator[Bools | None]:
    """Nodes for all replicas of one job: everywhere (None), or one domain after the other, tightest first."""
    job_class = ledger.problem.classes[index]
    rules = job_class.together
    if not room.any():
        return
    if rules.required is None:
        yield None
        return
    of = ledger.domains.of(rules.required)[feasible.nodes]
    totals = np.bincount(of, weights=np.minimum(room, job_class.minimum))
    tightness = np.zeros(len(totals), dtype=np.int64)
    np.add.at(tightness, of, feasible.tightness)
    large = np.flatnonzero(totals >= job_class.minimum)
    for domain in large[np.argsort(tightness[large], kind="stable")].tolist():
        near: Bools = of == domain
        yield near


def _take(
    ledger: Ledger,
    index: int,
    span: tuple[int, int],
    feasible: FeasibleNodes,
    near: Bools | None,
    room: Ints,
) -> list[ReplicaSite]:
    """Reserve sites for one job, tightest nodes first; fewer than it needs if there is no room."""
    job_class, sites = ledger.problem.classes[index], list[ReplicaSite]()
    fitting = np.flatnonzero(room if near is None else np.where(near, room, 0))
    tightness = feasible.tightness[fitting]
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
        node = int(feasible.nodes[position])
        domain = -1 if spread is None else int(ledger.domains.of(spread)[node])
        most = job_class.minimum if spread is None else job_class.together.most - in_domain.get(domain, 0)
        got = _take_here(ledger, index, span, node, min(most, job_class.minimum - len(sites)))
        if not got and most > 0:
            feasible.shut(position)
        in_domain[domain] = in_domain.get(domain, 0) + len(got)
        sites += got
        tried += 1
    return sites


def _take_here(ledger: Ledger, index: int, span: tuple[int, int], node: int, most: int) -> list[ReplicaSite]:
    sites = list[ReplicaSite]()
    while len(sites) < most and (site := ledger.sites.find_later(index, node, span)) is not None:
        ledger.sites.reserve(index, site, span)
        sites.append(site)
    return sites
