"""What a waiting job may ask for instead: other GPUs, wider domains, less of everything, no conditions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.affinity import LocalityPreference, Spread
from gpuplan.models.cluster import Level, Taint
from gpuplan.planner.explain.explanation import RemedyKind
from tests.support.builders.build import NOW, job, node, replica, snapshot
from tests.support.harness.explain_helpers import FULL, found


def test_another_gpu_model():
    nodes = [node("n0"), node("t0", model="T4")]
    world = snapshot(nodes=nodes, jobs=[FULL[0], job("a", gpus=2, gpu_models={"H100-80GB": 1})])

    remedy = found(world)[RemedyKind.GPU_MODEL]

    assert remedy.parts[0].after == "T4"
    assert remedy.nodes == ("t0",)


@pytest.mark.parametrize(("zones", "wider"), [(("z", "z"), "zone"), (("y", "z"), None)])
def test_the_next_wider_domain_that_is_enough(zones, wider):
    nodes = [node(f"n{number}", rack=f"r{number}", zone=zone) for number, zone in enumerate(zones)]
    near = LocalityPreference(required=Level.RACK)
    world = snapshot(nodes=nodes, jobs=[job("a", gpus=8, replicas=2, locality=near)])

    part = found(world)[RemedyKind.LOCALITY].parts[0]

    assert (part.before, part.after) == ("rack", wider)


def test_more_replicas_side_by_side():
    jobs = [FULL[0], job("a", gpus=1, replicas=3, spread=Spread(most=1))]

    part = found(snapshot(jobs=jobs))[RemedyKind.SPREAD].parts[0]

    assert (part.before, part.after) == (1, 3)


def test_as_many_replicas_as_fit():
    part = found(snapshot(jobs=[FULL[0], job("a", gpus=2, replicas=6)]))[RemedyKind.REPLICAS].parts[0]

    assert (part.before, part.after) == (6, 4)


def test_as_many_cpus_as_are_free():
    old = job("old", gpus=1, cpus=90, at=[replica("n0", gpus=(0,), cpus=90)])
    jobs = [old, job("a", gpus=1, cpus=100)]

    part = found(snapshot(nodes=[node("n0")], jobs=jobs))[RemedyKind.CPUS].parts[0]

    assert (part.before, part.after) == (100, 6)


def test_as_much_memory_as_is_free():
    world = snapshot(nodes=[node("n0", memory_gib=100)], jobs=[job("a", gpus=1, memory_gib=120)])

    assert found(world)[RemedyKind.MEMORY].parts[0].after == 100 * 1024


def test_conditions_taints_and_cordons_in_the_way():
    tainted = node("n0", taints=(Taint(key="dedicated"),))
    wanted = job("a", gpus=1, node_selector={"disk": "nvme"})

    assert RemedyKind.TOLERATION in found(snapshot(nodes=[tainted], jobs=[job("a", gpus=1)]))
    assert RemedyKind.SELECTOR in found(snapshot(jobs=[wanted]))
    assert RemedyKind.UNCORDON in found(snapshot(nodes=[node("n0", cordoned=True)], jobs=[job("a", gpus=1)]))


def test_a_hold_and_a_begin_time_are_lifted():
    later = NOW + timedelta(hours=1)

    assert RemedyKind.RELEASE in found(snapshot(jobs=[job("a", gpus=1, held=True)]))
    assert RemedyKind.BEGIN in found(snapshot(jobs=[job("a", gpus=1, not_before=later)]))
