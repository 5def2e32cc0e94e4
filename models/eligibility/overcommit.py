"""CPU and memory that a replica counts for on its node under overcommit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.cluster import QosClass
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import ResourceRequest
    from gpuplan.models.placement import Replica


def charged_cpu_memory(
    replica: Replica | ResourceRequest, qos: QosClass, cluster: Cluster
) -> tuple[int, int]:
    """Thousandths of cores and MiB of memory that a replica of a QoS class counts for on its node."""
    ratio = None if qos is QosClass.GUARANTEED else cluster.overcommit.get(qos)
    if ratio is None:
        return replica.cpu_milli, replica.memory_mib
    return (
        -(-replica.cpu_milli * MILLI // ratio.cpu_milli),
        -(-replica.memory_mib * MILLI // ratio.memory_milli),
    )
