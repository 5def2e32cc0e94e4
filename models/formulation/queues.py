"""(C7) Queue limits up the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Term
    from planner.models.problem import Problem


def queues(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    No queue, nor any above it, uses more than its limit, in all and of each GPU model r with a quota.

        usage[r,q] = own_rq + placed[r,q] − left[r,q] + Σ_{children c} spilled[r,c]
        placed[r,q] = Σ_{j in q, k of r} milli_j · max_j · jobs[j,k]
        left[r,q]  = Σ_{v in q, of r} milli_v · ( held_v · (stop[v] + move[v]) + shrink[v] )
        usage[r,q]  ≤  limit_rq
        spilled[r,c] = usage[r,c], or spill[r,c] ≥ usage[r,c] − kept_rc where c keeps quota from lending

    and where running jobs hold more than the limit, which is then what they hold,

        new[r,q]  ≤  M · fresh[r,q]
        usage[r,q]  ≤  limit_rq − (limit_rq − firm_rq) · fresh[r,q]

    in thousandths of GPUs; new[r,q] are starts and growths that count at the queue, firm_rq its true limit,
    held_v the replicas incumbent v runs with; an elastic class counts milli_j · replicas[i,t] instead.
    Limits and kept quota are those of `models.queue.QueueLimits`.
    """
    for budget in problem.budgets:
        terms = [[*counted] for counted in x.usage(budget.resource)]
        fixed = list(budget.own)
        for queue in budget.leaves_first:
            key = (budget.resource, problem.queues[queue])
            if (limit := budget.limit[queue]) is not None and terms[queue]:
                yield row("queues", key, terms[queue], upper=limit - fixed[queue])
            if limit is not None and (fresh := x.fresh.get((budget.resource, queue))) is not None:
                yield from _firm(x, key, terms[queue], fresh, (limit, budget.firm[queue] or 0, fixed[queue]))
            parent = budget.parent[queue]
            if parent is None:
                continue
            if (spill := x.spill.get((budget.resource, queue))) is None:
                terms[parent] += terms[queue]
                fixed[parent] += fixed[queue]
            else:
                lends = [*terms[queue], (spill, -1)]
                yield row("queues", (*key, "spill"), lends, upper=budget.kept[queue] - fixed[queue])
                terms[parent].append((spill, 1))


def _firm(
    x: Columns, key: tuple[str, str], terms: list[Term], fresh: int, limits: tuple[int, int, int]
) -> Iterator[Row]:
    """Somebody new comes only if the true limit is kept; `limits`: raised limit, true limit, fixed usage."""
    limit, firm, fixed = limits
    new = [(column, milli) for column, milli in terms if column in x.newcomers]
    most = sum(milli * x.upper[column] for column, milli in new)
    yield row("queues", (*key, "new"), [*new, (fresh, -most)], upper=0)
    yield row("queues", (*key, "firm"), [*terms, (fresh, limit - firm)], upper=limit - fixed)
