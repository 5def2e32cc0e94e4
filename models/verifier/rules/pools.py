"""The rule about added and removed nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Node, NodePool
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import print_seconds
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import format_count, truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.verifier.context import Context


def pools(case: Context) -> Iterator[Violation]:
    """
    An added node matches its pool's template; a removed node belongs to a pool, accepts jobs and is empty.

    No job is preempted or shrunk to remove a node: jobs that ran there migrate.

    A pool with added nodes has at most its maximum, one with removed nodes at least its minimum. A pool gets
    no node for some time after it lost one, and loses none for some time after it got one. A rollback
    need not wait so with the pools of its plan; a node that it uncordons is there and cordoned.
    """
    for name in case.undo.opened:
        node = case.snapshot.cluster.node_by_name.get(name)
        if node is None or not node.cordoned or name in case.gone:
            found = "uncordoned, but not there or not cordoned"
            yield Violation(Rule.POOLS, f"node {name}", found, "a cordoned node that stays")
    if not (case.added or case.removed):
        return
    yield from _added(case)
    yield from _removed(case)
    size = Counter(node.pool for node in case.nodes_after)
    growing = {node.pool for node in case.added}
    shrinking = {node.pool for node in case.snapshot.cluster.nodes if node.name in case.gone}
    for name, pool in case.pools.items():
        found = format_count(size[name], "node")
        if name in growing and size[name] > pool.maximum:
            yield Violation(
                Rule.POOLS, f"pool {name}", found, f"at most {format_count(pool.maximum, 'node')}"
            )
        if name in shrinking and size[name] < pool.minimum:
            yield Violation(
                Rule.POOLS, f"pool {name}", found, f"at least {format_count(pool.minimum, 'node')}"
            )
        rules = case.policy.pools
        if name in case.undo.pools:
            continue
        if name in growing:
            words = "gets a node {} after it lost one"
            yield from _too_soon(case, name, words, pool.node_removed_at, rules.scale_up_delay_after_remove)
        if name in shrinking:
            words = "loses a node {} after it got one"
            yield from _too_soon(case, name, words, pool.node_added_at, rules.scale_down_delay_after_add)


def node_changes(case: Context) -> Iterator[tuple[str, str, ActionKind]]:
    """What changes about whole nodes, as (subject, found, kind)."""
    for node in case.added:
        yield f"node {node.name}", "added", ActionKind.SCALE_UP
    for name in case.removed:
        yield f"node {name}", "removed", ActionKind.SCALE_DOWN
    for name in case.undo.opened:
        yield f"node {name}", "uncordoned", ActionKind.UNCORDON


def _too_soon(case: Context, pool: str, words: str, at: datetime | None, delay: int) -> Iterator[Violation]:
    """Violation if the opposite change of a pool is less than a delay ago."""
    passed = delay if at is None else int((case.snapshot.taken_at - at).total_seconds())
    if passed < delay:
        found, allowed = words.format(print_seconds(passed)), f"not before {print_seconds(delay)} have passed"
        yield Violation(Rule.POOLS, f"pool {pool}", found, allowed)


def _added(case: Context) -> Iterator[Violation]:
    times = Counter(node.name for node in case.added)
    for node in case.added:
        subject = f"node {node.name}"
        if not case.policy.pools.scale_up and case.snapshot.cluster.offers(ActionKind.SCALE_UP):
            yield Violation(Rule.POOLS, subject, "added", "no new nodes, since pools.scale_up is off")
        if node.name in case.snapshot.cluster.node_by_name:
            yield Violation(Rule.POOLS, subject, "added, but it exists", "a new name")
        if times[node.name] > 1:
            yield Violation(Rule.POOLS, subject, f"added {times[node.name]} times", "a name of its own")
        pool = case.pools.get(node.pool or "")
        if pool is None:
            found = f"added to pool {node.pool}, which does not exist" if node.pool else "added to no pool"
            yield Violation(Rule.POOLS, subject, found, "a pool of the cluster")
        elif pool.names and node.name not in pool.names:
            allowed = f"a name of pool {pool.name}: {truncated_names(pool.names)}"
            yield Violation(Rule.POOLS, subject, "added", allowed)
        elif strange := _strange_fields(node, pool):
            found = f"added with another {truncated_names(strange)}"
            yield Violation(Rule.POOLS, subject, found, f"the same as the template of pool {pool.name}")


def _strange_fields(node: Node, pool: NodePool) -> list[str]:
    """Fields, by their names in documents, in which a new node differs from its pool's template."""
    # Name, pool and the instant of being ready are those of the node itself; all else is the template's.
    made = pool.template.model_copy(update={"name": node.name, "pool": pool.name, "ready_at": None})
    return [
        field.alias or name
        for name, field in Node.model_fields.items()
        if getattr(node, name) != getattr(made, name)
    ]


def _removed(case: Context) -> Iterator[Violation]:
    holders: dict[str, set[str]] = defaultdict(set)
    for placement in case.placements:
        for replica in placement.replicas:
            holders[replica.node].add(placement.job)
    losers: dict[str, set[str]] = defaultdict(set)
    for job in (*case.stopped, *(job for job, _ in case.with_change(Change.SHRUNK))):
        for replica in job.running.replicas if job.running else ():
            losers[replica.node].add(job.name)
    for name, times in Counter(case.removed).items():
        subject = f"node {name}"
        if not case.policy.pools.scale_down and case.snapshot.cluster.offers(ActionKind.SCALE_DOWN):
            found, allowed = "removed", "all nodes stay, since pools.scale_down is off"
            yield Violation(Rule.POOLS, subject, found, allowed)
        if times > 1:
            yield Violation(Rule.POOLS, subject, f"removed {times} times", "once")
        node = case.snapshot.cluster.node_by_name.get(name)
        if node is None:
            yield Violation(Rule.POOLS, subject, "removed, but no such node", "a node of the snapshot")
            continue
        if node.pool not in case.pools:
            found = (
                f"removed from pool {node.pool}, which does not exist"
                if node.pool
                else "removed from no pool"
            )
            yield Violation(Rule.POOLS, subject, found, "a node of a pool of the cluster")
        if not node.schedulable:
            yield Violation(Rule.POOLS, subject, "removed, but takes no jobs", "a node that takes jobs")
        if name in holders:
            found = f"removed with {truncated_names(holders[name])}"
            yield Violation(Rule.POOLS, subject, found, "an empty node")
        if name in losers:
            found = f"removed after {truncated_names(losers[name])} had to give up replicas"
            yield Violation(Rule.POOLS, subject, found, "a node emptied by moves only")
