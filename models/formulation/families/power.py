"""(C13) Power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.problem import Problem


def power(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Whole GPUs in use in a rack draw no more than what its cap leaves.

        Σ_{c in the rack} watts_c · ( Σ_i g_i · replicas[i,t] − freed[c] )  ≤  left    ∀ racks with a cap

    If running jobs draw more than the cap, left is 0 there, and fresh[h] says whether a new job comes to the
    rack:

        drawn  ≤  M · fresh[h],    drawn − freed  ≤  left · fresh[h]

    with left negative there. freed[c] is what evictions from the nodes of c release. Power that
    running jobs draw on nodes of the rack where no job may start is added to left when they leave. Shares and
    MIG instances are not counted here, so the rows are a relaxation; caps of single nodes are a resource of
    (C5).
    """
    for number, cap in enumerate(problem.power_caps):
        watts = dict(zip(cap.nodes, cap.watts, strict=True))
        terms: list[Term] = []
        for position, cell in enumerate(x.cells.all):
            if cell.nodes[0] in watts:
                columns, sizes = x.block_users(position)
                per_gpu = MILLI * watts[cell.nodes[0]]
                terms += [
                    (int(column), per_gpu * int(size)) for column, size in zip(columns, sizes, strict=True)
                ]
        for departure, column in x.out.items():
            if departure.node in watts:
                freed = sum(
                    problem.incumbents[v].shape.quota_milli
                    for v, _ in x.eviction_patterns.given_up(departure)
                )
                terms.append((column, -watts[departure.node] * freed))
        for node in sorted(x.eviction_patterns.crowded & watts.keys()):
            for v, positions in x.eviction_patterns.holds[node].items():
                freed = watts[node] * problem.incumbents[v].shape.quota_milli
                terms += [(column, -freed * len(positions)) for column in x.fates.leaves(v)]
                if (v, node) in x.fates.given:
                    terms.append((x.fates.given[v, node], -freed))
        for v, drawn in cap.elsewhere:
            terms += [(column, -drawn) for column in x.fates.leaves(v)]
            if v in x.shrink:
                terms.append((x.resized[v], -drawn))
        if terms:
            yield row("power", (number,), terms, upper=max(0, cap.left))
        if (fresh := x.fresh_power.get(number)) is not None:
            # A job that migrates within the rack is new there too, so all usage counts.
            most = sum(coefficient * x.upper[column] for column, coefficient in terms if coefficient > 0)
            users = [(column, coefficient) for column, coefficient in terms if coefficient > 0]
            yield row("power", (number, "new"), [*users, (fresh, -most)], upper=0)
            yield row("power", (number, "firm"), [*terms, (fresh, -cap.left)], upper=0)
