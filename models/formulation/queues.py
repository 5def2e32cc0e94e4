"""(C6) Queue limits up the tree."""

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

        usage[r,q] = own_rq + Σ_{j in q, k of r} milli_j · max_j · jobs[j,k] + Σ_{children c} spilled[r,c]
        usage[r,q]  ≤  limit_rq
        spilled[r,c] = usage[r,c], or spill[r,c] ≥ usage[r,c] − kept_rc where c keeps quota from lending

    in thousandths of GPUs; an elastic class counts milli_j · replicas[i,t] instead. Limits and kept quota are
    those of `models.queue.QueueLimits`.
    """
    for budget in problem.budgets:
        terms: list[list[Term]] = [[] for _ in problem.queues]
        for queue, column, milli in x.usage(budget.resource):
            terms[queue].append((column, milli))
        fixed = list(budget.own)
        for queue in budget.leaves_first:
            key = (budget.resource, problem.queues[queue])
            if (limit := budget.limit[queue]) is not None and terms[queue]:
                yield row("queues", key, terms[queue], upper=limit - fixed[queue])
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
