"""A host through NVML: inventory, links, and what fails in part."""

from __future__ import annotations

import random

import pynvml
import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.sources.nvml import nvml
from gpuplan.planner.sources.nvml.gpus import SWITCH, GpuReading
from gpuplan.planner.sources.nvml.nvml import nvlink_groups


def only_node(reading):
    (node,) = reading.snapshot.cluster.nodes
    return node


def test_a_host_is_one_node_with_its_gpus(machine, read):
    reading = read()
    node = only_node(reading)

    assert (node.name, node.cpu_milli, node.memory_mib) == ("gpu01", 64_000, 512_000)
    assert (node.gpus.model, node.gpus.count) == ("NVIDIA-H100-80GB-HBM3", 8)
    assert (node.gpus.memory_mib, node.gpus.watts) == (81_559, 700)
    assert [gpu.uuid[-2:] for gpu in node.gpus.details] == [f"0{index}" for index in range(8)]
    assert [gpu.numa for gpu in node.gpus.details] == [0] * 4 + [1] * 4
    assert {gpu.nvlink for gpu in node.gpus.details} == {0}
    assert all(gpu.healthy for gpu in node.gpus.details)
    assert (reading.findings, reading.notes, reading.snapshot.jobs) == ((), (), ())
    assert not list(inconsistencies(reading.snapshot))


def test_what_a_consumer_gpu_does_not_have_is_left_out_without_a_note(make_machine, read):
    make_machine(2, "RTX 4090")

    reading = read()

    details = only_node(reading).gpus.details
    assert only_node(reading).gpus.model == "NVIDIA-GeForce-RTX-4090"
    assert [(gpu.mig, gpu.nvlink, gpu.healthy) for gpu in details] == [(None, None, True)] * 2
    assert (reading.findings, reading.notes) == ((), ())


def test_one_lost_gpu_is_an_unhealthy_gpu_of_an_otherwise_whole_host(machine, read):
    machine.set(3, lost=1)

    reading = read()

    gpus = only_node(reading).gpus
    assert (gpus.model, gpus.count, gpus.memory_mib) == ("NVIDIA-H100-80GB-HBM3", 8, 81_559)
    assert [gpu.index for gpu in gpus.details if not gpu.healthy] == [3]
    assert gpus.by_index[3].fault == "it does not answer (GPU is lost)"
    assert len(reading.findings) == 1


def test_a_host_of_lost_gpus_alone_has_gpus_of_no_model(machine, read):
    for index in range(8):
        machine.set(index, lost=1)

    gpus = only_node(read()).gpus

    assert (gpus.model, gpus.count) == ("gpu", 8)
    assert not any(gpu.healthy for gpu in gpus.details)


def test_a_gpu_that_is_lost_in_the_middle_of_its_reading_keeps_what_it_told(machine, read):
    machine.fail("nvmlDeviceGetMemoryAffinity", pynvml.NVML_ERROR_GPU_IS_LOST, 5)

    gpu = only_node(read()).gpus.by_index[5]

    assert gpu.uuid.endswith("05")
    assert not gpu.healthy


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetMemoryAffinity", "numa"),
        ("nvmlDeviceGetNvLinkState", "nvlink"),
    ],
)
def test_a_fact_that_fails_is_noted_and_left_out(machine, read, call, field):
    machine.fail(call, pynvml.NVML_ERROR_NO_PERMISSION, 2)

    reading = read()

    gpus = only_node(reading).gpus.by_index
    assert getattr(gpus[2], field) in (None, "")
    assert getattr(gpus[1], field) not in (None, "")
    assert all(note.startswith("GPU 2: ") for note in reading.notes)
    assert len(reading.notes) == 1


@pytest.mark.slow
def test_every_call_may_fail_and_the_host_is_still_read(make_machine, read):
    calls = [f"nvml{name}" for name in CALLS]
    for call in calls:
        for code in (*range(1, 31), pynvml.NVML_ERROR_UNKNOWN):
            machine = make_machine(2)
            machine.cut(0, (9, 0))
            machine.fail(call, code)
            reading = read()
            assert only_node(reading).gpus.count == 2, call
            assert not list(inconsistencies(reading.snapshot)), call


