"""Target → Ledger: a plan that is known, as the ledger would have come to it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from planner.models.placement import GpuShare
from planner.models.problem_jobs import Role
from planner.solvers import leaving
from planner.solvers.ledger import Ledger
from planner.solvers.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.placement import Placement, Replica
    from planner.models.problem import Problem
    from planner.models.target import Target


def replay(problem: Problem, target: Target) -> Ledger | None:
    """
    The ledger of a plan of one slot; None if the problem has no moves that lead to it.

    So it is of a plan for another problem that this one no longer allows, as when a node is gone.
    """
    try:
        return _Replay(problem, target).run()
    except _LostError:
        return None


class _LostError(Exception):
    """Something in the target cannot be done."""


class _Replay:
    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target = problem, target
        self.ledger = Ledger(problem)
        self.node_of = {node.name: index for index, node in enumerate(problem.nodes)}
        self.class_of = {
            name: index
            for index, job_class in enumerate(problem.classes)
            if job_class.role is Role.START
            for name in job_class.jobs
        }

    def run(self) -> Ledger:
        self._open()
        by_job = {placement.job: placement for placement in self.target.placements}
        newcomers = [*self._leave(by_job), *self._starts()]
        for index, replicas in newcomers:
            self._place(index, replicas)
        for name in self.target.removed:
            _must(self.ledger.close(self.node_of[name]))
        return self.ledger

    def _open(self) -> None:
        pools = {option.name: index for index, option in enumerate(self.problem.pools)}
        for node in self.target.added:
            index = self.ledger.open(pools[node.pool]) if node.pool in pools else None
            if index is None:
                raise _LostError
            self.node_of[node.name] = index

    def _leave(self, by_job: dict[str, Placement]) -> list[tuple[int, list[Replica]]]:
        """Have the incumbents leave who do; (class, new replicas) of those that move or grow."""
        ledger = self.ledger
        fresh: list[tuple[int, list[Replica]]] = []
        for v, incumbent in enumerate(self.problem.incumbents):
            if (after := by_job.get(incumbent.job)) is None:
                _must(leaving.stop(ledger, v))
                continue
            gone, come = self._changed(v, after)
            if gone and come:
                _must(leaving.leave_to_move(ledger, v))
                fresh.append((_known(incumbent.move), list(after.replicas)))
            elif gone:
                _must(leaving.shrink(ledger, v, gone))
            elif come:
                fresh.append((_known(incumbent.grow), come))
        return fresh

    def _changed(self, v: int, after: Placement) -> tuple[list[int], list[Replica]]:
        """Positions of the holds that are given up, and replicas that are new."""
        there = Counter(self._held(replica) for replica in after.replicas)
        gone = []
        for position, hold in enumerate(self.problem.incumbents[v].holds):
            site = Site.of(hold)
            held = (None, (), ()) if site is None else (site.node, *_parts(site))
            if there[held]:
                there[held] -= 1
            else:
                gone.append(position)
        come = []
        for replica in after.replicas:
            if there[self._held(replica)] > 0:
                there[self._held(replica)] -= 1
                come.append(replica)
        return gone, come

    def _held(self, replica: Replica) -> tuple[object, ...]:
        node = self.node_of.get(replica.node)
        return (None, (), ()) if node is None else (node, *_parts(self._site(node, replica)))

    def _site(self, node: int, replica: Replica) -> Site:
        sound = [held for held in replica.gpus if held.index not in self.problem.nodes[node].unhealthy]
        return Site(
            node,
            tuple(held.index for held in sound if isinstance(held, GpuShare)),
            tuple((held.index, held.profile, held.start) for held in sound if not isinstance(held, GpuShare)),
        )

    def _starts(self) -> list[tuple[int, list[Replica]]]:
        return [
            (index, list(placement.replicas))
            for placement in self.target.placements
            if (index := self.class_of.get(placement.job)) is not None
        ]

    def _place(self, index: int, replicas: Iterable[Replica]) -> None:
        ledger, sites = self.ledger, []
        for replica in replicas:
            node = self.node_of.get(replica.node)
            if node is None:
                raise _LostError
            site = self._site(node, replica)
            _must(ledger.may_take(index, site))
            ledger.take_site(index, site)
            sites.append(site)
        group = ledger.group_of[sites[0].node]
        options = [each for each in self.problem.classes[index].options if group in each.groups]
        _must(bool(options) and len(ledger.settle(index, options[0], sites, jobs=1)) == 1)


def _parts(site: Site) -> tuple[object, ...]:
    return tuple(sorted(site.gpus)), tuple(sorted(site.slices))


def _known(job_class: int | None) -> int:
    if job_class is None:
        raise _LostError
    return job_class


def _must(done: bool) -> None:
    if not done:
        raise _LostError
