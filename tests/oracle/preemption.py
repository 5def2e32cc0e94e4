"""Rows of the plain model about what preemption frees."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import MigInstance
from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.units import MILLI
from tests.oracle.capacity import POWER
from tests.oracle.columns import held_of
from tests.oracle.index import SLICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from tests.oracle.columns import ReferenceColumns
    from tests.oracle.index import Candidate


def preemption(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    What incumbent v frees by being stopped or shrunk is taken only by classes that may follow it.

        Σ_j milli_j[n,g]  ≤  1000 − held_ρ[n,g] + M · (1 − stop[v]),  with gives[v,k]    ∀ GPUs g of v, k
        slice[j,n,g,π,a]  ≤  M · (1 − stop[v]), with gives[v,k]    ∀ (π, a) that meet what v holds of g
        Σ_j a_jr · replicas[j,n]  ≤  free_ρ[n,r] + M · (1 − stop[v]),  with gives[v,k]    ∀ n of v, k
        usage_ρ[r,q]  ≤  limit[r,q] + M · (1 − stop[v]),  the same with shrink[v]     ∀ q above v, r of v
        drawn_ρ[h] − freed_ρ[h]  ≤  left[h] + M · (1 − stop[v]),  with gives[v,k]     ∀ racks h of v, k on h

    over candidates j that the view ρ binds, which v is of. What has an index ρ has nothing of other
    candidates, be they to start or to move, and nothing that victims of ρ free by being stopped or shrunk.
    """
    for number, view in enumerate(x.views):
        # Where none of the lowest victims is, another view with fewer of them says more.
        victims = [
            index
            for index, each in enumerate(problem.incumbents)
            if each.rank == view.rank and view.keeps(each)
        ]
        for index in victims:
            yield from _on_nodes(problem, x, number, index)
        for budget in problem.budgets:
            yield from _in_queues(problem, x, budget, number, victims)
        for cap in range(len(problem.power_caps)):
            yield from _in_racks(problem, x, cap, number, victims)


def _on_nodes(problem: Problem, x: ReferenceColumns, number: int, index: int) -> Iterator[Row]:
    incumbent, view = problem.incumbents[index], x.views[number]
    for position, hold in enumerate(incumbent.holds):
        if hold.node is None:
            continue
        preempted = [x["stop", index], x["gives", index, position]]
        key = (hold.node, index, position, number)
        lower = [each for each, _ in x.on_node(hold.node) if view.binds(each.job_class)]
        for gpu in hold.gpus:
            shares = [term for each in lower for term in _shares(x, each, hold.node, gpu)]
            for_good, holders = x.held_milli(hold.node, gpu)
            freed = [(column, -milli) for v, at, milli in holders for column in x.leaving_to(v, at, view)]
            held = for_good + sum(milli for _, _, milli in holders)
            yield from _if(x, (*key, gpu), [*shares, *freed], preempted, MILLI - held)
            slices = [(column, 1) for each in lower for _, column in _slices(x, each, hold.node, gpu)]
            yield from _if(x, (*key, gpu, "mig"), slices, preempted, 0)
        for gpu, instance in hold.slices:
            taken = [(column, 1) for each in lower for column, _ in _shares(x, each, hold.node, gpu)]
            covered = _covered(x, hold.node, instance)
            taken += [
                (column, 1)
                for each in lower
                for other, column in _slices(x, each, hold.node, gpu)
                if other == instance or not covered.isdisjoint(_covered(x, hold.node, other))
            ]
            yield from _if(x, (*key, gpu, *_named(instance)), taken, preempted, 0)
        yield from _amounts(problem, x, key, lower, preempted)


def _shares(x: ReferenceColumns, candidate: Candidate, node: int, gpu: int) -> Iterator[Term]:
    """Thousandths of a GPU that a candidate holds as a GPU."""
    for kind, milli in (("whole", MILLI), ("share", candidate.job_class.shape.gpu_milli)):
        if (column := x.index.get((kind, *candidate.key, node, gpu))) is not None:
            yield column, milli


def _slices(
    x: ReferenceColumns, candidate: Candidate, node: int, gpu: int
) -> Iterator[tuple[MigInstance, int]]:
    for profile, _ in candidate.job_class.shape.mig:
        for start in range(SLICES):
            column = x["slice", *candidate.key, node, gpu, profile, start]
            yield MigInstance(profile=profile, start=start), column


