"""
Facts of hosts at apply: the GPUs' UUIDs, health and links, and processes of others, of a merged snapshot.

A scheduler such as Slurm does not tell them. So a plan from a merged snapshot is compared with what the
cluster tells, and with the facts that the plan's snapshot has from its hosts.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.health.findings import lasting_faults, with_exclusions, with_faults
from gpuplan.models.queue import FOREIGN_QUEUE, Queue
from gpuplan.planner.apply.promises import with_promises_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.cluster import Node
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


def with_untold(live: Snapshot, plan: Plan) -> Snapshot:
    """
    The cluster with what it does not tell and a plan knows: promises, facts of hosts, and excluded GPUs.

    A GPU that the plan's rules of health exclude, now or when it was made, is unhealthy for this plan.
    """
    base, rules = plan.snapshot, plan.policy.health
    told = with_exclusions(with_host_facts_of(with_promises_of(live, base), base), rules)
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
