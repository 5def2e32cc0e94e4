"""The stand-in for NVML answers NVIDIA's own bindings as a driver does."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pynvml
import pytest

from tests.support.nvml.standin import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path / "machine", monkeypatch)
    pynvml.nvmlInit()
    yield made
    pynvml.nvmlShutdown()


def handle(index=0):
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_two_processes_see_one_machine(machine):
    machine.set(0, temperature=77)
    script = (
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0);"
        "print(n.nvmlDeviceGetTemperature(h, 0)); n.nvmlDeviceSetMigMode(h, 1)"
    )

    child = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | machine.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert child.stdout == "77\n"
    assert pynvml.nvmlDeviceGetMigMode(handle()) == [1, 1]


def test_identity_and_memory(machine):
    machine.add_process(0, 5, mib=100)

    assert pynvml.nvmlSystemGetDriverVersion() == "580.126.09"
    assert pynvml.nvmlDeviceGetSerial(handle(3)) == "1650024000003"
    assert pynvml.nvmlDeviceGetPciInfo(handle(3)).busId == "00000000:13:00.0"
    assert pynvml.nvmlDeviceGetIndex(handle(3)) == 3
    memory, newer = (pynvml.nvmlDeviceGetMemoryInfo(handle(), each) for each in (None, pynvml.nvmlMemory_v2))
    assert memory.total == newer.total == 81_559 * 2**20
    assert memory.used == newer.used == 100 * 2**20
    assert newer.total == newer.used + newer.free + newer.reserved


def test_power_and_places(machine):
    machine.set(0, milliwatts=300_000)

    assert pynvml.nvmlDeviceGetPowerUsage(handle()) == 300_000
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(handle()) == 700_000
    thresholds = [pynvml.nvmlDeviceGetTemperatureThreshold(handle(), each) for each in (0, 1)]
    assert thresholds == [95, 90]
    ancestors = [pynvml.nvmlDeviceGetTopologyCommonAncestor(handle(), handle(at)) for at in (0, 3, 4)]
    assert ancestors == [
        pynvml.NVML_TOPOLOGY_INTERNAL,
        pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
        pynvml.NVML_TOPOLOGY_SYSTEM,
    ]
    assert list(pynvml.nvmlDeviceGetCpuAffinity(handle(7), 1)) == [0xFF00]


def test_instances_are_created_and_destroyed_in_order(machine):
    first, *_ = machine.cut(0, (9, 4))
    (created,) = instances(9)

    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        place(0, 9, 4)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        place(0, 9, 2)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlDeviceSetMigMode(handle(), 0)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(), 0)
    assert pynvml.nvmlDeviceGetGpuInstanceId(device) == first
    assert pynvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert pynvml.nvmlDeviceGetUUID(device).startswith("MIG-")
    machine.add_process(0, 5, instance=first)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlGpuInstanceDestroy(created)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlComputeInstanceDestroy(device)


def test_an_idle_gpu_leaves_mig_mode_again(machine):
    machine.cut(0, (9, 4))
    (created,) = instances(9)
    pynvml.nvmlComputeInstanceDestroy(created)
    pynvml.nvmlGpuInstanceDestroy(created)

    pynvml.nvmlDeviceSetMigMode(handle(), 0)

    assert pynvml.nvmlDeviceGetMigMode(handle()) == [0, 0]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        place(0, 9, 4)


def test_possible_places_are_counted_and_listed(machine):
    count = ctypes.c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle(), 15, None, ctypes.byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle(), 15, found, ctypes.byref(count))

    assert [(each.start, each.size) for each in found] == [(0, 2), (2, 2), (4, 2), (6, 2)]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle()) == 7


def test_events_are_told_once(machine):
    machine.raise_xid(2, 79)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(2), pynvml.nvmlEventTypeXidCriticalError, events)

    event = pynvml.nvmlEventSetWait_v2(events, 100)

    assert (event.eventType, event.eventData) == (8, 79)
    assert pynvml.nvmlDeviceGetIndex(event.device) == 2
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 1)
    pynvml.nvmlEventSetFree(events)


def test_a_call_that_is_not_there_is_one_of_an_old_driver(machine):
    assert machine.environment
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetBoardId(handle())


def place(gpu, profile, start):
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start, 0)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle(gpu), profile, ctypes.byref(placement))


def instances(profile, gpu=0):
    found, count = (pynvml.c_nvmlGpuInstance_t * 8)(), ctypes.c_uint(8)
    pynvml.nvmlDeviceGetGpuInstances(handle(gpu), profile, found, ctypes.byref(count))
    return list(found)[: count.value]
