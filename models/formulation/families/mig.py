"""(C6) MIG."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem


def mig(problem: Problem, x: Columns) -> Iterator[Row]:  # noqa: ARG001 - every family has the same form
    """
    Newly used MIG instances overlap neither each other nor those in use, and cover the demand.

        Σ_{(π,a) covering slice z} instance[m,π,a]  ≤  free[m,z]    ∀ states m, slices z
        Σ_{π with media extensions} instance[m,π,a]  ≤  GPUs of m    ∀ m
        Σ_i need_iπ · replicas[i,t]  ≤  Σ_{m of t} Σ_a instance[m,π,a]    ∀ t, profiles π

    and the last for each node class with only the replica types that have a locality rule. free[m,z] is the
    number of GPUs of state m on which memory slice z is unused after evictions; for GPUs switched to MIG mode
    it is switched[c].
    """
    supply: dict[int, dict[str, list[Term]]] = defaultdict(lambda: defaultdict(list))
    for number, state in enumerate(x.mig):
        covering: dict[int, list[Term]] = defaultdict(list)
        for (profile, _), slices, _, column in state.instances:
            supply[state.cell][profile].append((column, -1))
            for each in slices:
                covering[each].append((column, 1))
        for each, terms in sorted(covering.items()):
            constant, givers = state.slices[each]
            given = [(column, -coefficient) for column, coefficient in givers]
            yield row("mig", (number, each), [*terms, *given], upper=constant)
        if state.switched is None and sum(x.upper[column] for column in state.media) > len(state.gpus):
            media = [(column, 1) for column in state.media]
            yield row("mig", (number, "media"), media, upper=len(state.gpus))
        elif state.switched is not None and state.media:
            media = [*((column, 1) for column in state.media), (state.switched, -1)]
            yield row("mig", (number, "media"), media, upper=0)
    for group, cells in x.cells.of_group.items():
        total = _needs(x.placed(group))
        offered: dict[str, list[Term]] = defaultdict(list)
        for cell in cells:
            located = _needs(x.shapes_on_node_class(cell))
            for profile, terms in located.items():
                total[profile] += terms
                if len(cells) > 1:
                    yield row("mig", ("cell", cell, profile), [*terms, *supply[cell][profile]], upper=0)
            for profile, terms in supply[cell].items():
                offered[profile] += terms
        for profile, terms in sorted(total.items()):
            yield row("mig", ("group", group, profile), [*terms, *offered[profile]], upper=0)


def _needs(members: Iterable[tuple[Shape, int]]) -> dict[str, list[Term]]:
    """Instances that replicas need, by profile."""
    needs: dict[str, list[Term]] = defaultdict(list)
    for shape, column in members:
        for profile, count in shape.mig:
            needs[profile].append((column, count))
    return needs
