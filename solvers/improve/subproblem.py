"""
The smaller problem about some nodes of a plan, after jobs were lifted off them.

In a neighbourhood each node is its own group: where sizes divide each other, the block model is then exact.
The nodes of a part of a cluster are many; they keep the groups of the whole problem.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.problem.problem import FreeNode, Problem
from gpuplan.models.units import MILLI
from gpuplan.solvers.params.improve import LnsParams
from gpuplan.solvers.state.placement_profile import NO_AFFINITY

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.models.problem.problem import Guarantee, QueueBudget
    from gpuplan.solvers.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A smaller problem, and what its indices mean in the whole one."""

    problem: Problem
    nodes: tuple[int, ...]
    classes: tuple[int, ...]
    incumbents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ResourceShare:
    """What one part of a cluster may use while other parts are solved at the same time."""

    elsewhere: tuple[int, ...]
    """By class, waiting jobs that other parts may start."""
    budgets: tuple[QueueBudget, ...]
    """Budgets with limits that leave the other parts their room."""
    met_elsewhere: tuple[int, ...]
    """By guarantee, thousandths of GPUs that the other parts must win; negative for what they may lose."""
    parts: int = 1
    """Number of parts, which share what disruption budgets leave."""


def build_subproblem(
    ledger: Ledger, nodes: Sequence[int], share: ResourceShare | None = None, params: LnsParams = LnsParams()
) -> Neighbourhood:
    """The problem about nodes from which jobs were lifted; with a share, about a part of a cluster."""
    return _SubproblemBuilder(ledger, nodes, share, params).build()


def is_freely_placed(ledger: Ledger, index: int) -> bool:
    """True if only room, quota and locality decide where a job of a class goes."""
    job_class = ledger.problem.classes[index]
    return (
        job_class.starts_alone
        and job_class.startable
        and not job_class.firm
        and not job_class.shape.mig
        and ledger.tenants[index].affinity == NO_AFFINITY
    )


def incumbents_on(ledger: Ledger, nodes: Iterable[int]) -> list[int]:
    """Running jobs with places on some nodes, whatever their disruption."""
    on_node = ledger.disruptions.on_node
    return sorted({index for node in nodes for index in on_node.get(node, ())})


def is_inside(incumbent: Incumbent, inside: Container[int]) -> bool:
    """True if all places of a running job are on some nodes."""
    return all(hold.node in inside for hold in incumbent.holds)


