"""
Partition a large cluster into parts that can be solved separately.

Parts are alike: each gets an equal share of the racks of every kind, of the waiting jobs of every kind, of
the remaining quota of queues, and of the shortage of guarantees. Small parts would lose what they cannot
exchange; these are large. (D. Narayanan et al., "Solving Large-Scale Granular Resource Allocation Problems
Efficiently with POP", SOSP 2021.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuplan.models.units import MILLI
from gpuplan.solvers.improve.destroy import destroyable_nodes
from gpuplan.solvers.improve.subproblem import ResourceShare, is_freely_placed

if TYPE_CHECKING:
    import numpy as np

    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from gpuplan.solvers.params.improve import PartitionParams
    from gpuplan.solvers.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes of a part, and its share of what all parts share."""

    nodes: tuple[int, ...]
    share: ResourceShare


def partition_count(problem: Problem, params: PartitionParams) -> int:
    """Number of parts of a cluster; 1 if it is solved as a whole."""
    gpus = sum(group.gpus * len(group.nodes) for group in problem.groups)
    jobs = sum(len(job_class.jobs) for job_class in problem.classes)
    large = gpus >= params.many_gpus or jobs >= params.many_jobs
    divided = params.enabled and large and problem.slots == 1
    return max(1, gpus // params.gpus_per_part) if divided else 1


def partition_cluster(ledger: Ledger, parts: int, chance: np.random.Generator) -> list[Partition]:
    """Random parts that together cover each node that may be in a neighbourhood exactly once."""
    nodes = _nodes(ledger, parts, chance)
    jobs = _jobs(ledger, nodes, chance)
    left = [ledger.jobs_left(index) for index in range(len(ledger.problem.classes))]
    budgets = tuple(
        _shared(budget, ledger.queues.quota.held(index), parts)
        for index, budget in enumerate(ledger.problem.budgets)
    )
    # All parts together must win what is missing, and may lose what is held beyond what is owed.
    met = tuple(missing - _whole(missing, parts) for missing in ledger.queues.quota.missing)
    return [
        Partition(
            tuple(sorted(those)),
            ResourceShare(
                tuple(all_of - dealt[index] for index, all_of in enumerate(left)), budgets, met, parts
            ),
        )
        for those, dealt in zip(nodes, jobs, strict=True)
    ]


def _whole(missing: int, parts: int) -> int:
    """One part's share of what is missing from a guarantee, in whole GPUs."""
    return -(-missing // (MILLI * parts)) * MILLI


def _nodes(ledger: Ledger, parts: int, chance: np.random.Generator) -> list[list[int]]:
    """Nodes of each part; domains stay whole if they are small enough."""
    nodes = destroyable_nodes(ledger)
    domain = _domains(ledger.problem, len(nodes) // parts)
    members: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        members[domain[node]].append(node)
    blocks = list(members.values())
    order = sorted(
        chance.permutation(len(blocks)).tolist(),
        key=lambda at: sorted(Counter(ledger.group_of[node] for node in blocks[at]).items()),
    )
    found: list[list[int]] = [[] for _ in range(parts)]
    for turn, at in enumerate(order):
        found[turn % parts] += blocks[at]
    return [those for those in found if those]


def _domains(problem: Problem, most: int) -> tuple[int, ...]:
    """By node, what stays together: its domain of the widest level of which several fit into a part."""
    widest = tuple(range(len(problem.nodes)))
    fewest = len(widest)
    for _, of in problem.domains:
        sizes = Counter(of)
        if len(sizes) < fewest and 2 * max(sizes.values()) <= most:
            widest, fewest = of, len(sizes)
    return widest


def _jobs(ledger: Ledger, nodes: list[list[int]], chance: np.random.Generator) -> list[Counter[int]]:
    """
    Waiting jobs of each class that each part may start.

    Similar jobs are dealt to the parts in turn, in order of precedence.
    """
    problem = ledger.problem
    groups = [frozenset(ledger.group_of[node] for node in those) for those in nodes]
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, job_class in enumerate(problem.classes):
        if ledger.jobs_left(index) and is_freely_placed(ledger, index):
            alike[_kind(job_class)].append(index)
    dealt: list[Counter[int]] = [Counter() for _ in nodes]
    for members in alike.values():
        wanted = {group for option in problem.classes[members[0]].options for group in option.groups}
        takers = [part for part, those in enumerate(groups) if not those.isdisjoint(wanted)]
        turn = int(chance.integers(2**31))
        for index in sorted(members, key=problem.precedence) if takers else ():
            left = ledger.jobs_left(index)
            for at in range(min(left, len(takers))):
                part = takers[(turn + at) % len(takers)]
                dealt[part][index] += (left - at - 1) // len(takers) + 1
            turn += left
    return dealt


def _kind(job_class: JobClass) -> tuple[object, ...]:
    """Key of jobs that take the same from the same nodes and queues."""
    options = tuple(option.groups for option in job_class.options)
    return job_class.shape, job_class.minimum, job_class.together, job_class.queue, options


def _shared(budget: QueueBudget, held: list[int], parts: int) -> QueueBudget:
    """A budget that leaves each part its share of the remaining room of queues."""
    usage = budget.usage_up_the_tree(held)

    def narrow(limits: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(
            limit if limit is None or limit <= used else used + (limit - used) // parts
            for limit, used in zip(limits, usage, strict=True)
        )

    return replace(budget, limit=narrow(budget.limit), firm=narrow(budget.firm))
