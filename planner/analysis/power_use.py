"""Power that jobs draw on nodes and racks, and what the caps leave; amounts are thousandths of watts."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Cluster, Node, Rack, RackPower, rack_of
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.models.placement import Placement, Replica


class PowerUse:
    """What some placements draw in a cluster, and what its caps leave beside them."""

    def __init__(self, cluster: Cluster, placements: Iterable[Placement]) -> None:
        self._cluster = cluster
        self.capped = bool(cluster.rack_power) or any(node.power_cap_watts for node in cluster.nodes)
        self._on_node: Counter[str] = Counter()
        self._on_rack: dict[Rack, list[tuple[str, str, int]]] = defaultdict(list)
        """(job, node, amount) by rack."""
        nodes = cluster.node_by_name
        for placement in placements if self.capped else ():
            for replica in placement.replicas:
                if (node := nodes.get(replica.node)) is not None:
                    amount = watts_of(node) * replica.quota_milli
                    self._on_node[node.name] += amount
                    self._on_rack[rack_of(node)].append((placement.job, node.name, amount))

    @cached_property
    def left_by_node(self) -> dict[str, int]:
        """Thousandths of a node's GPUs that its own and its rack's cap leave; only nodes under a cap."""
        racks, left = self.left_of_racks(self._cluster.rack_power), {}
        for node in self._cluster.nodes if self.capped else ():
            if not (watts := watts_of(node)):
                continue
            rooms = [racks[rack_of(node)]] if rack_of(node) in racks else []
            if node.power_cap_watts:
                rooms.append(node.power_cap_watts * MILLI - self._on_node[node.name])
            if rooms:
                left[node.name] = max(0, min(rooms)) // watts
        return left

    def left_of_racks(self, caps: Iterable[RackPower], gone: Collection[str] = ()) -> dict[Rack, int]:
        """Remaining power under the cap of each rack, not counting the jobs in `gone`."""
        left: dict[Rack, int] = {}
        for cap in caps:
            key = rack_of(cap)
            room = max(0, cap.watts * MILLI - self.drawn(key, gone))
            left[key] = min(left.get(key, room), room)
        return left

    def drawn(self, rack: Rack, gone: Collection[str], *, away_from: Collection[str] = ()) -> int:
        """Power drawn on a rack, not counting the jobs in `gone` and the nodes in `away_from`."""
        return sum(
            amount for job, node, amount in self._on_rack[rack] if job not in gone and node not in away_from
        )


def left_under_own_cap(node: Node, staying: Iterable[Replica]) -> int | None:
    """Thousandths of GPUs that a node's own cap allows beside the replicas; None without a cap."""
    watts = watts_of(node)
    if not node.power_cap_watts or not watts:
        return None
    drawn = watts * sum(replica.quota_milli for replica in staying)
    return max(0, node.power_cap_watts * MILLI - drawn) // watts


def drawn_by_rack(replicas: Iterable[Replica], nodes: Mapping[str, Node]) -> Counter[Rack]:
    """Power that replicas draw on each rack."""
    drawn: Counter[Rack] = Counter()
    for replica in replicas:
        node = nodes[replica.node]
        drawn[rack_of(node)] += watts_of(node) * replica.quota_milli
    return drawn


def watts_of(node: Node) -> int:
    """Watts of one GPU of a node; 0 if unknown, or without GPUs."""
    return node.gpus.watts or 0 if node.gpus else 0
