"""Rows of the plain model about what preemption frees."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from planner.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.reference_columns import ReferenceColumns
    from planner.models.formulation.rows import Term
    from planner.models.problem import PowerCap, Problem, QueueBudget
    from planner.models.problem_jobs import Incumbent


def preemption(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    What incumbent v of rank ρ frees by being stopped or shrunk is taken only by ranks of ρ or above.

        replicas[j,n] + M · (stop[v] + gives[v,k])  ≤  M     ∀ k of v on n, rank_j < ρ
        usage_ρ[r,q]  ≤  limit[r,q] + M · (1 − stop[v]),  the same with shrink[v]     ∀ q above v, r of v
        drawn_ρ[h] − freed_ρ[h]  ≤  left[h] + M · (1 − stop[v]),  with gives[v,k]     ∀ racks h of v, k on h

    usage_ρ, drawn_ρ and freed_ρ have nothing of candidates of rank ρ or above, be they to start or to move,
    and nothing that incumbents of rank ρ or above free by being stopped or shrunk.
    """
    for rank in x.ranks:
        victims = [index for index, each in enumerate(problem.incumbents) if each.rank == rank]
        for index in victims:
            yield from _on_nodes(problem.incumbents[index], x, index)
        for budget in problem.budgets:
            yield from _in_queues(problem, x, budget, rank, victims)
        for number, cap in enumerate(problem.power_caps):
            yield from _in_racks(problem, x, number, cap, victims)


def _on_nodes(incumbent: Incumbent, x: ReferenceColumns, index: int) -> Iterator[Row]:
    for position, hold in enumerate(incumbent.holds):
        if hold.node is None:
            continue
        for candidate, replicas in x.on_node(hold.node):
            if candidate.job_class.rank < incumbent.rank and candidate.job_class.incumbent != index:
                most = candidate.most
                preempted = [(x["stop", index], most), (x["gives", index, position], most)]
                key = (*candidate.key, index, position)
                yield row("preemption", key, [(replicas, 1), *preempted], upper=most)


def _in_queues(
    problem: Problem, x: ReferenceColumns, budget: QueueBudget, rank: int, victims: list[int]
) -> Iterator[Row]:
    usage: dict[int, list[Term]] = defaultdict(list)
    for queue, column, milli in x.usage(budget.counts, rank):
        usage[queue].append((column, milli))
    for queue in budget.leaves_first:
        if (parent := budget.parent[queue]) is not None:
            usage[parent].append((x["spill", budget.resource, queue, rank], 1))
    for queue in budget.leaves_first:
        spilled = [*usage[queue], (x["spill", budget.resource, queue, rank], -1)]
        key = (budget.resource, queue, rank)
        yield row("preemption", (*key, "spill"), spilled, upper=budget.kept[queue] - budget.own[queue])
    for index in victims:
        incumbent = problem.incumbents[index]
        if not incumbent.shape.quota_milli or not budget.counts(incumbent.gpu_model):
            continue
        preempted = [x["stop", index], x["shrink", index]]
        above: int | None = incumbent.queue
        while above is not None:
            if (limit := budget.limit[above]) is not None:
                key = (budget.resource, above, rank)
                yield from _if(x, (*key, index), usage[above], preempted, limit - budget.own[above])
            above = budget.parent[above]


def _in_racks(
    problem: Problem, x: ReferenceColumns, number: int, cap: PowerCap, victims: list[int]
) -> Iterator[Row]:
    there, elsewhere = dict(zip(cap.nodes, cap.watts, strict=True)), dict(cap.elsewhere)
    for index in victims:
        incumbent = problem.incumbents[index]
        inside = [position for position, hold in enumerate(incumbent.holds) if hold.node in there]
        if incumbent.shape.quota_milli and (inside or index in elsewhere):
            terms = [*_drawn(x, there, incumbent.rank), *_freed(problem, x, there, elsewhere, incumbent.rank)]
            preempted = [x["stop", index], *(x["gives", index, position] for position in inside)]
            yield from _if(x, ("rack", number, index), terms, preempted, max(0, cap.left))


def _drawn(x: ReferenceColumns, there: dict[int, int], rank: int) -> Iterator[Term]:
    for node, watts in there.items():
        for candidate, _ in x.on_node(node):
            if candidate.job_class.rank < rank:
                yield from ((column, milli * watts) for column, milli in x.gpu_milli(candidate, node))


def _freed(
    problem: Problem, x: ReferenceColumns, there: dict[int, int], elsewhere: dict[int, int], rank: int
) -> Iterator[Term]:
    for node, watts in there.items():
        for index, position in x.holds_on(node):
            milli = problem.incumbents[index].shape.quota_milli
            yield from ((column, -milli * watts) for column in x.leaving_to(index, position, rank))
    for index, drawn in elsewhere.items():
        yield from ((column, -drawn) for column in x.away_to(index, rank))


def _if(
    x: ReferenceColumns, key: tuple[str | int, ...], terms: list[Term], conditions: list[int], upper: int
) -> Iterator[Row]:
    """Rows each of which counts only while one of some columns is 1."""
    most = sum(coefficient * x.upper[column] for column, coefficient in terms if coefficient > 0)
    slack = max(0, most - upper)
    for position, column in enumerate(conditions):
        yield row("preemption", (*key, position), [*terms, (column, slack)], upper=upper + slack)
