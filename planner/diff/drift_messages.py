"""Drift items: how nodes, and the jobs on them, differ from what a plan expects; one item per difference."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.base import canonical_json
from gpuplan.models.errors import truncated_names
from gpuplan.models.units import print_timestamp
from gpuplan.planner.apply.precondition_checks import DriftItem, present_node_drift, unschedulable_drift

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement, Promise, Replica
    from gpuplan.models.snapshot import Snapshot

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
    nodes = sorted({replica.node for replica in promise.replicas})
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
