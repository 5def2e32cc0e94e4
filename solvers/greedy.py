"""Greedy: an answer in milliseconds, always; the best paid per scarce resource goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solvers.ledger import Ledger

if TYPE_CHECKING:
    from planner.models.problem import Problem


def greedy(problem: Problem) -> Ledger:
    """Fill an empty ledger."""
    ledger = Ledger(problem)
    fill(ledger)
    return ledger


def fill(ledger: Ledger) -> None:
    """
    Place whatever still fits, in the order of `ranking`, and let elastic jobs grow into what is left.

    Afterwards no unplaced job, nor one more replica of an elastic one, fits anywhere.
    """
    problem = ledger.problem
    left = [len(job_class.jobs) for job_class in problem.classes]
    for placed in ledger.placed:
        left[placed.job_class] -= 1
    for index in ranking(problem):
        for option in problem.classes[index].options:
            left[index] -= ledger.place(index, option, jobs=left[index])
    for position, placed in enumerate(ledger.placed):
        if problem.classes[placed.job_class].elastic:
            ledger.grow(position)


def ranking(problem: Problem) -> list[int]:
    """
    Classes, the one to place first in front: most points per GPU, to two digits; then the larger replica.

    A job without GPUs counts as the GPUs that stand for its dominant share of the cluster (Ghodsi et al.,
    Dominant Resource Fairness, NSDI 2011). Larger first among the equally dense is first fit decreasing:
    small replicas fill what large ones leave.
    """
    totals = [sum(column) for column in zip(*(node.amounts for node in problem.nodes), strict=True)]
    gpus = sum(sum(node.gpus) for node in problem.nodes)

    def rank(index: int) -> tuple[float, int, tuple[int, ...], int]:
        job_class = problem.classes[index]
        shape = job_class.shape
        size: float = shape.quota_milli
        if not size:
            size = gpus * max(
                (amount / total for amount, total in zip(shape.amounts, totals, strict=True) if total),
                default=0,
            )
        density = job_class.most_points / max(1e-9, job_class.maximum * size)
        return (
            -float(f"{density:.1e}"),
            -shape.quota_milli,
            tuple(-amount for amount in shape.amounts),
            index,
        )

    return sorted(range(len(problem.classes)), key=rank)
