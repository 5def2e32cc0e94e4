"""
Neighbourhood: the question of the epoch asked again about a few nodes, all else staying as the plan has it.

What the plan has put on these nodes is lifted off, whoever it stopped there is put back where that is
possible, and what is then free is asked for anew by those and by all who wait. Each node is a group of its
own: where sizes divide, the block model is then exact. (Large neighbourhood search: P. Shaw, "Using
Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems", CP 1998.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.models.placement import GpuShare, Placement, Replica
from planner.models.problem import Problem
from planner.models.problem_jobs import Role
from planner.models.problem_nodes import FreeNode, NodeGroup
from planner.models.units import MILLI
from planner.solvers import leaving
from planner.solvers.company import NOBODY_MINDS
from planner.solvers.fates import Leave
from planner.solvers.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from planner.models.problem_jobs import Incumbent, JobClass, Option
    from planner.models.target import Target
    from planner.solvers.fates import Fate
    from planner.solvers.site import Placed, Site


_MANY: Final = 64
"""Replicas without GPUs that a node is asked about at most."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """What a plan had on some nodes."""

    placed: tuple[Placed, ...]
    fates: tuple[tuple[int, Fate], ...]
    """(incumbent, what became of it), of those who are back."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A smaller problem, and what its indices mean in the whole one."""

    problem: Problem
    nodes: tuple[int, ...]
    classes: tuple[int, ...]
    incumbents: tuple[int, ...]


def may_be_asked_about(ledger: Ledger) -> list[int]:
    """Nodes that a neighbourhood may have: not of pools, without MIG, under no cap on power."""
    problem = ledger.problem
    capped = {node for cap in problem.power_caps for node in cap.nodes}
    return [
        node
        for group in problem.groups
        if group.pool is None and group.gpus
        for node in group.nodes
        if not problem.nodes[node].mig
        and problem.nodes[node].closing_points is None
        and node not in capped
        and node not in ledger.closed
    ]


def lift(ledger: Ledger, nodes: Iterable[int]) -> Lifted:
    """Take off some nodes what the plan has put there and nowhere else, and put back who left there."""
    inside = frozenset(nodes)
    placed = [
        (number, each)
        for number, each in sorted(ledger.placed.items())
        if _is_free(ledger, each.job_class) and all(site.node in inside for site in each.sites)
    ]
    for number, _ in placed:
        ledger.remove(number)
    fates = []
    for index in ledger.fates.having(Leave.STOP, Leave.SHRINK):
        fate = ledger.fates[index]
        here = fate is not None and _is_inside(ledger.problem.incumbents[index], inside)
        if fate is not None and here and leaving.restore(ledger, index):
            fates.append((index, fate))
    return Lifted(tuple(each for _, each in placed), tuple(fates))


def as_it_was(asked: Neighbourhood, lifted: Lifted) -> Target | None:
    """The plan's own answer to the question; None if it is not one."""
    problem = asked.problem
    ledger = Ledger(problem)
    class_of = {index: at for at, index in enumerate(asked.classes)}
    incumbent_of = {index: at for at, index in enumerate(asked.incumbents)}
    position = {node: at for at, node in enumerate(asked.nodes)}
    for index, fate in lifted.fates:
        if index not in incumbent_of or not _leave(ledger, incumbent_of[index], fate):
            return None
    for placed in lifted.placed:
        at = class_of.get(placed.job_class)
        sites = [replace(site, node=position[site.node]) for site in placed.sites]
        if at is None or not _put(ledger, at, sites):
            return None
    return ledger.target(tuple(_running(problem, incumbent) for incumbent in problem.incumbents))


def _running(problem: Problem, incumbent: Incumbent) -> Placement:
    milli = incumbent.shape.gpu_milli or MILLI
    return Placement(
        job=incumbent.job,
        replicas=tuple(
            Replica(
                node=problem.nodes[hold.node].name,
                gpus=tuple(GpuShare(index=gpu, milli=milli) for gpu in hold.gpus),
            )
            for hold in incumbent.holds
            if hold.node is not None
        ),
    )