class _SubproblemBuilder:
    def __init__(
        self, ledger: Ledger, nodes: Sequence[int], share: ResourceShare | None, params: LnsParams
    ) -> None:
        self.ledger, self.problem, self._params = ledger, ledger.problem, params
        self.nodes, self.share = nodes, share
        self.position = {node: at for at, node in enumerate(nodes)}

    def build(self) -> Neighbourhood:
        ledger, problem = self.ledger, self.problem
        incumbents = [
            index
            for index in incumbents_on(ledger, self.nodes)
            if ledger.disruptions[index] is None and self._may_leave(problem.incumbents[index])
        ]
        classes = self._classes()
        smaller = Problem(
            resources=problem.resources,
            nodes=tuple(_free_node(ledger, node) for node in self.nodes),
            groups=tuple(
                replace(group, nodes=positions, pool=None)
                for positions in self.groups
                for group in (problem.groups[ledger.group_of[self.nodes[positions[0]]]],)
            ),
            classes=tuple(each for _, each in classes),
            queues=problem.queues,
            budgets=tuple(
                replace(budget, own=tuple(ledger.queues.quota.held(index)), releases=())
                for index, budget in enumerate(problem.budgets if self.share is None else self.share.budgets)
            ),
            incumbents=tuple(self._incumbent(problem.incumbents[index]) for index in incumbents),
            guarantees=tuple(self._guarantees()),
            domains=tuple((level, tuple(of[node] for node in self.nodes)) for level, of in problem.domains),
            charges=problem.charges,
            edges=problem.edges,
            disruption_limits=ledger.disruptions.budgets.remaining(
                {index: position for position, index in enumerate(incumbents)},
                1 if self.share is None else self.share.parts,
            ),
            floors=tuple(
                (priority, floor - ledger.served[priority])
                for priority, floor in problem.floors
                if floor > ledger.served[priority]
            ),
        )
        known = tuple(index for index, _ in classes)
        return Neighbourhood(smaller, tuple(self.nodes), known, tuple(incumbents))

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Positions of the nodes of each group."""
        # A neighbourhood has few nodes, so counts of each node cost little, and rounding loses nothing.
        if self.share is None:
            return [(at,) for at in range(len(self.nodes))]
        members: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at, node in enumerate(self.nodes):
            # A job that may use one of these nodes may use all of them.
            members[self.ledger.group_of[node], *self.ledger.preemption_ranks.least[:, node].tolist()].append(
                at
            )
        return [tuple(positions) for _, positions in sorted(members.items())]

    def _guarantees(self) -> Iterator[Guarantee]:
        missing = self.ledger.queues.quota.missing
        for index, guarantee in enumerate(self.problem.guarantees):
            own = guarantee.owed - missing[index]
            if self.share is not None:
                own = max(0, own + self.share.met_elsewhere[index])
            yield replace(guarantee, own=own)

    def _may_leave(self, incumbent: Incumbent) -> bool:
        """True if a running job that has kept its places may be asked to give them up."""
        ledger = self.ledger
        return (
            (incumbent.stop_points is not None or incumbent.shrinkable)
            and not incumbent.shape.mig
            and is_inside(incumbent, self.position)
            and all(
                ledger.preemption_ranks.allows(hold.node, incumbent)
                for hold in incumbent.holds
                if hold.node is not None
            )
            and (incumbent.grow is None or not ledger.is_placed(incumbent.grow))
        )

    def _incumbent(self, incumbent: Incumbent) -> Incumbent:
        holds = tuple(
            hold._replace(node=None if hold.node is None else self.position[hold.node])
            for hold in incumbent.holds
        )
        # Classes that move, grow or resume a running job reach beyond these nodes; here it stops or stays.
        return incumbent._replace(holds=holds, move=None, grow=None, resume=None)

    def _classes(self) -> list[tuple[int, JobClass]]:
        """
        Classes that may use the nodes, each with as many jobs as there may be room for.

        Of classes that take the same, those with fewer points are left out if the others fill the nodes
        already.
        """
        classes = self.problem.classes
        room: dict[object, int] = {}
        order = sorted(
            (
                index
                for index in range(len(classes))
                if self._left(index) and is_freely_placed(self.ledger, index)
            ),
            key=lambda index: (self.problem.precedence(index), index),
        )
        found = []
        for index in order:
            job_class = classes[index]
            if not (options := tuple(self._options(index))):
                continue
            key = (job_class.shape, job_class.minimum, job_class.together, options[0].groups, job_class.queue)
            if key not in room:
                room[key] = self._most(job_class)
            if jobs := min(self._left(index), room[key] // job_class.minimum):
                room[key] -= jobs * job_class.minimum
                found.append((index, self._narrowed(job_class, options, jobs)))
        return sorted(found, key=lambda each: each[0])

    def _left(self, index: int) -> int:
        left = self.ledger.jobs_left(index)
        return left if self.share is None else left - self.share.elsewhere[index]

    def _most(self, job_class: JobClass) -> int:
        """Replicas of a class for which there are GPUs if the nodes are empty."""
        groups, shape = self.problem.groups, job_class.shape
        most = 0
        for node in self.nodes:
            gpus = groups[self.ledger.group_of[node]].gpus
            if shape.gpus:
                most += gpus // shape.gpus
            elif shape.gpu_milli:
                most += gpus * (MILLI // shape.gpu_milli)
            else:
                most += self._params.max_replicas_without_gpu
        return most

    def _options(self, index: int) -> Iterator[Option]:
        """Options of a class with those of the groups that accept its rank."""
        first = np.array([self.nodes[positions[0]] for positions in self.groups], dtype=np.int64)
        welcome = self.ledger.feasibility.rank_admits(self.ledger.tenants[index], first).tolist()
        groups_of = [self.ledger.group_of[node] for node in first.tolist()]
        for option in self.problem.classes[index].options:
            groups = tuple(at for at, group in enumerate(groups_of) if welcome[at] and group in option.groups)
            if groups:
                yield replace(option, groups=groups, later_groups=(groups,))

    def _narrowed(self, job_class: JobClass, options: tuple[Option, ...], jobs: int) -> JobClass:
        points = dict(job_class.node_points)
        by_group = (
            (at, points.get(self.ledger.group_of[self.nodes[positions[0]]], 0))
            for at, positions in enumerate(self.groups)
        )
        return replace(
            job_class,
            jobs=job_class.jobs[:jobs],
            options=options,
            node_points=tuple((at, lost) for at, lost in by_group if lost),
        )


def _free_node(ledger: Ledger, node: int) -> FreeNode:
    """Free capacity of a node now."""
    known, capacity = ledger.problem.nodes[node], ledger.capacity
    return FreeNode(
        name=known.name,
        gpus=tuple(capacity.gpu_free[node, : len(known.gpus)].tolist()),
        amounts=tuple(capacity.free[node].tolist()),
        capacity=known.capacity,
        overdrawn=known.overdrawn,
        unhealthy=known.unhealthy,
        gpu_groups=known.gpu_groups,
    )
