"""
GPUs of the host for actions: the devices of a placement, and MIG layouts that are marked and changed.

The driver makes a layout in many calls, any of which may be the last one of a killed process. So a change is
marked first, and the same call goes on from there.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pynvml

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import mig_geometry
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
from gpuplan.planner.sources.nvml.gpus import profile_name, read_gpu
from gpuplan.planner.sources.nvml.library import GpuGoneError, opened_nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Replica
    from gpuplan.models.plan.actions import Repartition
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.executors.local.job_queue import JobQueue
    from gpuplan.planner.sources.nvml.gpus import GpuReading


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
            uuid = mig_devices(each.index).get(each.instance, "")
        else:
            uuid = gpus[each.index].uuid
        if not uuid:
            raise UnreachableError(f"GPU {each.index}: the driver does not tell its UUID.")
        found.append(uuid)
    return found


def has_mig_in_use(host: Snapshot, held: Iterable[Replica]) -> bool:
    """True if a GPU in MIG mode has jobs of the queue, or processes."""
    used = {part.index for replica in held for part in replica.gpus}
    used |= {part.index for job in host.jobs for replica in job.running_replicas for part in replica.gpus}
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
            change_layout(mark["gpu"], [MigInstance.model_validate(each) for each in mark["after"]])
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


def mig_devices(index: int) -> dict[MigInstance, str]:
    """UUID of each MIG device of a GPU, as CUDA_VISIBLE_DEVICES takes it."""
    with opened_nvml(), _errors_told(index):
        gpu = _reading(index)
        found = {}
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)):
            try:
                device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
            # Not every number below the maximum has a device.
            except pynvml.NVMLError_NotFound:
                continue
            instance = (gpu.instances or {}).get(pynvml.nvmlDeviceGetGpuInstanceId(device))
            if instance is not None:
                found[instance] = pynvml.nvmlDeviceGetUUID(device)
        return found


def change_layout(index: int, wanted: Collection[MigInstance]) -> None:
    """
    Give an idle GPU exactly these MIG instances, each with one compute instance that has all of it.

    If this is killed on the way, the same call goes on from there.

    Raises
    ------
    ExecutionError
        The GPU is in use, or the driver refuses the layout.
    """
    with opened_nvml(), _errors_told(index):
        gpu = _reading(index)
        if gpu.processes or gpu.hidden:
            raise ExecutionError(f"GPU {index}: expected it without processes, found some.")
        if gpu.instances is None:
            _turn_on(gpu)
            gpu = _reading(index)
        there = gpu.instances or {}
        for handle, id_ in _instances(gpu):
            if there[id_] not in wanted:
                for compute in _compute_instances(handle):
                    pynvml.nvmlComputeInstanceDestroy(compute)
                pynvml.nvmlGpuInstanceDestroy(handle)
        for missing in sorted(set(wanted) - set(there.values()), key=lambda each: each.start):
            _create(gpu, missing)
        for handle, _ in _instances(gpu):
            if not _compute_instances(handle):
                pynvml.nvmlGpuInstanceCreateComputeInstance(handle, _whole(handle))


def layout_of(index: int) -> frozenset[MigInstance] | None:
    """The MIG instances of a GPU that programs can use now; None if MIG mode is off."""
    with opened_nvml(), _errors_told(index):
        gpu = _reading(index)
        if gpu.instances is None:
            return None
        return frozenset(gpu.instances[id_] for handle, id_ in _instances(gpu) if _compute_instances(handle))


def _reading(index: int) -> GpuReading:
    gpu = read_gpu(index, lambda *_: None)
    if gpu.unclear or gpu.vitals.gone:
        raise ExecutionError(
            f"GPU {index}: expected a MIG layout that can be read, found another; run this as root."
        )
    return gpu


def _turn_on(gpu: GpuReading) -> None:
    """Turn MIG mode on; where that takes a reset of the GPU, it stays off."""
    pynvml.nvmlDeviceSetMigMode(gpu.handle, pynvml.NVML_DEVICE_MIG_ENABLE)
    current, _ = pynvml.nvmlDeviceGetMigMode(gpu.handle)
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        pynvml.nvmlDeviceSetMigMode(gpu.handle, pynvml.NVML_DEVICE_MIG_DISABLE)
        raise ExecutionError(
            f"GPU {gpu.index}: expected MIG mode to turn on at once, found that it takes a reset."
        )


def _profiles(gpu: GpuReading) -> Iterator[Any]:
    for which in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu.handle, which)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue


def _instances(gpu: GpuReading) -> list[tuple[Any, int]]:
    """Handle and id of each GPU instance."""
    found = []
    for profile in _profiles(gpu):
        handles = _listed(
            pynvml.nvmlDeviceGetGpuInstances,
            gpu.handle,
            profile.id,
            pynvml.c_nvmlGpuInstance_t,
            profile.instanceCount,
        )
        found += [(each, pynvml.nvmlGpuInstanceGetInfo(each).id) for each in handles]
    return found


def _listed(call: Callable[..., Any], handle: Any, profile: int, kind: Any, most: int) -> list[Any]:
    handles, count = (kind * most)(), ctypes.c_uint(most)
    call(handle, profile, handles, ctypes.byref(count))
    return list(handles[: count.value])


def _create(gpu: GpuReading, wanted: MigInstance) -> None:
    geometry = mig_geometry(gpu.model)
    for profile in _profiles(gpu):
        places = (pynvml.c_nvmlGpuInstancePlacement_t * 8)()
        count = ctypes.c_uint(len(places))
        pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu.handle, profile.id, places, ctypes.byref(count))
        for place in places[: count.value]:
            if place.start == wanted.start and profile_name(geometry, profile, place) == wanted.profile:
                pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu.handle, profile.id, ctypes.byref(place))
                return
    raise ExecutionError(
        f"GPU {gpu.index}: expected a place for {wanted.profile} at slice {wanted.start}, found none."
    )


def _compute_profiles(instance: Any) -> Iterator[Any]:
    for which in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, which, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            )
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue


def _compute_instances(instance: Any) -> list[Any]:
    return [
        each
        for profile in _compute_profiles(instance)
        for each in _listed(
            pynvml.nvmlGpuInstanceGetComputeInstances,
            instance,
            profile.id,
            pynvml.c_nvmlComputeInstance_t,
            profile.instanceCount,
        )
    ]


def _whole(instance: Any) -> int:
    """Id of the compute profile that takes all of a GPU instance: that with the most slices."""
    profile = max(_compute_profiles(instance), key=lambda each: each.sliceCount)
    return int(profile.id)


@contextmanager
def _errors_told(index: int) -> Iterator[None]:
    try:
        yield
    except (pynvml.NVMLError, GpuGoneError) as error:
        raise ExecutionError(f"GPU {index}: the driver refuses it: {str(error).rstrip('.')}.") from None
