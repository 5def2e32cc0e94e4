"""The plain model's objective, and the rows that say what its terms count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.rows import Ints, Term
    from gpuplan.models.problem.problem import Problem
    from tests.oracle.columns import ReferenceColumns
    from tests.oracle.index import Candidate


def objective(problem: Problem, x: ReferenceColumns) -> tuple[Ints, int]:
    """Points of one unit of each column, and the constant beside them."""
    points = np.zeros(len(x.upper), dtype=np.int64)
    for candidate in x.candidates:
        for column, worth in _of_candidate(problem, x, candidate):
            points[column] += worth
    for column, worth in (*_of_incumbents(problem, x), *_of_nodes(problem, x), *_of_mig(problem, x)):
        points[column] += worth
    for position, each in enumerate(problem.guarantees):
        points[x["missing", position]] -= each.price
    for node, position, _ in x.meetings():
        points[x["meet", node, position]] -= problem.charges.interference[position][2]
    constant = 0
    if price := problem.charges.fragmentation:
        for node in range(len(problem.nodes)):
            free, terms = x.free_gpus(node)
            constant -= price * free
            for column, coefficient in terms:
                points[column] -= price * coefficient
            points[x["blocks", node]] += price * problem.charges.reference_gpus
    return points, constant


def _of_candidate(problem: Problem, x: ReferenceColumns, candidate: Candidate) -> Iterator[Term]:
    """Completion, data, preference, and domains spanned."""
    job_class, key = candidate.job_class, candidate.key
    node_points = dict(job_class.node_points)
    yield x["placed", *key], job_class.fixed_points
    for option in job_class.options:
        if not job_class.per_replica:
            yield x["on", *key, option.gpu_model], option.points
        yield from ((part.column, part.points) for part in x.further.get((*key, option.gpu_model), ()))
        for node in x.nodes(option):
            each = option.points if job_class.per_replica else 0
            yield x["replicas", *key, node], each + node_points.get(x.group_of[node], 0)
    if (level := job_class.together.preferred) is not None and job_class.role is not ClassRole.GROW:
        yield x["placed", *key], problem.charges.domain
        for domain in {x.domain(level, node) for node in x.nodes_of(candidate)}:
            yield x["present", *key, level, domain], -problem.charges.domain


def _of_incumbents(problem: Problem, x: ReferenceColumns) -> Iterator[Term]:
    """What stopping, leaving and shrinking cost, and what leaving nodes to be drained brings."""
    for index, incumbent in enumerate(problem.incumbents):
        stop, *moves = x.away(index)
        yield stop, (incumbent.stop_points or 0) + incumbent.leave_reward
        for move in moves:
            yield move, incumbent.leave_points + incumbent.leave_reward
        yield x["shrink", index], incumbent.resize_points
        yield x["off", index], incumbent.leave_reward
        for position in range(len(incumbent.holds)):
            if not incumbent.scaled:
                yield x["gives", index, position], sum(incumbent.shrink_points[:1])
        yield from ((part.column, part.points) for part in x.fewer.get(index, ()))


def _of_nodes(problem: Problem, x: ReferenceColumns) -> Iterator[Term]:
    for node in sorted(x.optional):
        pool = problem.groups[x.group_of[node]].pool
        if pool is not None:
            yield x["open", node], -problem.pools[pool].opening_points
    for node, free in enumerate(problem.nodes):
        if (close := x.index.get(("close", node))) is not None:
            yield close, free.closing_points or 0


def _of_mig(problem: Problem, x: ReferenceColumns) -> Iterator[Term]:
    """Instances created and GPUs switched to MIG mode."""
    for node, gpu in x.gpus():
        state = x.mig_gpus.get((node, gpu))
        present = {*state.idle, *state.used} if state else set()
        for instance, columns in x.slices(node, gpu).items():
            if instance not in present:
                for column in columns:
                    yield column, -problem.charges.repartition
        yield x["switched", node, gpu], -(problem.charges.switch_mode or 0)


def drain(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """off[v] ≤ gives[v,k]   ∀ replicas k of v on nodes that take nothing new; 0 without any."""
    for index in range(len(problem.incumbents)):
        off, outside = x["off", index], x.outside(index)
        if not outside:
            yield row("drain", (index,), [(off, 1)], upper=0)
        for position in outside:
            yield row("drain", (index, position), [(off, 1), (x["gives", index, position], -1)], upper=0)


def guarantee(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """1000 · missing[i] + held by its queues  ≥  owed."""
    for position, each in enumerate(problem.guarantees):
        held = [(column, milli) for queue, column, milli in x.usage(each.resource) if queue in each.queues]
        terms = [*held, (x["missing", position], MILLI)]
        yield row("guarantee", (position,), terms, lower=each.owed - each.own)


def interference(_problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """meet[n,i] ≥ present[a,n] + present[b,n] − 1."""
    for node, position, pairs in x.meetings():
        for number, (one, other) in enumerate(pairs):
            terms = [(one, 1), (other, 1), (x["meet", node, position], -1)]
            yield row("interference", (node, position, number), terms, upper=1)


def scaling(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    Replicas beyond the fewest, and those given up, are counted by what they bring.

        Σ_p further[c,j,m,p]  =  Σ_n on m replicas[c,j,n]  −  min · on[c,j,m]
        further[c,j,m,p]  ≤  width_p · on[c,j,m]
        Σ_p fewer[v,p]  =  Σ_k gives[v,k]
    """
    for candidate in x.candidates:
        for option in candidate.job_class.options:
            where = (*candidate.key, option.gpu_model)
            if where in x.further:
                terms = [(x["replicas", *candidate.key, node], 1) for node in x.nodes(option)]
                terms += [(part.column, -1) for part in x.further[where]]
                terms.append((x["on", *where], -candidate.job_class.minimum))
                yield row("scaling", (*candidate.key, option.gpu_model or ""), terms, lower=0, upper=0)
                for number, part in enumerate(x.further[where]):
                    most = [(part.column, 1), (x["on", *where], -part.width)]
                    yield row("scaling", (*candidate.key, option.gpu_model or "", number), most, upper=0)
    for index, found in x.fewer.items():
        terms = [(x["gives", index, at], 1) for at in range(len(problem.incumbents[index].holds))]
        yield row("scaling", (index,), [*terms, *((part.column, -1) for part in found)], lower=0, upper=0)


def fragmentation(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """Blocks of the reference size are free: size · blocks[n] ≤ wholly free GPUs of n."""
    if problem.charges.fragmentation:
        for node in range(len(problem.nodes)):
            free, terms = x.free_gpus(node)
            needed = [(x["blocks", node], problem.charges.reference_gpus)]
            needed += [(column, -coefficient) for column, coefficient in terms]
            yield row("fragmentation", (node,), needed, upper=free)
