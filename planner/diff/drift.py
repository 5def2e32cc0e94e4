"""Drift: whether the cluster still is as the remaining actions of a plan expect it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias, assert_never

from gpuplan.models.base import canonical_json
from gpuplan.models.errors import truncated_names
from gpuplan.models.placement import node_names
from gpuplan.models.plan.actions import Change, NodeAction, PoolAction, Preempt, Release, ScaleUp, changes_of
from gpuplan.models.policy.policy import Drift
from gpuplan.models.units import print_timestamp
from gpuplan.planner.analysis.effects import ClusterView, apply_action, nodes_touched
from gpuplan.planner.apply.live_view import LiveView, without_released
from gpuplan.planner.apply.precondition_checks import (
    DriftItem,
    present_node_drift,
    running_drift,
    unschedulable_drift,
    waiting_drift,
)
from gpuplan.planner.apply.promises import promise_step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement, Promise, Replica
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


def drift(plan: Plan, live: Snapshot, *, done: Collection[str], mode: Drift) -> tuple[DriftItem, ...]:
    """
    Return the differences from what the remaining changes expect, sorted; `done` has the ids of done actions.

    Mode strict: three things equal the plan's snapshot after the done actions: the jobs that the remaining
    changes change or promise something, the nodes that they use, empty or change with all jobs there, and the
    pools that they resize. Mode preconditions: each precondition holds when the changes are done in order.
    """
    live = live.canonical()
    changes = changes_of(plan.actions)
    left = [change for change in changes if change.id not in done]
    match mode:
        case Drift.STRICT:
            applied = [change for change in changes if change.id in done]
            step = promise_step(plan)
            promised = step.promises if step and step.id not in done else ()
            items = [*_strict(plan.snapshot.canonical(), live, left=left, applied=applied, promised=promised)]
            # Without drift the preconditions hold too, unless the plan contradicts itself.
            items = items or [*_unmet(LiveView.of(live, left, plan.snapshot), left)]
        case Drift.PRECONDITIONS:
            items = [*_unmet(LiveView.of(live, left, plan.snapshot), left)]
        case _:
            assert_never(mode)
    return tuple(sorted(set(items)))


def _unmet(view: LiveView, left: Iterable[Change]) -> Iterator[DriftItem]:
    for change in left:
        unmet = [sight.drift for sight in view.check_preconditions(change) if sight.drift]
        yield from unmet
        if not unmet:
            view.done(change)


def _strict(
    base: Snapshot, live: Snapshot, *, left: list[Change], applied: list[Change], promised: Iterable[str]
) -> Iterator[DriftItem]:
    released = {change.job for change in left if isinstance(change, Release)}
    live = without_released(live, released, base)
    before = ClusterView(base)
    for change in applied:
        apply_action(before, change)
        _accept_rounding(before, change, live)
    changing = {change.job for change in left if not isinstance(change, NodeAction)}
    stopped = {change.job for change in applied if isinstance(change, Preempt)}
    for name in sorted(changing.union(promised)):
        expected_job, now = base.job_by_name.get(name), live.job_by_name.get(name)
        yield from _job_changes(name, expected_job, now, stopped=name in stopped)
    touched = {name for change in left for name in nodes_touched(change)}
    ordered = {change.node for change in applied if isinstance(change, ScaleUp)}
    for name in sorted(touched):
        found = live.cluster.node_by_name.get(name)
        expected = _as_time_passed(before.node(name), found, live, ordered=name in ordered)
        yield from node_changes(name, expected, found)
    # The jobs that are still to be changed are reported above.
    stay = (placement for placement in before.placements.values() if placement.job not in changing)
    found_running = (placement for placement in live.running_placements if placement.job not in changing)
    yield from holder_changes(holders(stay, touched), holders(found_running, touched), live)
    for pool in sorted({change.pool for change in left if isinstance(change, PoolAction)}):
        yield from _pool_changes(pool, base.cluster, live.cluster)


def _accept_rounding(before: ClusterView, change: Change, live: Snapshot) -> None:
    """
    Expect what a job that the plan placed really holds, if that is as many GPUs on the same nodes.

    A cluster may round CPUs and memory up. Whether the rest has room beside them, its preconditions tell.
    """
    if isinstance(change, NodeAction) or change.after is None:
        return
    job = live.job_by_name.get(change.job)
    found = job.placement if job else None
    if found is not None and _holds_gpus_of(found, change.after):
        before.placements[change.job] = found


def _holds_gpus_of(found: Placement, planned: Placement) -> bool:
    """True if a job holds the planned GPUs on the planned nodes, whatever CPUs and memory beside them."""
    return _gpus_by_node(found) == _gpus_by_node(planned)


def _gpus_by_node(placed: Placement) -> list[tuple[str, list[str]]]:
    return sorted(
        (replica.node, sorted(canonical_json(held.document()) for held in replica.gpus))
        for replica in placed.replicas
    )


def _job_changes(name: str, expected: Job | None, found: Job | None, *, stopped: bool) -> Iterator[DriftItem]:
    """How a job differs; for a job that the plan has stopped, the cluster decides its saved progress."""
    told = ("promise", "running", "progress", "preemptions") if stopped else ("promise",)
    if expected is not None and expected.running is not None and not stopped:
        item = running_drift(name, found, found.placement if found else None, expected.placement)
    else:
        item = waiting_drift(name, found)
    if item is not None:
        yield item
    elif expected is None or found is None:
        yield DriftItem(f"job {name}", "is new", "no such job when the plan was made", "a waiting job")
    elif expected != found:
        yield from promise_changes(name, expected.promise, found.promise)
        yield from field_changes(f"job {name}", expected.document(), found.document(), told=told)


def _as_time_passed(
    expected: Node | None, found: Node | None, live: Snapshot, *, ordered: bool
) -> Node | None:
    """
    The expected node, with the state of its provisioning that is due by now.

    For a node that the plan itself ordered, the cluster decides when it will be ready.
    """
    if expected is None or found is None or expected.ready_at == found.ready_at:
        return expected
    over = expected.ready_at is not None and expected.ready_at <= live.taken_at
    if ordered or (over and found.ready_at is None):
        return expected.model_copy(update={"ready_at": found.ready_at})
    return expected


def _pool_changes(name: str, before: Cluster, now: Cluster) -> Iterator[DriftItem]:
    expected, found = (
        next((pool for pool in cluster.pools if pool.name == name), None) for cluster in (before, now)
    )
    if found is None:
        yield DriftItem(f"pool {name}", "is gone", "a pool", "no such pool")
    elif expected is None:
        yield DriftItem(f"pool {name}", "is new", "no such pool when the plan was made", "a pool")
    else:
        # The verifier checks whether the pool was scaled too recently.
        yield from field_changes(
            f"pool {name}", expected.with_scaling_times_of(found).document(), found.document()
        )


# Drift items: how nodes, and the jobs on them, differ from what a plan expects; one item per difference.


Holders: TypeAlias = dict[str, dict[str, tuple["Replica", ...]]]
"""Replicas by node and job."""


def node_changes(name: str, expected: Node | None, found: Node | None) -> Iterator[DriftItem]:
    """Yield how a node differs; None means that there is no such node."""
    subject = f"node {name}"
    if expected is None:
        if found is not None:
            yield present_node_drift(name)
        return
    if found is None:
        yield unschedulable_drift(name, found)
        return
    if expected == found:
        return
    told = {"ready", "cordoned", "drain"}
    if expected.schedulable and not found.schedulable:
        yield unschedulable_drift(name, found)
    else:
        told = set()
    if change := found.gpu_count - expected.gpu_count:
        told.add("gpus")
        verb = "gained" if change > 0 else "lost"
        plural = "" if abs(change) == 1 else "s"
        yield DriftItem(
            subject, f"{verb} {abs(change)} GPU{plural}", str(expected.gpu_count), str(found.gpu_count)
        )
    elif broken := sorted(_healthy(expected) - _healthy(found)):
        told.add("gpus")
        which = ", ".join(map(str, broken))
        yield DriftItem(subject, f"has unhealthy GPUs ({which})", "all of them healthy", "unhealthy")
    yield from field_changes(subject, expected.document(), found.document(), told=told)


def _healthy(node: Node) -> set[int]:
    return {index for index, gpu in node.gpus.by_index.items() if gpu.healthy} if node.gpus else set()


def field_changes(
    subject: str, expected: dict[str, object], found: dict[str, object], *, told: Collection[str] = ()
) -> Iterator[DriftItem]:
    """Yield how two documents differ, field by field; fields in `told` are skipped."""
    for field in sorted((expected.keys() | found.keys()) - set(told)):
        before, after = expected.get(field), found.get(field)
        if before != after:
            yield DriftItem(subject, f"changed in {field}", _shown(before), _shown(after))


def promise_changes(name: str, expected: Promise | None, found: Promise | None) -> Iterator[DriftItem]:
    """Yield how a job's promised start differs."""
    if expected != found:
        yield DriftItem(f"job {name}", "was promised another start", _start(expected), _start(found))