def _covered(x: ReferenceColumns, node: int, instance: MigInstance) -> set[int]:
    geometry = x.geometry(node)
    profile = geometry.profiles.get(instance.profile) if geometry else None
    return set(range(instance.start, instance.start + profile.memory_slices)) if profile else set()


def _named(instance: MigInstance) -> tuple[str, int]:
    return instance.profile, instance.start


def _amounts(
    problem: Problem,
    x: ReferenceColumns,
    key: tuple[int, int, int, int],
    lower: list[Candidate],
    preempted: list[int],
) -> Iterator[Row]:
    node, _, _, number = key
    for resource, name in enumerate(problem.resources):
        terms = [
            (column, -problem.incumbents[v].shape.amounts[resource])
            for v, position in x.holds_on(node)
            for column in x.leaving_to(v, position, x.views[number])
        ]
        for each in lower:
            amount = each.job_class.shape.amounts[resource]
            terms += x.gpu_milli(each, node) if name == POWER else [(x["replicas", *each.key, node], amount)]
        yield from _if(x, (*key, name), terms, preempted, problem.nodes[node].amounts[resource])


def _in_queues(
    problem: Problem, x: ReferenceColumns, budget: QueueBudget, number: int, victims: list[int]
) -> Iterator[Row]:
    usage: dict[int, list[Term]] = defaultdict(list)
    for queue, column, milli in x.usage(budget.resource, x.views[number]):
        usage[queue].append((column, milli))
    for queue in budget.leaves_first:
        if (parent := budget.parent[queue]) is not None:
            usage[parent].append((x["spill", budget.resource, queue, number], 1))
    for queue in budget.leaves_first:
        spilled = [*usage[queue], (x["spill", budget.resource, queue, number], -1)]
        key = (budget.resource, queue, number)
        yield row("preemption", (*key, "spill"), spilled, upper=budget.kept[queue] - budget.own[queue])
    for index in victims:
        incumbent = problem.incumbents[index]
        if not held_of(incumbent, budget.resource):
            continue
        preempted = [x["stop", index], x["shrink", index]]
        above: int | None = incumbent.queue
        while above is not None:
            if (limit := budget.limit[above]) is not None:
                key = (budget.resource, above, number)
                yield from _if(x, (*key, index), usage[above], preempted, limit - budget.own[above])
            above = budget.parent[above]


def _in_racks(
    problem: Problem, x: ReferenceColumns, position: int, number: int, victims: list[int]
) -> Iterator[Row]:
    cap, view = problem.power_caps[position], x.views[number]
    there, elsewhere = dict(zip(cap.nodes, cap.watts, strict=True)), dict(cap.elsewhere)
    for index in victims:
        incumbent = problem.incumbents[index]
        inside = [at for at, hold in enumerate(incumbent.holds) if hold.node in there]
        if incumbent.shape.quota_milli and (inside or index in elsewhere):
            terms = [*_drawn(x, there, view), *_freed(problem, x, there, elsewhere, view)]
            preempted = [x["stop", index], *(x["gives", index, at] for at in inside)]
            yield from _if(x, ("rack", position, number, index), terms, preempted, max(0, cap.left))


def _drawn(x: ReferenceColumns, there: dict[int, int], view: VictimView) -> Iterator[Term]:
    for node, watts in there.items():
        for candidate, _ in x.on_node(node):
            if view.binds(candidate.job_class):
                yield from ((column, milli * watts) for column, milli in x.gpu_milli(candidate, node))


def _freed(
    problem: Problem, x: ReferenceColumns, there: dict[int, int], elsewhere: dict[int, int], view: VictimView
) -> Iterator[Term]:
    for node, watts in there.items():
        for index, position in x.holds_on(node):
            milli = problem.incumbents[index].shape.quota_milli
            yield from ((column, -milli * watts) for column in x.leaving_to(index, position, view))
    for index, drawn in elsewhere.items():
        yield from ((column, -drawn) for column in x.away_to(index, view))


def _if(
    x: ReferenceColumns, key: tuple[str | int, ...], terms: list[Term], conditions: list[int], upper: int
) -> Iterator[Row]:
    """Rows each of which counts only while one of some columns is 1."""
    most = sum(coefficient * x.upper[column] for column, coefficient in terms if coefficient > 0)
    slack = max(0, most - upper)
    for position, column in enumerate(conditions):
        yield row("preemption", (*key, position), [*terms, (column, slack)], upper=upper + slack)