def neighbourhood(ledger: Ledger, nodes: Sequence[int]) -> Neighbourhood:
    """The question about nodes from which everything was lifted."""
    problem = ledger.problem
    position = {node: index for index, node in enumerate(nodes)}
    incumbents = [
        index
        for index, incumbent in enumerate(problem.incumbents)
        if ledger.fates[index] is None and _may_leave(ledger, incumbent, position)
    ]
    own = _held(ledger)
    classes = list(_asked(ledger, nodes))
    return Neighbourhood(
        Problem(
            resources=problem.resources,
            nodes=tuple(_node(ledger, node) for node in nodes),
            groups=tuple(
                NodeGroup(group.gpu_model, group.gpus, (index,))
                for index, node in enumerate(nodes)
                for group in (problem.groups[ledger.group_of[node]],)
            ),
            classes=tuple(each for _, each in classes),
            queues=problem.queues,
            budgets=tuple(
                replace(budget, own=tuple(held), returns=())
                for budget, held in zip(problem.budgets, own, strict=True)
            ),
            incumbents=tuple(_incumbent(problem.incumbents[index], position) for index in incumbents),
            guarantees=tuple(
                replace(each, own=each.owed - missing)
                for each, missing in zip(problem.guarantees, ledger.quota.missing, strict=True)
            ),
            domains=tuple((level, tuple(of[node] for node in nodes)) for level, of in problem.domains),
            charges=problem.charges,
            edges=problem.edges,
        ),
        tuple(nodes),
        tuple(index for index, _ in classes),
        tuple(incumbents),
    )


def carry_out(ledger: Ledger, asked: Neighbourhood, answer: Ledger) -> bool:
    """Do in the plan what was answered about a part of it; False if some of it is not possible."""
    for index in answer.fates.having(Leave.STOP, Leave.SHRINK):
        fate = answer.fates[index]
        if fate is None or not _leave(ledger, asked.incumbents[index], fate):
            return False
    for _, placed in sorted(answer.placed.items()):
        index = asked.classes[placed.job_class]
        if not _put(ledger, index, [replace(site, node=asked.nodes[site.node]) for site in placed.sites]):
            return False
    return True


def _put(ledger: Ledger, index: int, sites: list[Site]) -> bool:
    """Place a job of a class on very sites; False, and some may be taken, if that is not possible."""
    for site in sites:
        if not ledger.may_take(index, site):
            return False
        ledger.take_site(index, site)
    group = ledger.group_of[sites[0].node]
    option = next((each for each in ledger.problem.classes[index].options if group in each.groups), None)
    return option is not None and len(ledger.settle(index, option, sites, jobs=1)) == 1


def _leave(ledger: Ledger, index: int, fate: Fate) -> bool:
    if fate.leave is Leave.STOP:
        return leaving.stop(ledger, index)
    return leaving.shrink(ledger, index, fate.given_up)


def _is_free(ledger: Ledger, index: int) -> bool:
    """True if where a job of a class is depends on room, quota and locality alone."""
    job_class = ledger.problem.classes[index]
    return (
        job_class.role is Role.START
        and job_class.startable
        and not job_class.firm
        and job_class.co_start is None
        and not job_class.shape.mig
        and ledger.tenants[index].manners == NOBODY_MINDS
    )


def _is_inside(incumbent: Incumbent, inside: Container[int]) -> bool:
    return all(hold.node in inside for hold in incumbent.holds)


def _may_leave(ledger: Ledger, incumbent: Incumbent, inside: Container[int]) -> bool:
    """True if an incumbent that has kept its places may be asked to give them up."""
    return (
        (incumbent.stop_points is not None or incumbent.shrinkable)
        and not incumbent.shape.mig
        and _is_inside(incumbent, inside)
        and all(
            ledger.floors.allows(hold.node, incumbent.rank)
            for hold in incumbent.holds
            if hold.node is not None
        )
        and (incumbent.grow is None or not ledger.is_placed(incumbent.grow))
    )


def _incumbent(incumbent: Incumbent, position: dict[int, int]) -> Incumbent:
    holds = tuple(
        replace(hold, node=None if hold.node is None else position[hold.node]) for hold in incumbent.holds
    )
    return replace(incumbent, holds=holds, move=None, grow=None)


