"""Power that the caps of nodes and racks leave once a plan is applied."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import rack_of
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.models.cluster import Cluster, Node, Rack, RackPower
    from gpuplan.models.placement import Placement, Replica


class PowerUse:
    """Power drawn on each node and rack, by job; amounts are thousandths of watts."""

    def __init__(self, cluster: Cluster, placements: Iterable[Placement]) -> None:
        nodes = cluster.node_by_name
        self.capped = bool(cluster.rack_power) or any(node.power_cap_watts for node in cluster.nodes)
        self._on_rack: dict[Rack, list[tuple[str, str, int]]] = defaultdict(list)
        """(job, node, amount) by rack."""
        for placement in placements if cluster.rack_power else ():
            for replica in placement.replicas:
                node = nodes[replica.node]
                amount = _watts(node) * replica.quota_milli
                self._on_rack[rack_of(node)].append((placement.job, node.name, amount))

    def of_node(self, node: Node, staying: Iterable[Replica]) -> int | None:
        """Thousandths of GPUs that the node's own cap allows beside the replicas; None without a cap."""
        watts = _watts(node)
        if not node.power_cap_watts or not watts:
            return None
        drawn = watts * sum(replica.quota_milli for replica in staying)
        return max(0, node.power_cap_watts * MILLI - drawn) // watts

    def of_racks(self, caps: Iterable[RackPower], gone: Collection[str]) -> dict[Rack, int]:
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


def replicas_within_rack_power(
    nodes: Mapping[str, Node], counts: Mapping[str, int], need: int, left: Mapping[Rack, int]
) -> int:
    """Number of the counted replicas that racks have power for; `need` is thousandths of GPUs each."""
    total = 0
    racks: dict[Rack, list[int]] = defaultdict(lambda: [0, 0])
    for name, count in counts.items():
        key, watts = rack_of(nodes[name]), _watts(nodes[name])
        if key in left and watts and need:
            found = racks[key]
            found[0] += count
            found[1] = min(found[1] or watts, watts)
        else:
            total += count
    return total + sum(min(count, left[key] // (need * watts)) for key, (count, watts) in racks.items())


def _watts(node: Node) -> int:
    return node.gpus.watts or 0 if node.gpus else 0
