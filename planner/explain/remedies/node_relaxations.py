"""Changes of the nodes: lifted cordons and new nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import NodePool
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.value.disruption_cost import node_points
from gpuplan.planner.explain.answers.remedies import RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.relaxation import Relaxation, constant_part
from gpuplan.planner.text_format import format_count, format_money, node_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.explain.feasibility import PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis

_MOST_KINDS_OF_NODES: Final = 8


def uncordon_relaxations(question: Hypothesis) -> Iterator[Relaxation]:
    """Lift the cordon of a node, for one node of each kind."""
    seen: set[tuple[object, ...]] = set()
    for node in question.plan.snapshot.cluster.nodes:
        if not node.cordoned or not node.ready or node.drain:
            continue
        opened = node.model_copy(update={"cordoned": False})
        if ineligibility(question.job, opened) is None and (kind := _kind(node)) not in seen:
            seen.add(kind)
            text = f"uncordon node {node.name}"
            part = RemedyPart(kind=RemedyKind.UNCORDON, subject=node.name, text=text)
            yield Relaxation(1, partial(_adding, (opened,)), constant_part(part))


def _adding(nodes: tuple[Node, ...], question: Hypothesis, step: int) -> Hypothesis:
    """The question with the first `step` of the nodes added."""
    return replace(question, nodes=(*question.nodes, *nodes[:step]))


def node_count_relaxations(question: Hypothesis, ground: PlanFeasibility) -> Iterator[Relaxation]:
    """Add new nodes from a pool's template or like an existing node, the cheapest of each kind."""
    pools = question.plan.snapshot.cluster.pools
    pooled = {pool.name for pool in pools}
    patterns = [(f"to pool {pool.name}", pool.name, _fresh(pool.template)) for pool in pools]
    patterns += [
        (f"like {node.name}", node.name, _fresh(node))
        for node in question.plan.snapshot.cluster.nodes
        if node.pool not in pooled
    ]
    free = _free_around(question, ground)
    seen: set[tuple[object, ...]] = set()
    level = question.job.locality.required
    for where, subject, fresh in sorted(
        patterns, key=lambda each: (each[2].price_per_hour, -free(each[2]), each[1])
    ):
        kind = (*_kind(fresh), fresh.domain(level) if level else None)
        if kind in seen or len(seen) == _MOST_KINDS_OF_NODES:
            continue
        if ineligibility(question.job, fresh) is not None:
            continue
        seen.add(kind)
        most = sum(job.gang.minimum for job in question.members)
        stem = f"{subject}-new"
        while any(name.startswith(stem) for name in ground.nodes):
            stem = f"{stem}-new"
        nodes = tuple(fresh.model_copy(update={"name": f"{stem}-{number}"}) for number in range(1, most + 1))

        yield Relaxation(most, partial(_adding, nodes), partial(_part, subject, where, fresh))


def _part(subject: str, where: str, node: Node, step: int) -> RemedyPart:
    price = (
        f", {format_money(node.price_per_hour)}/h{' each' if step > 1 else ''}" if node.price_per_hour else ""
    )
    return RemedyPart(
        kind=RemedyKind.NODE,
        subject=subject,
        before=0,
        after=step,
        text=f"add {format_count(step, 'node')} of {node_size(node)} {where}{price}",
    )


def _fresh(pattern: Node) -> Node:
    """A new empty node like another one, outside any pool so that no pool limit counts it."""
    return pattern.as_new().model_copy(update={"pool": None})


def new_node_points(policy: Policy, node: Node) -> int:
    """Points that one more node costs over the policy's horizon, as if a pool had added it."""
    pool = NodePool(name="new", template=node, maximum=1)
    return node_points(policy, pool) + policy.prices.scaling


def _free_around(question: Hypothesis, ground: PlanFeasibility) -> Callable[[Node], int]:
    """Free capacity, in replicas, of the domain that a new node would join."""
    level = question.job.locality.required
    if level is None or question.job.gang.minimum == 1:
        return lambda _: 0
    found: Counter[object] = Counter()
    for name, count in ground.counting.counts(question).items():
        found[ground.nodes[name].domain(level)] += count
    return lambda node: found[node.domain(level)]


def _kind(node: Node) -> tuple[object, ...]:
    gpus = node.gpus
    return (
        (gpus.model, gpus.count, gpus.memory_mib) if gpus else None,
        (node.cpu_milli, node.memory_mib, node.disk_mib, tuple(sorted(node.resources.items()))),
        (tuple(sorted(node.labels.items())), node.taints, node.region),
    )
