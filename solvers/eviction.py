"""
Preemption: who must go so that a better job finds a place, and who may come back.

Victims are tried on the node itself: those that lose least per GPU go first until the job fits, then each is
let stay if it fits without. The whole trade is kept only if the plan is worth more after it, so nobody is
preempted without somebody who gains by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.models.problem_jobs import Role
from planner.models.units import MILLI
from planner.solvers import leaving
from planner.solvers.fates import Leave
from planner.solvers.victims import Victims

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from planner.models.problem_jobs import Option
    from planner.solvers.ledger import Ledger
    from planner.solvers.victims import Victim

    Ints: TypeAlias = NDArray[np.int64]

_PLACES_TRIED: Final = 4
"""Nodes, or domains, tried for one replica: those where the least is lost by a rough count."""

_FAILURES: Final = 400
"""After so many classes for which no trade was found nobody is preempted any more."""


def preempt(ledger: Ledger, order: Iterable[int]) -> bool:
    """Preempt for waiting jobs of classes in the given order; True if anybody was."""
    preemption = Preemption(ledger)
    changed, failures = False, 0
    for index in order:
        job_class = ledger.problem.classes[index]
        if job_class.role is not Role.START or failures > _FAILURES:
            continue
        if job_class.co_start is not None:
            continue  # nobody is preempted for half of those who start together
        while ledger.jobs_left(index):
            if not preemption.make_room(index):
                failures += 1
                break
            changed = True
    return changed


class Preemption:
    """Trades of running jobs for waiting ones, and jobs for which there is none."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.victims = Victims(ledger)
        self._hopeless: dict[tuple[object, ...], int] = {}

    def make_room(self, index: int) -> bool:
        """Place one more job of a class by preempting others, if that pays."""
        ledger, job_class, least = self.ledger, self.ledger.problem.classes[index], self.victims.least_rank
        if least is None or ledger.tenants[index].rank < least:
            return False
        worth = self._worth(index)
        groups = tuple(option.groups for option in job_class.options)
        alike = (ledger.tenants[index], job_class.minimum, job_class.together, job_class.queue, groups)
        if worth <= self._hopeless.get(alike, 0):
            return False
        for option in job_class.options:
            for nodes in self._scopes(index, option):
                mark, before = ledger.mark(), ledger.objective
                if self._place(index, option, nodes, worth) and ledger.objective > before:
                    return True
                ledger.rollback(mark)
        self._hopeless[alike] = worth
        return False

    def _worth(self, index: int) -> int:
        """Points that a job of a class brings at most."""
        job_class, ledger = self.ledger.problem.classes[index], self.ledger
        milli = job_class.shape.quota_milli * job_class.maximum
        model = job_class.options[0].gpu_model if job_class.options else None
        owed = sum(min(milli, missing) + MILLI for missing in ledger.quota.owed(job_class.queue, model))
        return job_class.most_points + ledger.problem.charges.guarantee * owed // MILLI

    def _scopes(self, index: int, option: Option) -> Iterator[Ints]:
        """Nodes that one trade may look at: all, or one domain of a required level after the other."""
        ledger, job_class = self.ledger, self.ledger.problem.classes[index]
        nodes, level = ledger.nodes_of(option), job_class.together.required
        if level is None:
            yield nodes
            return
        of = ledger.domains.of(level)[nodes]
        losses = self.victims.rough_losses(nodes, job_class.shape.quota_milli, ledger.tenants[index].rank)
        room = ledger.room(index, nodes, job_class.minimum)
        ranked = []
        for domain in np.unique(of).tolist():
            near = of == domain
            missing = max(0, job_class.minimum - int(room[near].sum()))
            loss = float(np.sort(losses[near])[:missing].sum()) if near.sum() else np.inf
            if loss < np.inf:
                ranked.append((loss, domain))
        for _, domain in sorted(ranked)[:_PLACES_TRIED]:
            yield nodes[of == domain]

    def _place(self, index: int, option: Option, nodes: Ints, worth: int) -> bool:
        """Preempt node by node until a job of a class can be placed; False if that costs too much."""
        ledger, job_class = self.ledger, self.ledger.problem.classes[index]
        before = ledger.objective
        if not self._free_quota(index, option, worth):
            return False
        for _ in range(job_class.minimum + 1):
            if ledger.place(index, option, jobs=1, nodes=nodes):
                return True
            if before - ledger.objective >= worth or not self._free_a_node(index, nodes, worth):
                return False
        return False

    def _free_quota(self, index: int, option: Option, worth: int) -> bool:
        """Preempt jobs that this one may follow, in whatever place, until its queue may take it."""
        ledger, job_class = self.ledger, self.ledger.problem.classes[index]
        asked = job_class.queue, option.gpu_model, job_class.minimum * job_class.shape.quota_milli
        gone: list[Victim] = []
        before = ledger.objective
        while (obstacle := ledger.quota.obstacle(*asked)) is not None:
            victims = self.victims.below(*obstacle, ledger.tenants[index].rank)
            evicted = next((victim for victim in victims if self._evict(victim)), None)
            if evicted is None or before - ledger.objective >= worth:
                return False
            gone.append(evicted)
        for victim in sorted(gone, key=lambda victim: -victim.loss):
            mark = ledger.mark()
            leaving.restore(ledger, victim.incumbent, victim.positions if victim.shrinks else None)
            if ledger.quota.obstacle(*asked) is not None:
                ledger.rollback(mark)
        return True

    def _free_a_node(self, index: int, nodes: Ints, worth: int) -> bool:
        """Preempt on the node where one more replica costs least; False if none can be freed for less."""
        ledger = self.ledger
        best: tuple[int, int] | None = None
        for node in self._candidates(index, nodes, worth):
            mark, before = ledger.mark(), ledger.objective
            if self._free(index, node):
                loss = before - ledger.objective
                best = min(best or (loss, node), (loss, node))
            ledger.rollback(mark)
        if best is None or best[0] >= worth:
            return False
        return self._free(index, best[1])

    def _candidates(self, index: int, nodes: Ints, worth: int) -> list[int]:
        """The nodes on which least is lost by a rough count."""
        ledger, tenant = self.ledger, self.ledger.tenants[index]
        losses = self.victims.rough_losses(nodes, tenant.shape.quota_milli, tenant.rank)
        # Whoever keeps the job away may be the one to leave; what a node takes at all only gets less.
        barred = ~ledger.admits(tenant, nodes)
        losses[barred] = self.victims.rough_losses(nodes[barred], 0, tenant.rank)
        possible = np.flatnonzero((losses < worth) & ledger.takes(tenant, nodes))
        best = possible[np.argsort(losses[possible], kind="stable")][:_PLACES_TRIED]
        return [int(node) for node in nodes[best]]

    def _free(self, index: int, node: int) -> bool:
        """Preempt on a node until one more replica of a class fits; whoever need not go stays."""
        ledger, rank = self.ledger, self.ledger.tenants[index].rank
        there, most = np.array([node], dtype=np.int64), ledger.problem.classes[index].minimum + 1

        def room() -> int:
            return int(ledger.room(index, there, most)[0])

        wanted, gone = room() + 1, []
        for victim in self.victims.there(node, rank):
            if self._evict(victim):
                gone.append(victim)
                if room() >= wanted:
                    break
        else:
            return False
        for victim in sorted(gone, key=lambda victim: -victim.loss):
            mark = ledger.mark()
            leaving.restore(ledger, victim.incumbent, victim.positions if victim.shrinks else None)
            if room() < wanted:
                ledger.rollback(mark)
        return True

    def _evict(self, victim: Victim) -> bool:
        if victim.shrinks:
            return leaving.shrink(self.ledger, victim.incumbent, victim.positions)
        return leaving.stop(self.ledger, victim.incumbent)


