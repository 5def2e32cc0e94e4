"""(C6) Queue limits up the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Term
    from planner.models.problem import Problem, QueueBudget


def queues(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    No queue, nor any above it, uses more than its limit, in all and of each GPU model r with a quota.

        usage[r,q] = own_rq + Σ_{j in q, t of r} milli_j · replicas[j,t] + Σ_{children c} spilled[r,c]
        usage[r,q]  ≤  limit_rq
        spilled[r,c] = usage[r,c], or spill[r,c] ≥ usage[r,c] − kept_rc where c keeps quota from lending

    in thousandths of GPUs; limits and kept quota as in `models.queue.QueueLimits`.
    """
    for budget in problem.budgets:
        terms, fixed = _own_usage(problem, x, budget)
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
                yield row(
                    "queues",
                    (*key, "spill"),
                    [*terms[queue], (spill, -1)],
                    upper=budget.kept[queue] - fixed[queue],
                )
                terms[parent].append((spill, 1))


def _own_usage(problem: Problem, x: Columns, budget: QueueBudget) -> tuple[list[list[Term]], list[int]]:
    """Usage directly in each queue: terms by queue, and what running jobs hold."""
    terms: list[list[Term]] = [[] for _ in problem.queues]
    for (index, group), column in x.replicas.items():
        job_class = problem.classes[index]
        if job_class.shape.quota_milli and budget.counts(problem.groups[group].gpu_model):
            terms[job_class.queue].append((column, job_class.shape.quota_milli))
    return terms, list(budget.own)
