"""Telemetry in a snapshot: which GPU it is of, and what contradicts."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.errors import BadInputError
from gpuplan.models.health.measurement import Measurement
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.sources.dcgm.merge import GpuTelemetry, Telemetry, merge_telemetry
from tests.support.builders.build import NOW, cluster, node, snapshot

URL = "http://prometheus:9090"


def of(host, index, uuid=None, **more):
    about = {"model": "NVIDIA-H100-80GB-HBM3", "memory_mib": 81_000, "temperature": 54, "period": 900} | more
    return GpuTelemetry(host=host, index=index, uuid=uuid or f"GPU-{host}-{index}", **about)


def all_of(*hosts, count=8, **more):
    return [of(host, index, **more) for host in hosts for index in range(count)]


def merged(base, gpus, *, closing=False, notes=()):
    return merge_telemetry(base, Telemetry(URL, NOW, tuple(gpus), notes), closing=closing)


def refused(base, gpus):
    with pytest.raises(BadInputError) as error:
        merged(base, gpus)
    return [each.message for each in error.value.problems]


def test_measurements_and_uuids_are_added_and_all_else_stays():
    base = snapshot(nodes=cluster(2, gpu_memory_mib=0, gpus=2, rack="r1"))
    reading = of("n0", 1, utilization=40, used_mib=9, hot={91: 60}, idle={}, xids={13: 5}, uncorrectable=2)

    found = merged(base, [reading, of("n0", 0), *all_of("n1", count=2)])

    (first, second) = found.snapshot.cluster.nodes
    assert [gpu.uuid for gpu in first.gpus.details] == ["GPU-n0-0", "GPU-n0-1"]
    assert (first.gpus.model, first.gpus.memory_mib, first.rack) == ("H100-80GB", 81_000, "r1")
    assert all(gpu.healthy for gpu in (*first.gpus.details, *second.gpus.details))
    assert found.snapshot.measured[1] == Measurement(
        node="n0",
        index=1,
        utilization=40,
        memory_mib=9,
        period=900,
        temperature=54,
        hot={91: 60},
        xids={13: 5},
        uncorrectable=2,
    )
    assert found.notes == ()
    assert not list(inconsistencies(found.snapshot))


def test_the_same_telemetry_again_changes_nothing():
    base = snapshot(nodes=cluster(1))
    once = merged(base, all_of("n0")).snapshot

    assert merged(once, all_of("n0")).snapshot == once


def test_what_a_node_states_of_its_gpus_stays():
    smoke = Gpu(index=3, healthy=False, fault="smoke", numa=1)
    (first,) = merged(snapshot(nodes=[node(details=[smoke])]), all_of("n0")).snapshot.cluster.nodes

    assert first.gpus.by_index[3] == smoke.model_copy(update={"uuid": "GPU-n0-3"})
    assert first.gpus.memory_mib == 81_559


def test_measurements_of_other_gpus_stay():
    old = [Measurement(node="n1", index=0, utilization=7), Measurement(node="n0", index=0, utilization=7)]

    found = merged(snapshot(measured=old), all_of("n0")).snapshot

    assert old[0] in found.measured
    assert len(found.measured) == 9


def test_hosts_are_found_with_and_without_their_domain():
    base = snapshot(nodes=[node("a.example.org", gpus=1), node("b", gpus=1)])

    found = merged(base, [of("a", 0), of("b.example.org", 0)])

    assert {each.node for each in found.snapshot.measured} == {"a.example.org", "b"}
    assert found.notes == ()


def test_a_host_of_another_name_is_found_by_the_uuids_of_its_gpus():
    base = snapshot(nodes=[node(gpus=2, details=[Gpu(index=i, uuid=f"GPU-x-{1 - i}") for i in range(2)])])

    found = merged(base, [of("x", 0, temperature=40), of("x", 1, temperature=41)])

    assert [(each.index, each.temperature) for each in found.snapshot.measured] == [(0, 41), (1, 40)]
    assert found.notes == ("node n0: it is host x, by the UUIDs of its GPUs",)


def test_hosts_and_gpus_on_one_side_only_are_noted():
    found = merged(snapshot(nodes=cluster(3, gpus=2)), [of("n0", 0), *all_of("n1", "else", count=2)])

    assert [note.partition(":")[0] for note in found.notes] == ["host else", "node n0", "node n2"]
    assert "GPU 1" in found.notes[1]


def test_hosts_of_which_none_is_a_node_are_an_error_with_what_to_do():
    (one,) = refused(snapshot(nodes=cluster(2)), all_of("nn0"))
    assert "host nn0 is no node" in one
    assert "Maybe 'n0' was meant" in one
    assert "relabel" in one

    (many,) = refused(snapshot(nodes=cluster(2)), all_of("x", "y", "z", "zz"))
    assert "hosts x, y and 2 more are no nodes" in many


def test_all_contradictions_are_told_at_once_and_each_kind_once_of_a_node():
    base = snapshot(
        nodes=[
            node("few", gpus=2),
            node("model", model="A100-80GB"),
            node("uuid", details=[Gpu(index=0, uuid="GPU-old")]),
            node("none", gpus=0),
            node("fine", gpus=1),
        ]
    )

    told = refused(base, [*all_of("few", "model", "uuid", "none"), of("fine", 0)])

    assert [message.split("'")[1] for message in told] == ["few", "model", "uuid", "none"]
    assert "2 GPUs in the snapshot, and a GPU 2 by DCGM" in told[0]
    assert "'A100-80GB' in the snapshot, and 'NVIDIA-H100-80GB-HBM3' by DCGM" in told[1]
    assert "GPU-old as GPU 0 in the snapshot, and GPU-uuid-0 by DCGM" in told[2]


def test_in_a_run_a_contradiction_leaves_out_what_it_is_about():
    base = snapshot(nodes=[node("few", gpus=2), node("fine", gpus=1)])

    found = merged(base, [*all_of("few", count=3), of("fine", 0)], closing=True)

    assert len(found.snapshot.measured) == 3
    assert [f"{URL}: node 'few' has 2 GPUs" in note for note in found.notes] == [True]
    assert merged(base, all_of("x"), closing=True).snapshot == base


def test_two_gpus_of_one_place_are_a_contradiction():
    (told,) = refused(snapshot(nodes=[node(gpus=1)]), [of("n0", 0, "a"), of("n0", 0, "b")])

    assert "two readings of GPU 0" in told


def test_what_the_server_says_is_noted():
    assert merged(snapshot(nodes=cluster(1)), all_of("n0"), notes=("a store is down",)).notes == (
        f"{URL}: a store is down",
    )
