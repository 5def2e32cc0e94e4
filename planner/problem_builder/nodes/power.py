"""Power caps of racks; caps of single nodes are a countable resource (see `resource_vectors`)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import rack_of
from gpuplan.models.problem.problem import PowerCap
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Node, Rack
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.snapshot import Snapshot


def power_caps(
    snapshot: Snapshot,
    nodes: list[Node],
    held_milli: Mapping[str, int],
    incumbents: Iterable[Incumbent],
    returns: Mapping[Rack, tuple[tuple[int, int, int | None], ...]],
) -> tuple[PowerCap, ...]:
    """
    Caps that could bind, over the nodes of the problem.

    `held_milli` has the thousandths of GPUs that running jobs hold, by node name. It includes nodes that take
    no new replicas, since they draw power too. For `returns` see `PowerCap.releases`.
    """
    cluster = snapshot.cluster
    if not cluster.rack_power:
        return ()
    members: dict[Rack, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        if node.gpus and node.gpus.watts:
            members[rack_of(node)].append(index)
    drawn: dict[Rack, int] = defaultdict(int)
    for node in cluster.nodes:
        if node.gpus:
            drawn[rack_of(node)] += held_milli.get(node.name, 0) * node.gpus.watts
    elsewhere = _elsewhere(snapshot, {node.name for node in nodes}, incumbents)
    caps = []
    for cap in sorted(cluster.rack_power, key=lambda cap: (*rack_of(cap), cap.watts)):
        rack = rack_of(cap)
        indices = tuple(members[rack])
        watts = tuple(gpus.watts for index in indices if (gpus := nodes[index].gpus))
        left = cap.watts * MILLI - drawn[rack]
        if left < sum(
            nodes[index].gpu_count * MILLI * each for index, each in zip(indices, watts, strict=True)
        ):
            away = tuple(sorted(elsewhere[rack].items()))
            caps.append(PowerCap(indices, watts, left, away, returns.get(rack, ())))
    return tuple(caps)


def _elsewhere(
    snapshot: Snapshot, names: set[str], incumbents: Iterable[Incumbent]
) -> dict[Rack, dict[int, int]]:
    """Thousandths of watts that incumbents draw on nodes outside the problem, by rack and incumbent."""
    drawn: dict[Rack, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for index, incumbent in enumerate(incumbents):
        placement = snapshot.job_by_name[incumbent.job].placement
        for replica in placement.replicas if placement else ():
            node = snapshot.cluster.node_by_name[replica.node]
            if replica.node not in names and node.gpus and node.gpus.watts:
                drawn[rack_of(node)][index] += replica.quota_milli * node.gpus.watts
    return drawn
