"""The rule about MIG: which instances may be used, and which may be created."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.messages import format_mig_instance, truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.policy.policy import MigPolicy
    from gpuplan.models.verifier.context import Context, GpuHolding


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
            for found, allowed in _faults(case.policy.mig, present, holders, gpus.model):
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


def _faults(
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
        if offered := _instead(policy, present, instance, model):
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


def _instead(
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
