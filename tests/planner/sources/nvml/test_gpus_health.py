"""Which GPUs take no more jobs, and which are to be looked at."""

from __future__ import annotations

import pytest

from gpuplan.planner.sources.nvml import nvml
from gpuplan.planner.sources.nvml.gpus import HealthRules, Sample, Vitals, faults, warnings

RULES = HealthRules()


def unhealthy(reading):
    (node,) = reading.snapshot.cluster.nodes
    return {gpu.index: gpu.fault for gpu in node.gpus.details if not gpu.healthy}


@pytest.mark.parametrize("xid", sorted(RULES.fatal_xids))
def test_a_fatal_xid_excludes_its_gpu(machine, read, xid):
    machine.raise_xid(4, xid)

    assert unhealthy(read()) == {4: f"XID {xid} ({RULES.fatal_xids[xid]})"}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 109])
def test_an_xid_of_a_program_is_told_and_excludes_nothing(machine, read, xid):
    machine.raise_xid(4, xid)

    reading = read()

    assert unhealthy(reading) == {}
    assert reading.findings == (f"GPU 4: XID {xid}, which is an error of a program",)


def test_every_xid_that_has_come_is_told(machine, read):
    for gpu, xid in ((1, 48), (1, 94), (2, 31), (6, 79)):
        machine.raise_xid(gpu, xid)

    reading = read()

    assert set(unhealthy(reading)) == {1, 6}
    assert unhealthy(reading)[1].count("XID") == 2
    assert len(reading.findings) == 3


@pytest.mark.parametrize("number", ["ecc_uncorrected", "rows_pending", "rows_failed"])
def test_memory_errors_exclude_a_gpu(machine, read, number):
    machine.set(2, **{number: 1})

    assert set(unhealthy(read())) == {2}


def test_heat_excludes_a_gpu_only_if_it_lasts(machine, read):
    machine.set(2, temperature=90)
    machine.set(3, temperature=89)

    assert unhealthy(read()) == {}
    assert read().findings == ("GPU 2: it is hot: 90 °C; it slows down at 90 °C",)
    assert unhealthy(read(watch=0.05)) == {2: "it is too hot"}


def test_heat_counts_as_the_hardware_says_where_there_is_no_threshold(machine, read):
    machine.fail("nvmlDeviceGetTemperatureThreshold", 3)
    machine.set(2, temperature=80, clock_reasons=0x40)

    assert read().findings == ("GPU 2: it is hot: 80 °C",)
    assert set(unhealthy(read(watch=0.05))) == {2}


def test_heat_now_and_then_is_told():
    cool, hot = (
        Sample(degrees, slowed_by_heat=False, utilization=50, memory_mib=None, processes=frozenset())
        for degrees in (60, 95)
    )
    vitals = Vitals(slowdown=90, samples=[hot, cool, hot])

    assert list(faults(vitals, RULES, watched=True)) == []
    assert len(list(warnings(vitals, RULES, watched_seconds=3))) == 1


def test_a_gpu_that_does_nothing_for_a_process_is_told_after_the_watch(machine, read):
    machine.add_process(1, 100)
    machine.add_process(2, 200)
    machine.set(2, utilization=5)
    machine.set(3, utilization=0)

    assert read(users={100: "ann", 200: "bob"}).findings == ()
    reading = read(users={100: "ann", 200: "bob"}, watch=0.05)
    assert unhealthy(reading) == {}
    assert reading.findings == ("GPU 1: it did nothing for 0.05 s, and belongs to a process (100)",)


@pytest.mark.parametrize(
    ("samples", "idle"),
    [
        ([(0, {7}), (0, {7})], True),
        ([(0, {7}), (1, {7})], False),
        ([(0, {7}), (0, {8})], False),
        ([(0, {7, 8}), (0, {8, 9})], True),
        ([(None, {7}), (0, {7})], False),
        ([(0, set()), (0, set())], False),
        ([], False),
    ],
)
def test_idle_means_nothing_done_at_each_look_with_a_process_that_stayed(samples, idle):
    looks = [
        Sample(40, slowed_by_heat=False, utilization=use, memory_mib=None, processes=frozenset(pids))
        for use, pids in samples
    ]

    assert bool(list(warnings(Vitals(samples=looks), RULES, watched_seconds=2))) == idle


def test_thresholds_are_the_rules():
    look = Sample(85, slowed_by_heat=False, utilization=3, memory_mib=None, processes=frozenset({7}))
    vitals = Vitals(uncorrectable=2, slowdown=90, xids={31}, samples=[look])
    rules = HealthRules(
        fatal_xids={31: "memory page fault"},
        most_uncorrectable=2,
        degrees_below_slowdown=5,
        most_idle_utilization=3,
    )

    assert len(list(faults(vitals, rules, watched=True))) == 2
    assert len(list(warnings(vitals, rules, watched_seconds=1))) == 1
    assert list(faults(vitals, RULES, watched=True)) == ["uncorrectable ECC errors since its last reset"]


def test_a_gpu_that_is_lost_while_it_is_watched_is_unhealthy(machine, read, monkeypatch):
    looked = nvml.sample
    monkeypatch.setattr(nvml, "sample", lambda gpu, note: (machine.set(5, lost=1), looked(gpu, note))[1])

    assert set(unhealthy(read(watch=0.05))) == {5}
