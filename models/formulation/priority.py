"""(C17) Priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Row, Term
    from gpuplan.models.problem.problem import Problem


def priority(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Points of jobs of a higher priority are not given up for jobs of lower priorities.

        Σ_{j ∈ u, k} (v_jk + fixed_j + once_jk) · jobs[j,k] + Σ_{j ∈ u, k, τ} v_jkτ · later[j,k,τ] ≥ floor_u

    For all priorities u except the lowest. floor_u is what the classes of u earn if those of lower priorities
    do not exist. v_jk is paid per replica where the number of replicas is a choice, or per part (`further`).
    """
    for level, floor in problem.floors:
        terms = [*_now(problem, x, level), *_later(problem, x, level)]
        yield row("priority", (level,), terms, lower=floor)


def _now(problem: Problem, x: Columns, level: int) -> Iterator[Term]:
    for index, kind, tier in x.tiers():
        for member in kind.classes:
            job_class = problem.classes[member]
            if job_class.priority != level or job_class.role.replaces_incumbent:
                continue
            option = job_class.options[kind.tiers[tier][0]]
            once = job_class.fixed_points + option.once
            yield x.jobs[member, tier], once + (0 if kind.per_replica else option.points)
            if kind.per_replica:
                yield from ((column, option.points) for _, column in x.replicas_of(index, tier))
            yield from ((part.column, part.points) for part in x.further.get((member, tier), ()))


def _later(problem: Problem, x: Columns, level: int) -> Iterator[Term]:
    for (index, position, slot), column in x.later.starts.items():
        job_class = problem.classes[index]
        if job_class.priority == level and not job_class.role.replaces_incumbent:
            yield column, job_class.options[position].later[slot] or 0