def take_back(ledger: Ledger) -> None:
    """
    Let incumbents back on their places, wholly or in part, where that pays.

    First those whose places are free; then those that are worth more than who has come.
    """
    problem = ledger.problem
    gone = ledger.fates.having(Leave.STOP, Leave.SHRINK)
    for index in sorted(gone, key=lambda index: (problem.incumbents[index].stop_points or 0, index)):
        mark, before = ledger.mark(), ledger.objective
        if leaving.restore(ledger, index) and ledger.objective > before:
            continue
        ledger.rollback(mark)
        if problem.incumbents[index].shrinkable:
            _take_back_some(ledger, index)
    least = _least_worths(ledger)
    for index in ledger.fates.having(Leave.STOP, Leave.SHRINK):
        nodes = {hold.node for hold in problem.incumbents[index].holds}
        worths = [least[node] for node in nodes if node in least]
        if worths and min(worths) >= ledger.fates.loss(index):
            continue  # nobody came who is worth less
        mark, before = ledger.mark(), ledger.objective
        if not leaving.put_back(ledger, index) or ledger.objective <= before:
            ledger.rollback(mark)


def _least_worths(ledger: Ledger) -> dict[int | None, int]:
    """What the job that is worth least among those who came is worth, by node."""
    least: dict[int | None, int] = {}
    for placed in ledger.placed.values():
        worth = ledger.worth(placed)
        for site in placed.sites:
            least[site.node] = min(worth, least.get(site.node, worth))
    return least


def _take_back_some(ledger: Ledger, index: int) -> None:
    """Let as many replicas back as find their places free."""
    for position in leaving.restorable(ledger, index):
        mark, before = ledger.mark(), ledger.objective
        fate = ledger.fates[index]
        if fate is None or position not in fate.given_up:
            continue
        back = [position]
        if fate.leave is Leave.STOP:
            back = leaving.restorable(ledger, index)[: ledger.problem.incumbents[index].fewest]
        if not leaving.restore(ledger, index, back) or ledger.objective <= before:
            ledger.rollback(mark)
