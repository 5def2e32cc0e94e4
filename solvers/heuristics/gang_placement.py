"""
Place one job at a time: gangs with locality rules, and jobs with costs that differ between nodes.

The required domain is the tightest one that holds the gang. Of preferred domains as few as possible are used.
A job that costs more than it brings is not placed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.node_scores import NodeScores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Level
    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]


def place_job(ledger: Ledger, index: int, option: Option, nodes: Ints | None = None) -> bool:
    """Place one job of a class where that pays; False if there is no such place."""
    job_class = ledger.problem.classes[index]
    mark, before = ledger.undo.mark(), ledger.objective
    for sites in _candidate_sites(ledger, index, option, nodes):
        if len(sites) == job_class.minimum:
            made = ledger.settle(index, option, sites, jobs=1)
            if made and job_class.elastic:
                # A cost per job, as for a resize, may pay off only with all replicas that find room.
                all_pay = job_class.role is ClassRole.GROW or not job_class.scaled
                grow(ledger, made[0], nodes, most=None if all_pay else job_class.initial_replicas(option))
            if made and ledger.objective >= before:
                return True
        ledger.undo.rollback(mark)
    return False


def grow(ledger: Ledger, number: int, nodes: Ints | None = None, *, most: int | None = None) -> None:
    """Add replicas to a placed elastic job, up to `most` in all, while sites and quota last."""
    placed = ledger.placed[number]
    job_class = ledger.problem.classes[placed.job_class]
    best = job_class.most(placed.option)
    wanted = min(
        (best if most is None else min(most, best)) - len(placed.sites),
        ledger.queues.headroom(job_class, placed.option, replicas=1),
    )
    if wanted <= 0:
        return
    if not ledger.in_bulk[placed.job_class]:
        _add_replicas(ledger, number, wanted, nodes)
    elif more := ledger.take(
        placed.job_class, ledger.node_scores(placed.job_class, placed.option, nodes), wanted
    ):
        ledger.add_sites(number, more)


def _add_replicas(ledger: Ledger, number: int, wanted: int, nodes: Ints | None = None) -> None:
    """Add up to `wanted` replicas to a placed job, one at a time, while that pays."""
    placed = ledger.placed[number]
    job_class = ledger.problem.classes[placed.job_class]
    scope = _nodes_of(ledger, placed.option, nodes)
    if (level := job_class.together.required) is not None:
        of = ledger.domains.of(level)
        scope = scope[of[scope] == of[placed.sites[0].node]]
    for near in _near_first(ledger, job_class, scope, placed.sites):
        picker = _Picker(ledger, placed.job_class, ledger.placed[number].sites)
        for _ in range(wanted):
            mark, before = ledger.undo.mark(), ledger.objective
            # The job must not conflict with itself: it is off the ledger while its next site is searched.
            now = ledger.placed[number]
            ledger.put(number, None)
            more = picker.take(near, 1)
            ledger.put(number, now)
            if more:
                ledger.add_sites(number, more)
            if not more or ledger.objective < before:
                ledger.undo.rollback(mark)
                break
            wanted -= 1


def _nodes_of(ledger: Ledger, option: Option, nodes: Ints | None) -> Ints:
    rules = ledger.feasibility
    return rules.nodes_of(option) if nodes is None else rules.nodes_within(option, nodes)


def _near_first(
    ledger: Ledger, job_class: JobClass, scope: Ints, sites: tuple[ReplicaSite, ...]
) -> Iterator[Ints]:
    """Nodes in the domains of the preferred level that the job already uses, then all nodes."""
    level = job_class.together.preferred
    if level is not None and job_class.role is not ClassRole.GROW:
        of = ledger.domains.of(level)
        yield scope[np.isin(of[scope], of[[site.node for site in sites]])]
    yield scope


def _candidate_sites(
    ledger: Ledger, index: int, option: Option, nodes: Ints | None
) -> Iterator[list[ReplicaSite]]:
    """Sites taken for a gang, one attempt after the other; the caller rolls back unused attempts."""
    job_class = ledger.problem.classes[index]
    rules, wanted = job_class.together, job_class.minimum
    picker = _Picker(ledger, index, ())
    if rules.required is None and rules.preferred is None and rules.spread is None:
        yield ledger.take(index, ledger.node_scores(index, option, nodes), wanted)
        return
    scope = _nodes_of(ledger, option, nodes)
    room = ledger.feasibility.room(index, scope, job_class.maximum)
    if rules.required is None:
        if picker.total(scope, room) >= wanted:
            yield picker.gather(scope, room, wanted)
        return
    for near in _tightest_first(picker, scope, room, rules.required, job_class):
        yield picker.gather(scope[near], room[near], wanted)


def _tightest_first(
    picker: _Picker, scope: Ints, room: Ints, level: Level, job_class: JobClass
) -> Iterator[NDArray[np.bool_]]:
    """Domains with room for a gang: first those for its maximum number of replicas, then the tightest."""
    of = picker.ledger.domains.of(level)[scope]
    totals = np.bincount(of, weights=room)
    for domain in np.flatnonzero(totals >= job_class.minimum).tolist() if picker.spreads else ():
        near = of == domain
        totals[domain] = picker.total(scope[near], room[near])
    left = np.bincount(of, weights=picker.ledger.capacity.gpu_left[scope])
    lack = np.maximum(0, job_class.maximum - totals)
    enough = np.flatnonzero(totals >= job_class.minimum)
    for place in np.lexsort((enough, left[enough], totals[enough], lack[enough])).tolist():
        yield of == enough[place]


class _Picker:
    """Takes sites for one job by best fit, within the limit of its spread on each domain."""

    def __init__(self, ledger: Ledger, index: int, sites: tuple[ReplicaSite, ...]) -> None:
        self.ledger = ledger
        self._index = index
        self._rules = ledger.problem.classes[index].together
        self._spread = None if self._rules.spread is None else ledger.domains.of(self._rules.spread)
        self._in_domain: Counter[int] = Counter()
        for site in sites:
            self._count(site)

    @property
    def spreads(self) -> bool:
        """True if the number of replicas per domain is limited."""
        return self._spread is not None

    def total(self, nodes: Ints, room: Ints) -> int:
        """Replicas that fit on the nodes at the same time."""
        if self._spread is None:
            return int(room.sum())
        in_domain = np.bincount(self._spread[nodes], weights=room)
        return int(np.minimum(in_domain, self._rules.most).sum())

    def gather(self, nodes: Ints, room: Ints, wanted: int) -> list[ReplicaSite]:
        """Take sites in as few domains of the preferred level as possible."""
        level = self._rules.preferred
        sites: list[ReplicaSite] = []
        while level is not None and len(sites) < wanted and len(nodes):
            of = self.ledger.domains.of(level)[nodes]
            totals = {
                domain: self.total(nodes[of == domain], room[of == domain])
                for domain in np.flatnonzero(np.bincount(of[room > 0])).tolist()
            }
            missing = wanted - len(sites)
            enough = [(total, domain) for domain, total in totals.items() if total >= missing]
            if not totals:
                return sites
            domain = min(enough)[1] if enough else max(totals, key=lambda each: (totals[each], -each))
            sites += self.take(nodes[of == domain], missing)
            nodes, room = nodes[of != domain], room[of != domain]
        return sites or self.take(nodes, wanted)

    def take(self, nodes: Ints, wanted: int) -> list[ReplicaSite]:
        """Take up to `wanted` sites on nodes."""
        ledger = self.ledger
        board = NodeScores(ledger.feasibility, ledger.tenants[self._index], nodes)
        sites: list[ReplicaSite] = []
        self._close_full(board)
        while len(sites) < wanted and (node := board.best(ledger.feasibility)) is not None:
            sites.append(ledger.take_site_on(self._index, node))
            self._count(sites[-1])
            self._close_full(board)
        return sites

    def _close_full(self, board: NodeScores) -> None:
        if self._spread is not None:
            full = [domain for domain, count in self._in_domain.items() if count >= self._rules.most]
            if full:
                board.close(np.isin(self._spread[board.nodes], full))

    def _count(self, site: ReplicaSite) -> None:
        if self._spread is not None:
            self._in_domain[int(self._spread[site.node])] += 1
