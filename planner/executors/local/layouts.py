"""GPUs of the host for actions: the devices of a placement, and MIG layouts that are marked and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import MigSlice
from gpuplan.planner.action_marks import MarkStage
from gpuplan.planner.executors.interface import (
    LANDED,
    NOT_BEGUN,
    ActionPhase,
    ActionProgress,
    ExecutionError,
    UnreachableError,
)
from gpuplan.planner.executors.local import mig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Replica
    from gpuplan.models.plan.actions import Repartition
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.executors.local.job_queue import JobQueue

_KEPT: Final = 50
"""Marks of MIG layouts that the host remembers."""


def devices_of(replica: Replica, node: Node) -> list[str]:
    """
    UUIDs of what a replica holds, in its order.

    Raises
    ------
    UnreachableError
        The driver does not tell one of them.
    """
    gpus = node.gpus.by_index if node.gpus else {}
    found = []
    for each in replica.gpus:
        if isinstance(each, MigSlice):
            uuid = mig.mig_devices(each.index).get(each.instance, "")
        else:
            uuid = gpus[each.index].uuid
        if not uuid:
            raise UnreachableError(f"GPU {each.index}: the driver does not tell its UUID.")
        found.append(uuid)
    return found


def has_mig_in_use(host: Snapshot, held: Iterable[Replica]) -> bool:
    """True if a GPU in MIG mode has jobs of the queue, or processes."""
    used = {part.index for replica in held for part in replica.gpus}
    used |= {
        part.index
        for job in host.jobs
        for replica in (job.running.replicas if job.running else ())
        for part in replica.gpus
    }
    (node,) = host.cluster.nodes
    return any(
        gpu.mig is not None and index in used
        for index, gpu in (node.gpus.by_index if node.gpus else {}).items()
    )


def begin_layout(queue: JobQueue, host: Snapshot, action: Repartition, key: str) -> ActionProgress:
    """Mark the change of an idle GPU's layout, and make it; see `ClusterWriter.begin`."""
    mark = queue.facts.get("layouts", {}).get(key)
    if mark is None or mark["step"] == MarkStage.FAILED:
        if action.node not in host.cluster.node_by_name:
            raise ExecutionError(f"node {action.node}: expected this host, {host.cluster.nodes[0].name}.")
        users = sorted(
            job.name
            for job in host.jobs
            if job.running
            and any(each.index == action.gpu for part in job.running.replicas for each in part.gpus)
        )
        if users:
            raise ExecutionError(
                f"node {action.node}, GPU {action.gpu}: expected it idle to change its MIG layout, found "
                f"{', '.join(users)}."
            )
        after = [each.document() for each in action.after]
        _mark(queue, key, {"step": MarkStage.ASKED, "gpu": action.gpu, "after": after})
    return observe_layout(queue, key)


def observe_layout(queue: JobQueue, key: str) -> ActionProgress:
    """Progress of a change; one that was killed on the way goes on."""
    mark = queue.facts.get("layouts", {}).get(key)
    if mark is None:
        return NOT_BEGUN
    if mark["step"] == MarkStage.LANDED:
        return LANDED
    if mark["step"] == MarkStage.ASKED:
        try:
            mig.change_layout(mark["gpu"], [MigInstance.model_validate(each) for each in mark["after"]])
        except ExecutionError as error:
            mark |= {"step": MarkStage.FAILED, "reason": str(error)}
        else:
            mark |= {"step": MarkStage.LANDED}
        _mark(queue, key, mark)
    if mark["step"] == MarkStage.LANDED:
        return LANDED
    return ActionProgress(ActionPhase.FAILED, mark["reason"], retryable=True)


def _mark(queue: JobQueue, key: str, mark: dict[str, Any]) -> None:
    others = {name: each for name, each in queue.facts.get("layouts", {}).items() if name != key}
    queue.change_facts(layouts=dict([*others.items(), (key, mark)][-_KEPT:]))
