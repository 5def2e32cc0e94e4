"""Rules about what jobs share: GPUs, MIG instances, the other resources of a node, and quotas."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from planner.models.cluster import MigInstance
from planner.models.mig import mig_geometry, profile_milli
from planner.models.placement import GpuShare, MigSlice
from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI
from planner.models.verifier_words import (
    CORES,
    DISK,
    MEMORY,
    amounts,
    in_gpus,
    in_words,
    listed,
    mig_in_words,
)
from planner.models.violation import Rule, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planner.models.placement import Placement
    from planner.models.queue import Queue
    from planner.models.verifier_case import Case, Holder


def staircase(case: Case) -> Iterator[Violation]:
    """A GPU that somebody holds whole is held by nobody else."""
    for subject, shares in _overfull_gpus(case):
        if any(milli == MILLI for _, milli in shares):
            found = f"{len(shares)} holders: {listed(job for job, _ in shares)}"
            yield Violation(Rule.STAIRCASE, subject, found, "1 holder")


def sharing(case: Case) -> Iterator[Violation]:
    """Shares of one GPU that nobody holds whole add up to at most the GPU."""
    for subject, shares in _overfull_gpus(case):
        if all(milli < MILLI for _, milli in shares):
            total = in_gpus(sum(milli for _, milli in shares))
            found = f"{total}: {listed(job for job, _ in shares)}"
            yield Violation(Rule.SHARING, subject, found, "1 GPU")


def _overfull_gpus(case: Case) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """GPUs of which more than the whole is held, with (job, thousandths) of every holder."""
    for (name, index), holders in case.newly_used_gpus.items():
        shares = [(holder.job, holder.held.milli) for holder in holders if isinstance(holder.held, GpuShare)]
        if sum(milli for _, milli in shares) > MILLI:
            yield f"node {name} gpu {index}", shares


def mig(case: Case) -> Iterator[Violation]:
    """A GPU in MIG mode is used by instances it has, each once and together legal; any other by none."""
    for (name, index), holders in case.newly_used_gpus.items():
        if gpus := case.nodes[name].gpus:
            for found, allowed in _mig_faults(gpus.by_index[index].mig, holders, gpus.model):
                yield Violation(Rule.MIG, f"node {name} gpu {index}", found, allowed)


def _mig_faults(
    present: tuple[MigInstance, ...] | None, holders: list[Holder], model: str
) -> Iterator[tuple[str, str]]:
    """
    What is wrong with the use of one GPU, and what would be allowed.

    `present` are the instances the GPU has, None with MIG mode off.
    """
    users: dict[MigInstance, list[str]] = defaultdict(list)
    new: set[MigInstance] = set()
    for holder in holders:
        if isinstance(holder.held, MigSlice):
            instance = MigInstance(profile=holder.held.profile, start=holder.held.start)
            users[instance].append(holder.job)
            if not holder.kept:
                new.add(instance)
        elif present is not None:
            yield f"held by {holder.job} as a GPU", "MIG instances: MIG mode is on"
    for instance in new:
        if present is None:
            yield mig_in_words(instance), "no instances: MIG mode is off"
        elif instance not in present:
            yield mig_in_words(instance), f"instances present: {listed(map(mig_in_words, present)) or 'none'}"
        if len(users[instance]) > 1:
            yield (
                f"{len(users[instance])} users of {mig_in_words(instance)}: {listed(users[instance])}",
                "1 user",
            )
    # A model without a known geometry is judged by the instances present alone.
    if new and (geometry := mig_geometry(model)):
        for fault in geometry.faults(users):
            yield fault, f"a legal set of instances on {model}"


def compute(case: Case) -> Iterator[Violation]:
    """
    CPU, memory, disk and countable resources of a node suffice.

    Where running jobs alone already hold more than the node offers, the plan may not add to it.
    """
    before = _held_by_node(case.snapshot.running_placements)
    for name, held in _held_by_node(case.placements).items():
        if (node := case.nodes.get(name)) is None:
            continue
        offered = {
            CORES: node.cpu_milli,
            MEMORY: node.memory_mib,
            DISK: node.disk_mib,
            **node.resources,
        }
        for unit, amount in held.items():
            allowed = max(offered.get(unit, 0), before[name][unit] if name in before else 0)
            if amount > allowed:
                yield Violation(Rule.COMPUTE, f"node {name}", in_words(amount, unit), in_words(allowed, unit))


def _held_by_node(placements: Iterable[Placement]) -> dict[str, dict[str, int]]:
    """What replicas hold beside GPUs, by node and unit."""
    held: dict[str, dict[str, int]] = {}
    for placement in placements:
        for replica in placement.replicas:
            on_node = held.setdefault(replica.node, defaultdict(int))
            for unit, amount in amounts(replica).items():
                on_node[unit] += amount
    return held


def queues(case: Case) -> Iterator[Violation]:
    """
    No queue, nor any above it, uses more than its limit, of all GPUs together and of each model with quotas.

    The arithmetic is Kueue's, stated in `models.queue` and written anew here. A queue that running jobs alone
    already take beyond its limit may stay there and not grow.
    """
    tree = _children_first(case.snapshot.queues)
    before = _usage_by_queue_and_model(case, case.snapshot.running_placements)
    after = _usage_by_queue_and_model(case, case.placements)
    models = sorted({model for queue in tree for model in queue.gpu_models})
    for resource in (ALL_MODELS, *models):
        kept, limit = _kept_and_limit(tree, resource)
        used_before = _usage(tree, kept, _of_resource(before, resource))
        used = _usage(tree, kept, _of_resource(after, resource))
        for queue in tree:
            allowed = max(limit[queue.name], used_before[queue.name])
            if used[queue.name] > allowed:
                subject = f"queue {queue.name}" + (f" on {resource}" if resource != ALL_MODELS else "")
                found = in_gpus(used[queue.name])
                yield Violation(Rule.QUEUES, subject, found, in_gpus(int(allowed)))


def _children_first(queues: tuple[Queue, ...]) -> list[Queue]:
    """The queue tree from the leaves to the roots."""
    children: dict[str | None, list[Queue]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue)
    parents_first = list(children[None])
    for queue in parents_first:  # grows as it is walked
        parents_first.extend(children[queue.name])
    return parents_first[::-1]


def _kept_and_limit(tree: list[Queue], resource: str) -> tuple[dict[str, float], dict[str, float]]:
    """What each queue keeps from its parent, and the most it may use; infinite without a limit."""
    lent: dict[str | None, list[float]] = defaultdict(list)  # by children, to the key
    kept: dict[str, float] = {}
    limit: dict[str, float] = {}
    for queue in tree:
        quota, from_children = queue.quota_for(resource), lent[queue.name]
        if quota is None:
            subtree = sum(from_children) if from_children else inf
            lending, borrowing, kept[queue.name] = inf, inf, 0
        else:
            # A child without a limit has no quota to lend.
            subtree = quota.nominal + sum(part for part in from_children if part < inf)
            lending = inf if quota.lending_limit is None else quota.lending_limit
            borrowing = inf if quota.borrowing_limit is None else quota.borrowing_limit
            kept[queue.name] = max(0, subtree - lending)
        lent[queue.parent].append(min(subtree, lending))
        limit[queue.name] = subtree if queue.parent is None else subtree + borrowing
    return kept, limit


def _usage(tree: list[Queue], kept: Mapping[str, float], own: Mapping[str, int]) -> dict[str, int]:
    """Thousandths of GPUs each queue uses: its own, and of its children's what they do not keep."""
    usage = {queue.name: own.get(queue.name, 0) for queue in tree}
    for queue in tree:
        if queue.parent is not None:
            usage[queue.parent] += int(max(0, usage[queue.name] - kept[queue.name]))
    return usage


def _of_resource(usage: Mapping[tuple[str, str], int], resource: str) -> dict[str, int]:
    """Usage by queue of one GPU model, or of all together."""
    total: dict[str, int] = defaultdict(int)
    for (queue, model), milli in usage.items():
        if resource in (ALL_MODELS, model):
            total[queue] += milli
    return total


def _usage_by_queue_and_model(case: Case, placements: Iterable[Placement]) -> dict[tuple[str, str], int]:
    """Thousandths of GPUs that the jobs directly in each queue hold on each GPU model."""
    usage: dict[tuple[str, str], int] = defaultdict(int)
    for placement in placements:
        if (job := case.jobs.get(placement.job)) is None:
            continue
        for replica in placement.replicas:
            if (node := case.nodes.get(replica.node)) and node.gpu_model:
                usage[job.queue, node.gpu_model] += sum(map(_quota_milli, replica.gpus))
    return usage


def _quota_milli(held: GpuShare | MigSlice) -> int:
    """What a part of a GPU counts against quotas; a MIG profile of no known form as a whole GPU."""
    if isinstance(held, GpuShare):
        return held.milli
    try:
        return profile_milli(held.profile)
    except ValueError:
        return MILLI
