"""
The live cluster as a plan sees it: with what the cluster does not tell, and with the plan's names of GPUs.

A scheduler such as Slurm does not tell the GPUs' UUIDs, health and links, nor processes of others. So a plan
from a merged snapshot is compared with what the cluster tells, and with the facts that the plan's snapshot
has from its hosts.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.health.findings import lasting_faults, with_exclusions, with_faults
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica, same_holdings
from gpuplan.models.plan.actions import NodeAction, changes_of
from gpuplan.models.queue import FOREIGN_QUEUE, Queue
from gpuplan.planner.apply.promises import with_promises_of, without_promises

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


def with_untold(live: Snapshot, plan: Plan, *, promises: bool = True) -> Snapshot:
    """
    The cluster with what it does not tell and a plan knows: promises, facts of hosts, and excluded GPUs.

    A GPU that the plan's rules of health exclude, now or when it was made, is unhealthy for this plan. With
    `promises=False` the cluster's own promises are all there are: those that it lacks were withdrawn since,
    by this plan or by a later one, and do not come back.
    """
    base, rules = plan.snapshot, plan.policy.health
    told = with_promises_of(live, base if promises else without_promises(base))
    told = with_exclusions(with_host_facts_of(told, base), rules)
    return _with_faults_of(told, base, lasting_faults(base, rules))


def _with_faults_of(live: Snapshot, base: Snapshot, excluded: Collection[tuple[str, int]]) -> Snapshot:
    """The cluster in which these GPUs are as unhealthy as in a plan's snapshot."""
    faults: dict[str, dict[int, str]] = defaultdict(dict)
    for name, index in excluded:
        node, known = live.cluster.node_by_name.get(name), base.cluster.node_by_name[name]
        if node is None or node.gpus is None or known.gpus is None or index >= node.gpus.count:
            continue
        now, before = node.gpus.by_index[index], known.gpus.by_index[index]
        if now.healthy and not before.healthy and (before.uuid in (now.uuid, "") or not now.uuid):
            faults[name][index] = before.fault
    if not faults:
        return live
    return live.with_nodes(
        node.model_copy(update={"gpus": with_faults(node.gpus, faults[node.name])})
        if node.name in faults and node.gpus
        else node
        for node in live.cluster.nodes
    )


def with_host_facts_of(live: Snapshot, base: Snapshot) -> Snapshot:
    """The cluster with the facts of hosts in a plan's snapshot, for nodes of which it tells no UUIDs."""
    known = {node.name: node for node in base.cluster.nodes if _tells_gpus(node)}
    untold = {node.name for node in live.cluster.nodes if node.name in known and not _tells_gpus(node)}
    if not untold:
        return live
    nodes = tuple(
        _with_facts(node, known[node.name]) if node.name in untold else node for node in live.cluster.nodes
    )
    there = live.job_by_name
    foreign = tuple(
        job
        for job in base.jobs
        if job.queue == FOREIGN_QUEUE
        and job.name not in there
        and job.running
        and all(replica.node in untold for replica in job.running.replicas)
    )
    queues = live.queues
    if foreign and FOREIGN_QUEUE not in {queue.name for queue in queues}:
        queues = (*queues, Queue(name=FOREIGN_QUEUE))
    cluster = live.cluster.model_copy(update={"nodes": nodes})
    update = {"cluster": cluster, "queues": queues, "jobs": (*live.jobs, *foreign)}
    return live.model_copy(update=update).canonical()


def _tells_gpus(node: Node) -> bool:
    return node.gpus is not None and any(gpu.uuid for gpu in node.gpus.details)


def _with_facts(node: Node, known: Node) -> Node:
    """A node with what the host told of its GPUs; with other GPUs than then, it stays as it is."""
    gpus, before = node.gpus, known.gpus
    same = gpus is None or (before and (gpus.model, gpus.count) == (before.model, before.count))
    if before is None or not same or (gpus is None and not node.cordoned):
        return node
    facts = (
        before
        if gpus is None
        else gpus.model_copy(
            update={"details": before.details, "memory_mib": gpus.memory_mib or before.memory_mib}
        )
    )
    return node.model_copy(
        update={
            "gpus": facts,
            "nvlink_island": node.nvlink_island or known.nvlink_island,
            "cordoned": node.cordoned or known.cordoned,
        }
    )


# GPUs that a cluster chooses itself: its names for them are exchanged for those that a plan expects.
#
# Where a cluster can be told the node of a job but not its GPUs, a plan's GPU indices are expectations. GPUs
# of a node in the same state are equal, and so are MIG instances of one profile. So a cluster in which a job
# holds GPUs 4 to 7 in place of 0 to 3 is the same cluster with other names.


_Part: TypeAlias = tuple[str, int, int]
"""(MIG profile, GPU index, first memory slice) of an instance; ("", index, 0) of a GPU without MIG mode."""

_Names: TypeAlias = "dict[_Part, _Part]"
"""The plan's name of each part of a node, by the cluster's name."""