CALLS = (
    *("DeviceGetHandleByIndex_v2", "DeviceGetName", "DeviceGetUUID", "DeviceGetPciInfo_v3"),
    *("DeviceGetMemoryInfo", "DeviceGetEnforcedPowerLimit", "DeviceGetMigMode", "EventSetCreate"),
    *("DeviceGetGpuInstanceProfileInfoV", "DeviceGetGpuInstances", "GpuInstanceGetInfo"),
    *("DeviceGetMemoryAffinity", "DeviceGetNvLinkState", "DeviceGetNvLinkRemoteDeviceType"),
    *("DeviceGetNvLinkRemotePciInfo_v2", "DeviceGetGpuFabricInfoV", "DeviceGetTemperature"),
    *("DeviceGetTemperatureThreshold", "DeviceGetTotalEccErrors", "DeviceGetRemappedRows"),
    *("DeviceGetUtilizationRates", "DeviceGetCurrentClocksEventReasons", "DeviceRegisterEvents"),
    "DeviceGetComputeRunningProcesses_v3",
)


@pytest.mark.slow
def test_use_is_measured_over_the_watch(machine, read, monkeypatch):
    machine.set(1, utilization=80, mig=0)
    machine.cut(3, (9, 4))
    machine.set(4, lost=1)
    machine.add_process(1, 7, mib=5000)
    looked = nvml.sample
    monkeypatch.setattr(
        nvml, "sample", lambda gpu, note: (machine.set(1, utilization=20), looked(gpu, note))[1]
    )

    once = {each.index: each for each in read().snapshot.measured}
    seen = {each.index: each for each in read(watch=1.6).snapshot.measured}

    assert (once[1].utilization, once[1].memory_mib, once[1].period) == (80, 5000, 0)
    assert 20 <= seen[1].utilization < 30
    assert (seen[1].memory_mib, seen[1].period) == (5000, 2)
    assert (seen[0].utilization, seen[0].memory_mib) == (0, 0)
    assert seen[3].utilization is None
    assert 4 not in seen


def test_a_gpu_of_another_model_takes_no_jobs(machine, read):
    machine.set(7, model="RTX 4090")

    reading = read()

    gpus = only_node(reading).gpus
    assert (gpus.model, gpus.memory_mib) == ("NVIDIA-H100-80GB-HBM3", 81_559)
    assert [gpu.index for gpu in gpus.details if not gpu.healthy] == [7]
    assert len(reading.findings) == 1


def test_gpus_that_cannot_be_counted_are_an_error_with_its_cause(machine, read):
    machine.fail("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_GPU_IS_LOST)

    with pytest.raises(PlannerError, match="NVML: nvmlDeviceGetCount fails: GPU is lost"):
        read()


def test_no_gpu_is_an_error(make_machine, read):
    make_machine(0)

    with pytest.raises(PlannerError, match="no GPU on gpu01"):
        read()


def test_a_fabric_beyond_the_host_is_its_nvlink_island(machine, read):
    for index in range(8):
        machine.set(index, clique=5)

    assert only_node(read()).nvlink_island == "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf.5"


def test_a_host_in_two_cliques_is_in_no_island(machine, read):
    machine.set(0, clique=5)

    assert only_node(read()).nvlink_island == ""


def test_bridges_join_pairs(make_machine, read):
    machine = make_machine(4)
    for one, other in ((0, 2), (1, 3)):
        machine.set(one, link_to=other)
        machine.set(other, link_to=one)
    machine.set(3, links_down=1)

    details = only_node(read()).gpus.details

    assert [gpu.nvlink for gpu in details] == [0, 1, 0, None]


def test_groups_are_what_links_connect():
    """Compared with the closure of "has a link in common" over random links."""
    random.seed(5)
    for _ in range(300):
        buses = [f"b{index}" for index in range(6)]
        links = [
            frozenset(random.sample([*(set(buses) - {bus}), SWITCH], k=random.choice((0, 1, 1, 2))))
            for bus in buses
        ]
        gpus = [
            GpuReading(index, bus=bus, links=ends)
            for index, (bus, ends) in enumerate(zip(buses, links, strict=True))
        ]
        groups = nvlink_groups(gpus)
        reached = [
            [bool(a & b or i == j) for j, b in enumerate(reached_by(gpus))]
            for i, a in enumerate(reached_by(gpus))
        ]
        for _ in range(6):
            reached = [[any(row[k] and reached[k][j] for k in range(6)) for j in range(6)] for row in reached]
        linked = [gpu.index for gpu in gpus if gpu.links]
        assert set(groups) == set(linked)
        for one in linked:
            for other in linked:
                assert (groups[one] == groups[other]) == reached[one][other]
        assert sorted(set(groups.values())) == list(range(len(set(groups.values()))))


def reached_by(gpus):
    return [set(gpu.links) | {gpu.bus} if gpu.links else set() for gpu in gpus]
