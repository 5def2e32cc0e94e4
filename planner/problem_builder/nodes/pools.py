"""Node pools: nodes that may be added, and nodes that may be removed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.problem.problem import PoolOption
from gpuplan.models.value.disruption_cost import node_points

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Node, NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.candidates import Filters, JobCandidate


@dataclass(frozen=True, slots=True)
class PoolScaling:
    """Possible changes of one pool."""

    pool: NodePool
    price: int
    """Points that adding one node costs."""
    saving: int
    """Points that removing one node saves; negative if the change costs more than it saves."""
    opened: tuple[Node, ...]
    """The nodes that may be added."""
    spare: frozenset[str]
    """Names of nodes that may be removed once they are empty."""
    most_closed: int


def pool_scalings(
    snapshot: Snapshot, policy: Policy, candidates: Iterable[JobCandidate]
) -> list[PoolScaling]:
    """All pools with possible changes, by name."""
    cluster, now = snapshot.cluster, snapshot.taken_at
    demand = _Demand(candidates)
    names = {node.name for node in cluster.nodes}
    found = []
    for pool in sorted(cluster.pools, key=lambda pool: pool.name):
        points = node_points(policy, pool)
        price, saving = points + policy.prices.scaling, points - policy.prices.scaling
        members = [node for node in cluster.nodes if node.pool == pool.name]
        room = pool.maximum - len(members) if policy.pools.may_add(pool, now) else 0
        opened = _opened(pool, names, min(room, demand.replicas(pool.template)) if room > 0 else 0)
        most_closed = max(0, len(members) - pool.minimum) if policy.pools.may_remove(pool, now) else 0
        # Removing a node without a saving pays only if fragmentation is priced.
        pays = most_closed and (saving > 0 or policy.prices.fragmentation)
        spare = frozenset(node.name for node in members if node.schedulable) if pays else frozenset()
        if opened or spare:
            found.append(PoolScaling(pool, price, saving, opened, spare, most_closed if spare else 0))
    return found


def _opened(pool: NodePool, names: set[str], count: int) -> tuple[Node, ...]:
    """New nodes with the first unused names; `names` is updated in place."""
    opened: list[Node] = []
    number = 0
    while len(opened) < count:
        number += 1
        name = f"{pool.template.name}-{number}"
        if name not in names:
            names.add(name)
            update = {"name": name, "pool": pool.name, "ready_at": None}
            opened.append(pool.template.model_copy(update=update))
    return tuple(opened)


class _Demand:
    """Upper bound on the replicas that a node could take; more added nodes than that stay empty."""

    def __init__(self, candidates: Iterable[JobCandidate]) -> None:
        self._replicas: Counter[Filters] = Counter()
        self._first: dict[Filters, Job] = {}
        for candidate in candidates:
            self._first.setdefault(candidate.filters, candidate.job)
            self._replicas[candidate.filters] += candidate.maximum

    def replicas(self, node: Node) -> int:
        return sum(
            count
            for kind, count in self._replicas.items()
            if (self._first[kind].request.needs_gpu or not node.gpu_count)
            and ineligibility(self._first[kind], node) is None
        )


def pool_options(
    scalings: Iterable[PoolScaling], index: dict[str, int], closable: frozenset[str]
) -> tuple[PoolOption, ...]:
    """The pools of a problem; `closable` are the nodes that can be emptied."""
    return tuple(
        PoolOption(
            name=scaling.pool.name,
            nodes=scaling.opened,
            opening_points=scaling.price,
            closable=tuple(sorted(index[name] for name in scaling.spare & closable)),
            most_closed=scaling.most_closed,
        )
        for scaling in scalings
    )
