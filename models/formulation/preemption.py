"""(C16) Preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.formulation.rows import Row, row
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Term
    from planner.models.problem import PowerCap, Problem, QueueBudget
    from planner.models.problem_jobs import Incumbent


def preemption(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    What preemption frees is taken only by classes of the victim's rank ρ or above.

        usage_ρ[r,q] = own_rq + placed_ρ[r,q] − left_ρ[r,q] + Σ_{children c} ( usage_ρ[r,c] − kept_rc )
        usage_ρ[r,q]  ≤  limit_rq    ∀ r, q, ρ
        Σ_{c in the rack} watts_c · ( Σ_{i below ρ} g_i · replicas[i,t,r] − freed_ρ[c] )  ≤  left  ∀ racks, ρ

    placed_ρ, left_ρ and freed_ρ count only classes and victims of ranks below ρ, and moves of jobs of such
    ranks: all others are taken to have stayed, and nothing of ρ or above to have come. What a queue spills is
    at least what it uses beyond what it keeps, so that the rows hold for every plan. Ranks are those of
    incumbents that count in the queue, or draw power in the rack. Where replicas are dealt out to cells by
    size alone, those of rank ρ or above are taken off the sum as if all of the group were in the rack.
    """
    for budget in problem.budgets:
        for rank in _ranks(each for each in problem.incumbents if budget.counts(each.gpu_model)):
            yield from _queues(problem, x, budget, rank)
    for number, cap in enumerate(problem.power_caps):
        there, elsewhere = set(cap.nodes), {v for v, _ in cap.elsewhere}
        holders = (
            each
            for v, each in enumerate(problem.incumbents)
            if v in elsewhere or any(hold.node in there for hold in each.holds)
        )
        for rank in _ranks(holders):
            if terms := _watts(problem, x, cap, rank):
                yield row("preemption", ("rack", number, rank), terms, upper=max(0, cap.left))


def _ranks(incumbents: Iterator[Incumbent]) -> list[int]:
    """Ranks of those that a plan may preempt and that use GPUs."""
    return sorted(
        {
            each.rank
            for each in incumbents
            if each.rank and each.shape.quota_milli and (each.stop_points is not None or each.shrinkable)
        }
    )


def _queues(problem: Problem, x: Columns, budget: QueueBudget, rank: int) -> Iterator[Row]:
    """Limits of the queues at which a victim of this rank may count."""
    concerned = _above(problem, budget, rank)
    terms = [[*counted] for counted in x.usage(budget.resource, rank)]
    fixed = list(budget.own)
    for queue in budget.leaves_first:
        limit = budget.limit[queue]
        if limit is not None and queue in concerned and any(milli > 0 for _, milli in terms[queue]):
            key = ("queue", budget.resource, problem.queues[queue], rank)
            yield row("preemption", key, terms[queue], upper=limit - fixed[queue])
        if (parent := budget.parent[queue]) is not None:
            terms[parent] += terms[queue]
            fixed[parent] += fixed[queue] - budget.kept[queue]


def _above(problem: Problem, budget: QueueBudget, rank: int) -> set[int]:
    """Queues of incumbents of a rank, and all above these."""
    found: set[int] = set()
    for incumbent in problem.incumbents:
        if incumbent.rank == rank and budget.counts(incumbent.gpu_model):
            above: int | None = incumbent.queue
            while above is not None:
                found.add(above)
                above = budget.parent[above]
    return found


def _watts(problem: Problem, x: Columns, cap: PowerCap, rank: int) -> list[Term]:
    """What those below a rank draw more in a rack, in thousandths of watts; nothing if none may come."""
    watts = dict(zip(cap.nodes, cap.watts, strict=True))
    taken = list(_drawn(x, watts, rank))
    if not any(watts > 0 for _, watts in taken):
        return []
    return [*taken, *_given_back(problem, x, watts, rank), *_elsewhere(problem, x, cap, rank)]


def _drawn(x: Columns, watts: dict[int, int], rank: int) -> Iterator[Term]:
    strata: dict[tuple[int, int], int] = {}
    for position, cell in enumerate(x.cells.all):
        if cell.nodes[0] not in watts:
            continue
        per_gpu = MILLI * watts[cell.nodes[0]]
        columns, sizes = x.block_users(position)
        for column, size in zip(columns.tolist(), sizes.tolist(), strict=True):
            if x.rank_of.get(column, 0) < rank:
                yield column, per_gpu * size
        if x.blocks.get(position):
            strata[cell.group, cell.rank] = max(per_gpu, strata.get((cell.group, cell.rank), 0))
    for stratum, per_gpu in strata.items():
        for shape, column in x.placed(stratum):
            if x.rank_of[column] >= rank and shape.gpus:
                yield column, -per_gpu * shape.gpus


def _given_back(problem: Problem, x: Columns, watts: dict[int, int], rank: int) -> Iterator[Term]:
    incumbents = problem.incumbents
    for departure, column in x.out.items():
        if departure.node in watts:
            given = x.departures.given_up(departure, rank)
            if freed := sum(incumbents[v].shape.quota_milli for v, _ in given):
                yield column, -watts[departure.node] * freed
    for node in sorted(x.departures.crowded & watts.keys()):
        for v, positions in x.departures.holds[node].items():
            freed = watts[node] * incumbents[v].shape.quota_milli
            yield from ((column, -freed * len(positions)) for column in x.fates.leaves(v, rank))
            if (v, node) in x.fates.given and incumbents[v].rank < rank:
                yield x.fates.given[v, node], -freed


def _elsewhere(problem: Problem, x: Columns, cap: PowerCap, rank: int) -> Iterator[Term]:
    for v, drawn in cap.elsewhere:
        yield from ((column, -drawn) for column in x.fates.leaves(v, rank))
        if v in x.shrink and problem.incumbents[v].rank < rank:
            yield x.resized[v], -drawn
