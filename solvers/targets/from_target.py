"""Target → Ledger: replay a known plan on a ledger, or single jobs of it on their sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.problem.problem import held_indices, replica_changes
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.problem import Problem


def ledger_of(
    problem: Problem,
    target: DesiredState,
    *,
    staying: frozenset[str] = frozenset(),
    params: PlacementParams = PlacementParams(),
) -> Ledger | None:
    """
    The ledger of a plan of one slot; None if the problem does not allow the changes that lead to it.

    This happens to a plan for another problem that this one no longer allows, as when a node is lost. Running
    jobs in `staying` are known to be unchanged and are skipped.
    """
    try:
        return _Replay(problem, target, staying, params).run()
    except _LostError:
        return None


class _LostError(Exception):
    """The problem does not allow part of the target."""


class _Replay:
    def __init__(
        self, problem: Problem, target: DesiredState, staying: frozenset[str], params: PlacementParams
    ) -> None:
        self.problem, self.target, self.staying = problem, target, staying
        self.ledger = Ledger(problem, params)
        self.node_of = {node.name: index for index, node in enumerate(problem.nodes)}
        self.class_of = {
            name: index
            for index, job_class in enumerate(problem.classes)
            if job_class.role is ClassRole.START
            for name in job_class.jobs
        }

    def run(self) -> Ledger:
        self._open()
        by_job = {placement.job: placement for placement in self.target.placements}
        newcomers = [*self._leave(by_job), *self._starts()]
        for index, replicas in newcomers:
            self._place(index, replicas)
        for name in self.target.removed:
            # A node that no job may use any more is not among the problem's nodes.
            node = self.node_of.get(name)
            _require(node is not None and self.ledger.pools.close(node))
        return self.ledger

    def _open(self) -> None:
        pools = {option.name: index for index, option in enumerate(self.problem.pools)}
        for node in self.target.added:
            index = self.ledger.pools.open(pools[node.pool]) if node.pool in pools else None
            if index is None:
                raise _LostError
            self.node_of[node.name] = index

    def _leave(self, by_job: dict[str, Placement]) -> list[tuple[int, list[Replica]]]:
        """Take leaving jobs off their places; returns (class, new replicas) of those that migrate or grow."""
        ledger = self.ledger
        fresh: list[tuple[int, list[Replica]]] = []
        for v, incumbent in enumerate(self.problem.incumbents):
            if incumbent.job in self.staying:
                continue
            if (after := by_job.get(incumbent.job)) is None:
                _require(vacate.stop_incumbent(ledger, v))
                continue
            gone, come = replica_changes(self.problem, incumbent, after, self.node_of)
            if gone and come:
                _require(vacate.vacate_for_move(ledger, v))
                fresh.append((_known(incumbent.move), list(after.replicas)))
            elif gone:
                _require(vacate.shrink_incumbent(ledger, v, gone))
            elif come:
                fresh.append((_known(incumbent.grow), come))
        return fresh

    def _starts(self) -> list[tuple[int, list[Replica]]]:
        return [
            (index, list(placement.replicas))
            for placement in self.target.placements
            if (index := self.class_of.get(placement.job)) is not None
        ]

    def _place(self, index: int, replicas: Iterable[Replica]) -> None:
        sites = []
        for replica in replicas:
            node, gpus, slices = held_indices(self.problem, replica, self.node_of)
            if node is None:
                raise _LostError
            sites.append(ReplicaSite(node, gpus, slices))
        _require(place_on_sites(self.ledger, index, sites))


def _known(job_class: int | None) -> int:
    if job_class is None:
        raise _LostError
    return job_class


def _require(done: bool) -> None:
    if not done:
        raise _LostError


def place_on_sites(ledger: Ledger, index: int, sites: Sequence[ReplicaSite]) -> bool:
    """Place one job of a class on exactly these sites; False, and nothing is taken, if that is impossible."""
    if not sites or not take_sites(ledger, index, sites):
        return False
    group = ledger.group_of[sites[0].node]
    for option in ledger.problem.classes[index].options:
        if group in option.groups:
            return bool(ledger.settle(index, option, list(sites), jobs=1))
    for site in sites:
        ledger.sites.release(index, site)
    return False


def take_sites(ledger: Ledger, index: int, sites: Sequence[ReplicaSite]) -> bool:
    """Take exactly these sites for replicas of a class; False, and none is taken, if one is not free."""
    for number, site in enumerate(sites):
        if not ledger.sites.may_take(index, site):
            for taken in sites[:number]:
                ledger.sites.release(index, taken)
            return False
        ledger.sites.take(index, site)
    return True
