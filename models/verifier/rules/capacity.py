"""Rules about shared capacity: whole GPUs and shares, other node resources, and power."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Node, QosClass
from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.messages import (
    CORES,
    DISK,
    MEMORY,
    amounts_by_unit,
    format_amount,
    format_gpus,
    format_watts,
    truncated_names,
)
from gpuplan.models.verifier.quota_usage import held_gpu_milli

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context


def gpu_capacity(case: Context) -> Iterator[Violation]:
    """A GPU that one replica holds whole has no other holder."""
    for subject, shares in _overfull_gpus(case):
        if any(milli == MILLI for _, milli in shares):
            found = f"{len(shares)} holders: {truncated_names(job for job, _ in shares)}"
            yield Violation(Rule.GPU_CAPACITY, subject, found, "1 holder")


def fractional_gpu(case: Context) -> Iterator[Violation]:
    """Shares of one GPU without a holder of the whole add up to at most the GPU."""
    for subject, shares in _overfull_gpus(case):
        if all(milli < MILLI for _, milli in shares):
            total = format_gpus(sum(milli for _, milli in shares))
            found = f"{total}: {truncated_names(job for job, _ in shares)}"
            yield Violation(Rule.FRACTIONAL_GPU, subject, found, "1 GPU")


def _overfull_gpus(case: Context) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """GPUs of which more than the whole is held, with (job, thousandths) of every holder."""
    for (name, index), holders in case.newly_used_gpus.items():
        shares = [(holder.job, holder.held.milli) for holder in holders if isinstance(holder.held, GpuShare)]
        if sum(milli for _, milli in shares) > MILLI:
            yield f"node {name} gpu {index}", shares


def cpu_memory(case: Context) -> Iterator[Violation]:
    """
    CPU, memory, disk and countable resources of a node suffice.

    CPU and memory of jobs with an overcommitted QoS class count for less. Where replicas that stay already
    hold more than the node has, nothing may be added, and released amounts may not be reused.
    """
    names = case.taken_nodes
    staying = _held_by_node(case, case.staying, names)
    for name, held in _held_by_node(case, case.placements, names).items():
        if (node := case.nodes.get(name)) is None:
            continue
        offered = offered_amounts(node)
        for unit, amount in held.items():
            # A node that holds more than it has is no fault of the plan, as long as the plan adds nothing.
            allowed = max(offered.get(unit, 0), staying[name][unit] if name in staying else 0)
            if amount > allowed:
                yield Violation(
                    Rule.CPU_MEMORY, f"node {name}", format_amount(amount, unit), format_amount(allowed, unit)
                )


def offered_amounts(node: Node) -> dict[str, int]:
    """Resources of a node besides GPUs, by unit."""
    return {CORES: node.cpu_milli, MEMORY: node.memory_mib, DISK: node.disk_mib, **node.resources}


def charged_amounts(case: Context, job: Job | None, replica: Replica) -> dict[str, int]:
    """Amounts that a replica counts for besides GPUs: CPU and memory divided by the overcommit ratio."""
    held = amounts_by_unit(replica)
    if (
        job
        and job.qos is not QosClass.GUARANTEED
        and (ratio := case.snapshot.cluster.overcommit.get(job.qos))
    ):
        # Rounded up for each replica: many small ones must not add up to less than they hold.
        held[CORES] = -(-replica.cpu_milli * MILLI // ratio.cpu_milli)
        held[MEMORY] = -(-replica.memory_mib * MILLI // ratio.memory_milli)
    return held


def _held_by_node(
    case: Context, placements: Iterable[Placement], names: Collection[str]
) -> dict[str, dict[str, int]]:
    """Amounts that replicas count for besides GPUs on some nodes, by node and unit."""
    held: dict[str, dict[str, int]] = {}
    for placement in placements if names else ():
        if placement.nodes.isdisjoint(names):
            continue
        job = case.jobs.get(placement.job)
        for replica in placement.replicas:
            if replica.node in names:
                on_node = held.setdefault(replica.node, defaultdict(int))
                for unit, amount in charged_amounts(case, job, replica).items():
                    on_node[unit] += amount
    return held


def power(case: Context) -> Iterator[Violation]:
    """
    The GPUs held on a node, and on all nodes of a rack, draw at most the cap of the node and of the rack.

    Each GPU counts in proportion to what is held of it. Where replicas that stay already draw more, nothing
    may be added, and released power may not be reused.
    """
    caps = [
        (f"node {node.name}", frozenset({node.name}), node.power_cap_watts)
        for node in case.nodes.values()
        if node.power_cap_watts and node.gpus and node.gpus.watts
    ]
    caps += rack_caps(case)
    if not caps:
        return
    drawn_by_staying = watts_drawn(case, case.staying)
    drawn = watts_drawn(case, case.placements)
    for subject, names, watts in caps:
        # The same: a cap may have been lowered below what runs.
        allowed = max(watts * MILLI, sum(drawn_by_staying[name] for name in names))
        if (found := sum(drawn[name] for name in names)) > allowed:
            yield Violation(Rule.POWER, subject, format_watts(found), format_watts(allowed))


def rack_caps(case: Context) -> list[tuple[str, frozenset[str], int]]:
    """(subject, names of its nodes, watts) of every rack with a cap."""
    caps = []
    for rack in case.snapshot.cluster.rack_power:
        # The name of a rack is unique within its zone only.
        place = (rack.region, rack.zone, rack.rack)
        names = frozenset(
            node.name for node in case.nodes.values() if (node.region, node.zone, node.rack) == place
        )
        caps.append((f"rack {rack.rack}", names, rack.watts))
    return caps


def watts_drawn(case: Context, placements: Iterable[Placement]) -> dict[str, int]:
    """Thousandths of watts drawn by the GPUs held on each node."""
    drawn: dict[str, int] = defaultdict(int)
    for placement in placements:
        for replica in placement.replicas:
            if (node := case.nodes.get(replica.node)) and node.gpus and node.gpus.watts:
                drawn[replica.node] += held_gpu_milli(replica) * node.gpus.watts
    return drawn