def _start(promise: Promise | None) -> str:
    if promise is None:
        return "none"
    nodes = sorted(node_names(promise.replicas))
    return f"{print_timestamp(promise.start)} on {truncated_names(nodes)}"


def _shown(value: object) -> str:
    return "the default" if value is None else canonical_json(value)


def holders(placements: Iterable[Placement], nodes: Collection[str]) -> Holders:
    """Return what runs on these nodes."""
    found: Holders = {name: {} for name in nodes}
    for placement in placements:
        for replica in placement.replicas:
            if replica.node in found:
                there = found[replica.node]
                there[placement.job] = (*there.get(placement.job, ()), replica)
    return found


def holder_changes(expected: Holders, found: Holders, live: Snapshot) -> Iterator[DriftItem]:
    """Yield one item per job and kind of change, whatever the number of nodes."""
    changes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in sorted(expected):
        before, after = expected[node], found[node]
        for job in sorted(before.keys() | after.keys()):
            if job not in after:
                changes[job, "no longer runs"].append(node)
            elif job not in before:
                changes[job, "now runs"].append(node)
            elif _sorted(before[job]) != _sorted(after[job]):
                changes[job, "holds something else"].append(node)
    for (job, change), nodes in sorted(changes.items()):
        where = ", ".join(nodes)
        match change:
            case "no longer runs":
                known = live.job_by_name.get(job)
                now = "no such job" if known is None else "running elsewhere" if known.running else "waiting"
                yield DriftItem(f"job {job}", f"no longer runs on {where}", "running there", now)
            case "now runs":
                yield DriftItem(f"job {job}", f"now runs on {where}", "not running there", "running there")
            case _:
                yield DriftItem(
                    f"job {job}",
                    f"holds something else on {where}",
                    _held(expected[nodes[0]][job]),
                    _held(found[nodes[0]][job]),
                )


def _sorted(replicas: Iterable[Replica]) -> list[str]:
    return sorted(canonical_json(replica.document()) for replica in replicas)


def _held(replicas: Iterable[Replica]) -> str:
    return f"[{', '.join(_sorted(replicas))}]"
