"""Rules about what jobs share: whole GPUs, shares, MIG instances, other resources of nodes, and power."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import MigInstance, Node, QosClass
from gpuplan.models.mig import mig_geometry
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
    format_mig_instance,
    format_watts,
    truncated_names,
)
from gpuplan.models.verifier.quota_usage import held_gpu_milli

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import MigPolicy
    from gpuplan.models.verifier.context import Context, GpuHolding


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


def mig(case: Context) -> Iterator[Violation]:
    """
    A GPU with a newly used MIG instance is in MIG mode, or is switched to it, and has no other use.

    The used instances form a legal layout, and each has one user. Missing ones are created if the policy and
    the known geometry of the GPU model allow it; conflicting idle ones are destroyed. A layout that a
    rollback puts back is legal, on a GPU in MIG mode, and has all instances in use.
    """
    yield from _put_back(case)
    for (name, index), holders in case.newly_used_gpus.items():
        if gpus := case.nodes[name].gpus:
            present = gpus.by_index[index].mig
            for found, allowed in _mig_faults(case.policy.mig, present, holders, gpus.model):
                yield Violation(Rule.MIG, f"node {name} gpu {index}", found, allowed)


def _put_back(case: Context) -> Iterator[Violation]:
    """Faults of the layouts that a rollback puts back."""
    used: dict[tuple[str, int], set[MigInstance]] = defaultdict(set)
    for placement in case.placements if case.undo.layouts else ():
        for replica in placement.on_mig:
            for held in replica.mig_slices:
                used[replica.node, held.index].add(held.instance)
    for layout in case.undo.layouts:
        subject = f"node {layout.node} gpu {layout.gpu}"
        node = case.nodes.get(layout.node)
        gpu = node.gpus.by_index.get(layout.gpu) if node and node.gpus else None
        if gpu is None or gpu.mig is None or layout.node in case.gone:
            yield Violation(Rule.MIG, subject, "a MIG layout put back", "a GPU in MIG mode that stays")
            continue
        if not case.policy.mig.repartition:
            yield Violation(Rule.MIG, subject, "a MIG layout put back", "no change: mig.repartition is off")
        for lost in used[layout.node, layout.gpu] - set(layout.instances):
            found = f"a MIG layout without {format_mig_instance(lost)}, which is in use"
            yield Violation(Rule.MIG, subject, found, "all instances in use")
        geometry = mig_geometry((node.gpu_model if node else None) or "")
        for fault in geometry.faults(layout.instances) if geometry else ():
            yield Violation(Rule.MIG, subject, fault, "a legal set of instances")


def _mig_faults(
    policy: MigPolicy, present: tuple[MigInstance, ...] | None, holders: list[GpuHolding], model: str
) -> Iterator[tuple[str, str]]:
    """
    Faults in the use of one GPU as (found, allowed).

    `present` are the instances that the GPU has, None with MIG mode off.
    """
    users: dict[MigInstance, list[str]] = defaultdict(list)
    new: set[MigInstance] = set()
    for holder in holders:
        if not isinstance(holder.held, GpuShare):
            instance = MigInstance(profile=holder.held.profile, start=holder.held.start)
            users[instance].append(holder.job)
            if not holder.kept:
                new.add(instance)
    if present is None and not new:
        return
    # A new instance puts the whole GPU into MIG mode, also for those that hold it otherwise.
    mode = "switched on" if present is None else "on"
    for holder in holders:
        if isinstance(holder.held, GpuShare):
            yield f"held by {holder.job} as a GPU", f"MIG instances: MIG mode is {mode}"
    for instance in new:
        if offered := _instead_of_creation(policy, present, instance, model):
            yield format_mig_instance(instance), offered
        if len(users[instance]) > 1:
            found = (
                f"{len(users[instance])} users of {format_mig_instance(instance)}: "
                f"{truncated_names(users[instance])}"
            )
            yield found, "1 user"
    # If the geometry of a model is unknown, only the present instances count.
    if new and (geometry := mig_geometry(model)):
        for fault in geometry.faults(users):
            yield fault, f"a legal set of instances on {model}"


def _instead_of_creation(
    policy: MigPolicy, present: tuple[MigInstance, ...] | None, instance: MigInstance, model: str
) -> str | None:
    """What a GPU offers instead of an instance that does not exist and may not be created; None if it may."""
    known = mig_geometry(model) is not None
    if present is None:
        if not known:
            return f"no instances: {model} is not known to have MIG"
        return None if policy.switch_mode else "no instances: MIG mode is off"
    if instance in present or (policy.repartition and known):
        return None
    return f"instances present: {truncated_names(map(format_mig_instance, present)) or 'none'}"


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
