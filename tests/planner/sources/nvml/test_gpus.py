"""MIG layouts as NVML tells them."""

from __future__ import annotations

import random

import pynvml
import pytest

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import mig_geometry
from gpuplan.models.validation.checks import inconsistencies

IDS = {
    "H100": {
        19: "1g.10gb",
        20: "1g.10gb+me",
        15: "1g.20gb",
        14: "2g.20gb",
        9: "3g.40gb",
        5: "4g.40gb",
        0: "7g.80gb",
    },
    "A30": {14: "1g.6gb", 21: "1g.6gb+me", 5: "2g.12gb", 6: "2g.12gb+me", 0: "4g.24gb"},
}
"""Profile ids of the driver, with the snapshot's names."""
NAMES = {"H100": "NVIDIA-H100-80GB-HBM3", "A30": "NVIDIA-A30"}


def layout(reading, index=0):
    (node,) = reading.snapshot.cluster.nodes
    return node.gpus.by_index[index].mig


@pytest.mark.slow
def test_a_layout_has_the_places_of_its_instances(machine, read):
    machine.cut(0, (9, 4), (19, 3), (14, 0))
    machine.cut(1)

    reading = read()

    assert layout(reading) == (
        MigInstance(profile="2g.20gb", start=0),
        MigInstance(profile="1g.10gb", start=3),
        MigInstance(profile="3g.40gb", start=4),
    )
    assert layout(reading, 1) == ()
    assert layout(reading, 2) is None


@pytest.mark.parametrize("model", IDS)
def test_random_layouts_are_read_as_they_were_made_and_are_those_that_the_table_allows(
    make_machine, read, model
):
    """The stand-in refuses an instance if and only if the planner's table of profiles does."""
    random.seed(7)
    geometry = mig_geometry(NAMES[model])
    refused = 0
    for _ in range(15):
        machine = make_machine(1, model)
        made = []
        for _ in range(8):
            profile, start = random.choice(list(IDS[model])), random.randrange(geometry.memory_slices)
            wanted = MigInstance(profile=IDS[model][profile], start=start)
            legal = not list(geometry.faults([*made, wanted]))
            try:
                machine.cut(0, (profile, start))
            except pynvml.NVMLError:
                pynvml.nvmlShutdown()
                assert not legal
                refused += 1
            else:
                assert legal
                made.append(wanted)
        assert layout(read()) == tuple(sorted(made, key=lambda each: each.start))
    assert refused > 30


def test_a_layout_that_only_root_may_read_closes_the_node(machine, read):
    machine.cut(3, (9, 4))
    machine.fail("nvmlDeviceGetGpuInstances", pynvml.NVML_ERROR_NO_PERMISSION)

    reading = read()

    (node,) = reading.snapshot.cluster.nodes
    assert node.cordoned
    assert layout(reading, 3) is None
    assert any("as root" in note for note in reading.notes)


def test_profiles_of_an_unknown_model_close_the_node(make_machine, read):
    machine = make_machine(2, "unknown MIG")
    machine.cut(0, (14, 1))

    reading = read()

    (node,) = reading.snapshot.cluster.nodes
    assert node.cordoned
    assert not list(inconsistencies(reading.snapshot))
    assert "MIG instance MIG 1g.24gb at slice 1" in " ".join(reading.notes)


def test_mig_mode_without_instances_on_an_unknown_model_closes_the_node_too(make_machine, read):
    make_machine(2, "unknown MIG").cut(0)

    reading = read()

    assert reading.snapshot.cluster.nodes[0].cordoned
    assert not list(inconsistencies(reading.snapshot))


def test_a_mode_that_waits_for_a_reset_is_noted(machine, read):
    machine.set(2, mig_pending=1)

    assert read().notes == ("GPU 2: its MIG mode changes with its next reset",)
