"""(C2) Gangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.problem import Problem


def gang(problem: Problem, x: Columns) -> Iterator[Row]:  # noqa: ARG001 - every family has the same form
    """
    All replicas of a job are placed or none; the replicas of a gang are on one GPU model, its tier.

        min_i · Σ_{j ∈ i} jobs[j,k]  ≤  Σ_{t ∈ k} replicas[i,t]  ≤  max_i · Σ_{j ∈ i} jobs[j,k]    ∀ i, k

    with located[i,c] in place of replicas[i,t] for replica types with a locality rule, here and below. Where
    further replicas have unequal points, they are counted part by part:

        Σ_p further[j,k,p]  =  Σ_{t ∈ k} replicas[i,t]  −  min_i · jobs[j,k]
        further[j,k,p]  ≤  width_p · jobs[j,k]    ∀ parts p
    """
    for index, kind, tier in x.tiers():
        replicas = [(column, 1) for _, column in x.replicas_of(index, tier)]
        jobs = [x.jobs[member, tier] for member in kind.classes]
        at_most = [*replicas, *((column, -kind.maximum) for column in jobs)]
        if kind.rigid:
            yield row("gang", (index, tier), at_most, lower=0, upper=0)
        else:
            at_least = [*replicas, *((column, -kind.minimum) for column in jobs)]
            yield row("gang", (index, tier, "min"), at_least, lower=0)
            yield row("gang", (index, tier, "max"), at_most, upper=0)
        for member in kind.classes:
            if (member, tier) in x.further:
                yield from _parts(x, (index, tier), member, at_least)


def _parts(x: Columns, where: tuple[int, int], member: int, beyond: list[Term]) -> Iterator[Row]:
    """Rows of the parts of replicas `beyond` the minimum, for the one class of a replica type."""
    parts, jobs = x.further[member, where[1]], x.jobs[member, where[1]]
    minus = [(part.column, -1) for part in parts]
    yield row("gang", (*where, "further"), [*beyond, *minus], lower=0, upper=0)
    for number, part in enumerate(parts):
        yield row("gang", (*where, "part", number), [(part.column, 1), (jobs, -part.width)], upper=0)