def with_expected_gpus(
    live: Snapshot, plan: Plan, begun: Collection[str] = (), *, pinned: bool = True
) -> Snapshot:
    """
    The live cluster with the GPU indices that a plan expects, on the nodes where the cluster chooses GPUs.

    `begun` are the ids of the actions that are known to have landed or to be under way. With `pinned=False`
    the cluster chooses the GPUs of every node. What a job holds besides GPUs does not change.
    """
    chosen = {
        node.name: node for node in live.cluster.nodes if node.gpus and not (pinned and node.gpus.pinned)
    }
    if not chosen:
        return live
    running = live.running_placements
    expected = {each.job: each for each in _expected(plan, running, begun)}
    differing = {
        name
        for each in running
        if each.job in expected and expected[each.job].replicas != each.replicas
        for name in each.nodes
        if name in chosen
    }
    if not differing:
        return live
    on_node: dict[str, list[Placement]] = defaultdict(list)
    for placed in running:
        for name in sorted(placed.nodes & differing):
            on_node[name].append(placed)
    names = {name: _names(chosen[name], there, expected) for name, there in on_node.items()}
    jobs = tuple(_renamed(job, names, expected.get(job.name)) for job in live.jobs)
    return live.model_copy(update={"jobs": jobs}).canonical()


def hold_the_same_but_for_gpu_indices(one: Placement, other: Placement) -> bool:
    """True if two placements have replicas with as many GPUs of each kind on the same nodes."""
    return _kinds_by_node(one) == _kinds_by_node(other)


def _kinds_by_node(placed: Placement) -> list[tuple[str, list[tuple[str, int]]]]:
    return sorted((replica.node, _kinds(replica)) for replica in placed.replicas)


def _expected(plan: Plan, running: Iterable[Placement], begun: Collection[str]) -> Iterable[Placement]:
    """What the plan expects a job to hold before its action, or after, if the job runs there."""
    before = {placed.job: placed for placed in plan.snapshot.running_placements}
    after = {
        change.job: (change.id, change.after)
        for change in changes_of(plan.actions)
        if not isinstance(change, NodeAction) and change.after is not None
    }
    for placed in running:
        id_, then = after.get(placed.job, ("", None))
        found = [before.get(placed.job), then]
        if id_ in begun:
            found.reverse()
        fitting = (
            each
            for each in found
            if each and (each == placed or hold_the_same_but_for_gpu_indices(each, placed))
        )
        if (best := next(fitting, None)) is not None:
            yield best


def _names(node: Node, there: Iterable[Placement], expected: Mapping[str, Placement]) -> _Names:
    """The plan's names of the parts of a node: those of each job first, then the others."""
    names: _Names = {}
    parts = _parts_of(node)
    for placed in there:
        if (known := expected.get(placed.job)) is not None:
            for found, wanted in zip(_on(placed, node), _on(known, node), strict=True):
                _pair(names, parts & _parts_held(found), parts & _parts_held(wanted))
    _pair(names, parts, parts)
    return names


def _pair(names: _Names, found: Iterable[_Part], wanted: Iterable[_Part]) -> None:
    """Give found parts the names of wanted ones of the same kind, where neither is given already."""
    found, wanted = set(found) - names.keys(), set(wanted) - set(names.values())
    for part in found & wanted:
        names[part] = part
    left: dict[str, list[_Part]] = defaultdict(list)
    for part in sorted(wanted - found):
        left[part[0]].append(part)
    for part in sorted(found - wanted):
        if left[part[0]]:
            names[part] = left[part[0]].pop(0)


def _parts_of(node: Node) -> set[_Part]:
    """GPUs of a node that are healthy and not in MIG mode, and MIG instances of the others."""
    gpus = [gpu for gpu in node.gpus.by_index.values() if gpu.healthy] if node.gpus else []
    parts = {("", gpu.index, 0) for gpu in gpus if gpu.mig is None}
    return parts | {(each.profile, gpu.index, each.start) for gpu in gpus for each in gpu.mig or ()}


def _part(held: GpuShare | MigSlice) -> _Part:
    return ("", held.index, 0) if isinstance(held, GpuShare) else (held.profile, held.index, held.start)


def _parts_held(replica: Replica) -> set[_Part]:
    return {_part(held) for held in replica.gpus}


def _on(placed: Placement, node: Node) -> list[Replica]:
    """Replicas of a job on a node, those with equal kinds of GPUs beside each other."""
    there = (replica for replica in placed.replicas if replica.node == node.name)
    return sorted(there, key=lambda replica: (_kinds(replica), sorted(map(_part, replica.gpus))))


def _kinds(replica: Replica) -> list[tuple[str, int]]:
    """What a replica holds of GPUs but for their indices: shares by size, MIG instances by profile."""
    return sorted(
        ("", held.milli) if isinstance(held, GpuShare) else (held.profile, 0) for held in replica.gpus
    )


def _renamed(job: Job, names: Mapping[str, _Names], expected: Placement | None) -> Job:
    """The job with the plan's names for what it holds; where it holds what is expected, in that order."""
    if job.running is None or not any(replica.node in names for replica in job.running.replicas):
        return job
    replicas = tuple(_with_names(replica, names.get(replica.node, {})) for replica in job.running.replicas)
    if expected is not None and same_holdings(replicas, expected.replicas):
        replicas = expected.replicas
    if replicas == job.running.replicas:
        return job
    return job.model_copy(update={"running": job.running.model_copy(update={"replicas": replicas})})


def _with_names(replica: Replica, names: _Names) -> Replica:
    held = tuple(_named(each, names.get(_part(each))) for each in replica.gpus)
    return replica if held == replica.gpus else replica.model_copy(update={"gpus": held})


def _named(held: GpuShare | MigSlice, part: _Part | None) -> GpuShare | MigSlice:
    if part is None:
        return held
    _, index, start = part
    return held.model_copy(
        update={"index": index} if isinstance(held, GpuShare) else {"index": index, "start": start}
    )
