"""Snapshots in which running jobs hold more than there is of something."""

from __future__ import annotations


def overfull(problem):
    """
    True if CPU, power or quota is held beyond what there is.

    What may come in the place of jobs that leave then depends on how much must be paid back first, which the
    rows of both models relax: their optimum is a bound, and may be out of reach.
    """
    owed = any(node.overdrawn for node in problem.nodes) or any(cap.left < 0 for cap in problem.power_caps)
    return owed or any(budget.limit != budget.firm for budget in problem.budgets)
