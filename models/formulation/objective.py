"""(O) The objective: one function per term, in points, to be maximized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.problem.problem import Problem


def completion_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Weighted completion of placed jobs, less the cost of their nodes.

        Σ_{j, k} (v_jk + fixed_j + once_jk) · jobs[j,k]  +  Σ_{i, t} charge_it · replicas[i,t]
          +  Σ_{j, k, p} v_jkp · further[j,k,p]

    v_jk is w_j · completed_jk on the GPU models of tier k, less tariffs (`StartValue`). It is paid
    per replica where the number of replicas is a choice, and per part where replicas have unequal points.
    once_jk is the lateness that a start now avoids, charge_it the price of data and unmet preferences on the
    nodes of group t.
    """
    for index, kind, tier in x.tiers():
        node_points = dict(problem.classes[kind.classes[0]].node_points)
        for member in kind.classes:
            job_class = problem.classes[member]
            option = job_class.options[kind.tiers[tier][0]]
            once = job_class.fixed_points + option.once
            points[x.jobs[member, tier]] = once + (0 if kind.per_replica else option.points)
            for part in x.further.get((member, tier), ()):
                points[part.column] = part.points
        per_replica = problem.classes[kind.classes[0]].options[kind.tiers[tier][0]].points
        for group, column in x.replicas_of(index, tier):
            points[column] = node_points.get(group, 0) + (per_replica if kind.per_replica else 0)


def later_starts_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Points of jobs that start in later slots; a later completion gives fewer points (`StartValue`).

        Σ_{j, k, τ ≥ 1} v_jkτ · later[j,k,τ]
    """
    for (index, position, slot), column in x.later.starts.items():
        points[column] = problem.classes[index].options[position].later[slot] or 0


def disruption_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Loss by evictions: the value of running jobs, and the price of checkpoint, restart and lost work.

        − Σ_v ( stopped_v · stop[v] + left_v · move[v] + replica_v · shrink[v] + resized_v · resized[v] )
        − Σ_{v, p} replica_vp · fewer[v,p]        in place of shrink[v], where replicas have unequal points

    A migrating job regains its value as a job of the class that places it anew. Leaving a node that is to be
    drained adds points; here any shrink does, which is a relaxation.
    """
    for v, columns in x.fates.stopped_with.items():
        incumbent = problem.incumbents[v]
        points[columns] += (incumbent.stop_points or 0) + incumbent.leave_reward
    for v, incumbent in enumerate(problem.incumbents):
        if v in x.stop:
            points[x.stop[v]] = (incumbent.stop_points or 0) + incumbent.leave_reward
        if v in x.move:
            points[x.move[v]] = incumbent.leave_points + incumbent.leave_reward
        if v in x.shrink:
            if not incumbent.scaled:
                points[x.shrink[v]] = incumbent.shrink_points[0]
            for part in x.fates.fewer.get(v, ()):
                points[part.column] = part.points
            points[x.resized[v]] = incumbent.resize_points + incumbent.leave_reward


def mig_layout_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Price of created MIG instances and of GPUs switched to MIG mode.

        − Σ_{m, π, a not there yet} price · instance[m,π,a]  −  Σ_c price · switched[c]
    """
    charges = problem.charges
    for state in x.mig:
        for _, _, exists, column in state.instances:
            points[column] = 0 if exists else -charges.repartition
        if state.switched is not None:
            points[state.switched] = -(charges.switch_mode or 0)


def domain_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Price of each domain of the preferred level, beyond the first, over which a gang is spread.

        − price · ( Σ_{i, d} touched[i,d] − Σ_{j, k} jobs[j,k] )        over types with a preferred level
    """
    price = problem.charges.domain
    for column in x.touched.values():
        points[column] = -price
    for _, kind, tier in x.tiers():
        if kind.together.preferred is not None:
            for member in kind.classes:
                points[x.jobs[member, tier]] += price


def node_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Price of opened nodes, less that of closed nodes.

        − Σ_p price_p · open[p]  +  Σ_p price_p · close[p]
    """
    for opening in x.cells.expansions:
        points[opening.column] = -problem.pools[opening.pool].opening_points
    for closing in x.cells.reductions:
        points[closing.column] = closing.points


def shortfall_term(problem: Problem, x: Columns, points: Ints) -> None:
    """
    Price of GPUs missing from guarantees, and of free GPUs that the reference gang cannot use.

        − Σ_g price_g · missing[g]  −  price · Σ_c waste[c]
    """
    for index, column in x.missing.items():
        points[column] = -problem.guarantees[index].price
    for column in x.waste.values():
        points[column] = -problem.charges.fragmentation


TERMS: Final[tuple[Callable[[Problem, Columns, Ints], None], ...]] = (
    completion_term,
    later_starts_term,
    disruption_term,
    mig_layout_term,
    domain_term,
    node_term,
    shortfall_term,
)
"""The terms of the objective, in reading order."""


def objective(problem: Problem, x: Columns) -> Ints:
    """Points of one unit of each column."""
    points = np.zeros(len(x.upper), dtype=np.int64)
    for term in TERMS:
        term(problem, x, points)
    return points
