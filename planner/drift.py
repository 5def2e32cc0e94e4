"""Whether the cluster is still as a plan expects it, for the actions of the plan that are left to do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias, assert_never

from planner.models.base import canonical_json
from planner.models.plan import Start
from planner.models.policy import Drift
from planner.preconditions import DriftItem, LiveView, unschedulable_drift, waiting_drift

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.placement import Placement, Replica
    from planner.models.plan import Plan
    from planner.models.snapshot import Snapshot

_Holders: TypeAlias = dict[str, dict[str, tuple["Replica", ...]]]
"""By node and job: what runs there."""


def drift(plan: Plan, live: Snapshot, *, done: Collection[str], mode: Drift) -> tuple[DriftItem, ...]:
    """
    What is not as the starts that are left count on, sorted; `done` holds ids of actions already done.

    Strict: every node they use, with all that runs on it, and every job they start is as in the plan's own
    snapshot once the done actions are applied to it. Preconditions: their preconditions hold when they are
    done one after the other.
    """
    starts = [action for action in plan.actions if isinstance(action, Start)]
    left = [action for action in starts if action.id not in done]
    match mode:
        case Drift.STRICT:
            applied = [action.after for action in starts if action.id in done]
            items = [*_strict(plan.snapshot, live, left=left, applied=applied)]
            # Where nothing has changed these hold too, unless the plan contradicts itself.
            items = items or [*_unmet(LiveView.of(live), left)]
        case Drift.PRECONDITIONS:
            items = [*_unmet(LiveView.of(live), left)]
        case _:
            assert_never(mode)
    return tuple(sorted(set(items)))


def _unmet(view: LiveView, left: Iterable[Start]) -> Iterator[DriftItem]:
    for action in left:
        unmet = [sight.drift for sight in view.sights(action) if sight.drift]
        yield from unmet
        if not unmet:
            view.done(action)


def _strict(
    base: Snapshot, live: Snapshot, *, left: list[Start], applied: list[Placement]
) -> Iterator[DriftItem]:
    for action in left:
        yield from _job_changes(
            action.job, base.job_by_name.get(action.job), live.job_by_name.get(action.job)
        )
    touched = {replica.node for action in left for replica in action.after.replicas}
    for name in sorted(touched):
        yield from _node_changes(
            name, base.cluster.node_by_name.get(name), live.cluster.node_by_name.get(name)
        )
    starting = {action.job for action in left}
    expected = _holders([*base.running_placements, *applied], touched)
    found = _holders(
        (placement for placement in live.running_placements if placement.job not in starting), touched
    )
    yield from _holder_changes(expected, found, live)


def _job_changes(name: str, expected: Job | None, found: Job | None) -> Iterator[DriftItem]:
    if (item := waiting_drift(name, found)) is not None:
        yield item
    elif expected is None or found is None:
        yield DriftItem(f"job {name}", "is new", "no such job when the plan was made", "a waiting job")
    elif expected != found:
        yield from _field_changes(f"job {name}", expected.document(), found.document())


def _node_changes(name: str, expected: Node | None, found: Node | None) -> Iterator[DriftItem]:
    subject = f"node {name}"
    if found is None:
        yield unschedulable_drift(name, found)
        return
    if expected is None:
        yield DriftItem(subject, "is new", "no such node when the plan was made", "a node")
        return
    if expected == found:
        return
    told = {"ready", "cordoned"}
    if expected.schedulable and not found.schedulable:
        yield unschedulable_drift(name, found)
    elif (expected.ready, expected.cordoned) != (found.ready, found.cordoned):
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
    yield from _field_changes(subject, expected.document(), found.document(), told=told)


def _healthy(node: Node) -> set[int]:
    return {index for index, gpu in node.gpus.by_index.items() if gpu.healthy} if node.gpus else set()


def _field_changes(
    subject: str, expected: dict[str, object], found: dict[str, object], *, told: Collection[str] = ()
) -> Iterator[DriftItem]:
    for field in sorted((expected.keys() | found.keys()) - set(told)):
        before, after = expected.get(field), found.get(field)
        if before != after:
            yield DriftItem(subject, f"changed in {field}", _shown(before), _shown(after))


def _shown(value: object) -> str:
    return "the default" if value is None else canonical_json(value)


def _holders(placements: Iterable[Placement], nodes: Collection[str]) -> _Holders:
    """What runs on some nodes."""
    holders: _Holders = {name: {} for name in nodes}
    for placement in placements:
        for replica in placement.replicas:
            if replica.node in holders:
                there = holders[replica.node]
                there[placement.job] = (*there.get(placement.job, ()), replica)
    return holders


def _holder_changes(expected: _Holders, found: _Holders, live: Snapshot) -> Iterator[DriftItem]:
    """One item for each job and kind of change, whatever the number of nodes."""
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