def _node(ledger: Ledger, node: int) -> FreeNode:
    """What is free on a node now."""
    known, capacity = ledger.problem.nodes[node], ledger.capacity
    return FreeNode(
        name=known.name,
        gpus=tuple(capacity.gpu_free[node, : len(known.gpus)].tolist()),
        amounts=tuple(capacity.free[node].tolist()),
        overdrawn=known.overdrawn,
        unhealthy=known.unhealthy,
        gpu_groups=known.gpu_groups,
    )


def _asked(ledger: Ledger, nodes: Sequence[int]) -> Iterator[tuple[int, JobClass]]:
    """
    Classes that may use the nodes, with as many of their jobs as there may be room for.

    Of classes that take the same, those that pay less are left out where the others fill the nodes already.
    """
    problem = ledger.problem
    room: dict[object, int] = {}
    order = sorted(
        (index for index in range(len(problem.classes)) if _is_free(ledger, index)),
        key=lambda index: (-problem.classes[index].most_points, index),
    )
    found = []
    for index in order:
        left, job_class = ledger.jobs_left(index), problem.classes[index]
        if not left:
            continue
        options = tuple(_options(ledger, index, nodes))
        if not options:
            continue
        key = (job_class.shape, job_class.minimum, job_class.together, options[0].groups, job_class.queue)
        if key not in room:
            room[key] = sum(_most_on(problem.groups[ledger.group_of[node]].gpus, job_class) for node in nodes)
        if jobs := min(left, room[key] // job_class.minimum):
            room[key] -= jobs * job_class.minimum
            found.append((index, _narrowed(ledger, job_class, nodes, options, jobs)))
    yield from sorted(found, key=lambda each: each[0])


def _most_on(gpus: int, job_class: JobClass) -> int:
    """Replicas of a class for which a node has GPUs, were it empty."""
    shape = job_class.shape
    if shape.gpus:
        return gpus // shape.gpus
    return gpus * (MILLI // shape.gpu_milli) if shape.gpu_milli else _MANY


def _options(ledger: Ledger, index: int, nodes: Sequence[int]) -> Iterator[Option]:
    """The options of a class with those of the nodes that take its rank."""
    job_class = ledger.problem.classes[index]
    welcome = ledger.takes(ledger.tenants[index], np.array(nodes, dtype=np.int64))
    for option in job_class.options:
        groups = tuple(
            at for at, node in enumerate(nodes) if welcome[at] and ledger.group_of[node] in option.groups
        )
        if groups:
            yield replace(option, groups=groups, later_groups=(groups,))


def _narrowed(
    ledger: Ledger, job_class: JobClass, nodes: Sequence[int], options: tuple[Option, ...], jobs: int
) -> JobClass:
    points = dict(job_class.node_points)
    by_node = ((at, points.get(ledger.group_of[node], 0)) for at, node in enumerate(nodes))
    return replace(
        job_class,
        jobs=job_class.jobs[:jobs],
        options=options,
        node_points=tuple((at, lost) for at, lost in by_node if lost),
    )


def _held(ledger: Ledger) -> list[list[int]]:
    """Thousandths of GPUs held directly in each queue now, by budget."""
    problem = ledger.problem
    own = [list(budget.own) for budget in problem.budgets]
    for index in ledger.fates.having(Leave.STOP, Leave.SHRINK, Leave.MOVE):
        incumbent, fate = problem.incumbents[index], ledger.fates[index]
        milli = incumbent.shape.quota_milli * (len(fate.given_up) if fate is not None else 0)
        for held, budget in zip(own, problem.budgets, strict=True):
            held[incumbent.queue] -= milli if budget.counts(incumbent.gpu_model) else 0
    for placed in ledger.placed.values():
        job_class = problem.classes[placed.job_class]
        milli = job_class.shape.quota_milli * len(placed.sites)
        for held, budget in zip(own, problem.budgets, strict=True):
            held[job_class.queue] += milli if budget.counts(placed.option.gpu_model) else 0
    return own
