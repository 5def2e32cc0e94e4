"""
Finer model: the block model of a whole problem in which only nodes that are alike today share a group.

The block model sums its rows over all nodes of a group. What a node has free and what preemption frees there
may go to different jobs (C16), and the sums lose which of them goes with which. So many jobs of its answer
find no place, and its bound is above what any plan reaches. The rows hold for any part of a group as well:
with a group for each kind of node both are nearly exact. It has more columns, up to one for each replica type
and node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.models.formulation.structure.replica_types import replica_types_of
from gpuplan.models.plan.solution import DesiredState, SolveStatus
from gpuplan.solvers.exact import milp
from gpuplan.solvers.improve.odd_shares import asks_for_odd_shares
from gpuplan.solvers.improve.pop_partition import partition_count
from gpuplan.solvers.rounding.disaggregate import disaggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.placement import Placement
    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.models.problem.problem import NodeGroup, Problem
    from gpuplan.solvers.interface import Budget, SolverAnswer
    from gpuplan.solvers.params.improve import FinerModelParams
    from gpuplan.solvers.params.search import SearchParams
    from gpuplan.solvers.state.ledger import Ledger


class FinerAnswer(NamedTuple):
    """What the finer model of a problem led to; points are relative to changing nothing."""

    plan: Ledger | None
    """Its answer, placed on nodes; None if it gave none."""
    bound: int | None
    """No plan has more points; None if nothing was proven."""


def by_kind(problem: Problem) -> Problem:
    """
    The same problem with a node group for each kind of node.

    Nodes of a group are of one kind if they have as much free, and the running jobs that may leave them are
    equal in shape, replicas, rank, claims and allowed changes. A node that has free GPUs beside such jobs,
    such jobs of several kinds, or GPUs in MIG mode is a kind by itself: there it matters which job takes
    what, node by node. Nodes that pools may add stay one group.
    """
    leaving = _leaving(problem)
    groups: list[NodeGroup] = []
    parts: list[tuple[int, ...]] = []
    for group in problem.groups:
        pieces = [group]
        if group.pool is None:
            kinds: dict[object, list[int]] = defaultdict(list)
            for node in group.nodes:
                kinds[_kind(problem, node, leaving[node])].append(node)
            pieces = [replace(group, nodes=tuple(nodes)) for nodes in kinds.values()]
        parts.append(tuple(range(len(groups), len(groups) + len(pieces))))
        groups += pieces

    def split(those: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(part for group in those for part in parts[group])

    def option_of(option: Option) -> Option:
        later = tuple(split(those) for those in option.later_groups)
        return replace(option, groups=split(option.groups), later_groups=later)

    def class_of(job_class: JobClass) -> JobClass:
        points = tuple((part, lost) for group, lost in job_class.node_points for part in parts[group])
        options = tuple(map(option_of, job_class.options))
        return replace(job_class, options=options, node_points=points)

    return replace(problem, groups=tuple(groups), classes=tuple(map(class_of, problem.classes)))


def _leaving(problem: Problem) -> dict[int, Counter[int]]:
    """Replicas of running jobs that may leave, by node and job."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for index, incumbent in enumerate(problem.incumbents):
        if incumbent.stop_points is not None or incumbent.shrinkable or incumbent.move is not None:
            for hold in incumbent.holds:
                if hold.node is not None:
                    found[hold.node][index] += 1
    return found


def _kind(problem: Problem, number: int, leaving: Counter[int]) -> object:
    """Equal for nodes of one kind."""
    node = problem.nodes[number]
    jobs = Counter(
        (
            one.shape,
            replicas,
            len(one.holds) > replicas,
            one.rank,
            one.claims,
            one.move is None,
            one.shrinkable,
        )
        for one, replicas in ((problem.incumbents[index], count) for index, count in leaving.items())
    )
    if node.mig or len(jobs) > 1 or (jobs and any(node.gpus)):
        return number
    return tuple(sorted(node.gpus)), node.amounts, *jobs.items()


def finer_size(finer: Problem) -> int:
    """Pairs of a replica type and a node group that it may use: most columns of a model."""
    return sum(len(groups) for kind in replica_types_of(finer) for groups in kind.groups)


def finer_problem(problem: Problem, budget: Budget) -> Problem | None:
    """The problem by kinds of nodes; None if its model takes more time than there is, or is no other."""
    params = budget.params.finer_model
    finer = _candidate(problem, budget.params)
    if finer is None:
        return None
    if budget.ticks is None:
        return finer if _seconds(finer, params) <= budget.seconds else None
    return finer if finer_size(finer) <= params.size_per_tick * budget.ticks else None


def seconds_of_finer_model(problem: Problem, params: SearchParams) -> float:
    """Seconds that the finer model of a problem needs; infinite if it has none."""
    finer = _candidate(problem, params)
    return inf if finer is None else _seconds(finer, params.finer_model)


def _seconds(finer: Problem, params: FinerModelParams) -> float:
    return float((finer_size(finer) / params.size_of_one_second) ** 1.5)


def _candidate(problem: Problem, params: SearchParams) -> Problem | None:
    """
    The problem by kinds of nodes; None if that is no other, or too large for any time.

    Clusters that are solved in parts have none, nor has a queue of odd shares, which it counts no better.
    """
    if not params.finer_model.enabled or problem.slots > 1:
        return None
    if partition_count(problem, params.partition) > 1 or asks_for_odd_shares(problem):
        return None
    finer = by_kind(problem)
    if len(finer.groups) == len(problem.groups) or finer_size(finer) > params.finer_model.max_size:
        return None
    return finer


def solve_finer_model(
    problem: Problem,
    finer: Problem,
    running: tuple[Placement, ...],
    known: DesiredState,
    budget: Budget,
    tell: Callable[[FinerAnswer], object],
) -> FinerAnswer:
    """
    Solve the finer model of a problem, beginning with a known plan.

    `tell` gets each new bound, and the placed vertex of the linear relaxation.
    """
    x = Columns(finer, budget.params.formulation)
    formulation = formulate(finer, x)
    hint = encode(x, DesiredState(running))
    idle = formulation.points(hint)
    with suppress(KeyError):  # a column of the known plan is missing
        hint = encode(x, known)
    bounds: list[int] = []

    def placed(values: Ints) -> Ledger:
        return disaggregate(problem, decode(x, values), once=True, params=budget.params.placement)[0]

    def hear(answer: SolverAnswer) -> None:
        better = answer.bound is not None and (not bounds or answer.bound < bounds[-1])
        if answer.bound is not None and better:
            bounds.append(answer.bound)
        vertex = answer.values if answer.is_vertex else None
        if better or vertex is not None:
            plan = None if vertex is None else placed(vertex.clip(0, formulation.upper))
            tell(FinerAnswer(plan, bounds[-1] - idle if bounds else None))

    params = budget.params
    highs = replace(
        params.exact.highs,
        shares_of_free_columns=params.finer_model.shares_of_free_columns,
        share_of_core=params.finer_model.share_of_core,
    )
    part = replace(budget, params=replace(params, exact=replace(params.exact, highs=highs)))
    answer = milp.solve(formulation, part, hint, hear)
    hear(answer)
    bound = bounds[-1] - idle if bounds else None
    known_values = answer.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)
    plan = placed(answer.values) if known_values and answer.values is not None else None
    return FinerAnswer(plan, bound)
