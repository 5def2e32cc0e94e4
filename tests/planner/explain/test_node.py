"""How a node stands once a plan is carried out: holders of each GPU, and why the rest is stranded."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu, RackPower
from gpuplan.models.health.measurement import Measurement
from gpuplan.planner.explain.node import explain_node
from gpuplan.planner.render.explain_node_queue import node_text
from gpuplan.planner.render.style import Style
from tests.support.builders.build import NOW, job, node, replica, snapshot
from tests.support.harness.explain_helpers import CALM, greedy_plan

LAYOUT = Style(width=80, ascii_only=True)


def old(name, *gpus, node="n0", **more):
    return job(name, gpus=len(gpus), at=[replica(node, gpus=gpus)], **more)


def test_holders_of_each_gpu():
    shares = [
        job(name, milli=400, at=[replica("n0", gpus=(1,), milli=400)], expected_duration=7200)
        for name in "bc"
    ]
    mig = job("m", mig={"3g.40gb": 1}, at=[replica("n0", mig=[(2, "3g.40gb", 4)])])
    nodes = [
        node(
            "n0",
            gpus=4,
            mig={2: [("3g.40gb", 0), ("3g.40gb", 4)]},
            details=(Gpu(index=3, healthy=False, fault="XID 79"),),
            rack="r7",
            price_per_hour=2.5,
            cordoned=True,
            state_reason="fans",
        )
    ]
    measured = [Measurement(node="n0", index=index, utilization=93, memory_mib=2048) for index in (0, 3)]
    world = snapshot(nodes=nodes, jobs=[old("a", 0), *shares, mig], measured=measured)
    found = explain_node(greedy_plan(world, CALM), "n0")

    assert [[each.job for each in gpu.holders] for gpu in found.gpus] == [["a"], ["b", "c"], ["m"], []]
    assert [gpu.free_milli for gpu in found.gpus] == [0, 200, 0, 0]
    assert [gpu.healthy for gpu in found.gpus] == [True, True, True, False]
    assert found.gpus[2].layout == "2 × 3g.40gb"
    assert found.state == ("cordoned",)
    assert found.tenants[-1].ends_at == NOW + timedelta(hours=1)
    text = node_text(found, LAYOUT)
    assert "unhealthy: XID 79" in text
    assert "0: a; 93 % busy; 2 GiB in use" in text
    assert [(gpu.utilization, gpu.memory_mib) for gpu in found.gpus[:2]] == [(93, 2048), (None, None)]
    assert "b (0.4 GPU), c (0.4 GPU); 0.2 GPU free" in text
    assert "in r7; 2.50/h" in text
    assert "cordoned: fans" in text


def test_why_no_job_starts_on_the_rest_of_a_node():
    hog = job("hog", gpus=1, cpus=95, at=[replica("n0", gpus=(0,), cpus=95)])
    waiting = [job(f"w{number}", gpus=1, cpus=8) for number in range(3)]
    other = [job("x", gpus=1, gpu_models={"T4": 1}), job("h", gpus=1, held=True)]
    world = snapshot(nodes=[node("n0")], jobs=[hog, *waiting, *other])

    found = explain_node(greedy_plan(world, CALM), "n0").stranded

    assert [(each.jobs, each.example) for each in found] == [(3, "w0"), (1, "h")]
    assert found[0].why == "too few CPUs (1 CPU free)"
    assert found[1].why == "room here; held"


@pytest.mark.parametrize("about", [{"power_cap_watts": 700}, {"rack": "r"}])
def test_power_that_a_node_or_its_rack_lacks_strands_the_rest(about):
    caps = (RackPower(rack="r", watts=700),)
    world = snapshot(
        nodes=[node("n0", watts=700, **about)], jobs=[old("hog", 0), job("w", gpus=1)], rack_power=caps
    )

    (found,) = explain_node(greedy_plan(world, CALM), "n0").stranded

    assert found.why == "too few watts (0 GPUs may draw power)"


def test_a_node_without_jobs_or_gpus_can_be_explained():
    plan = greedy_plan(snapshot(nodes=[node("n0", gpus=0)]), CALM)

    assert "32 CPUs" in node_text(explain_node(plan, "n0"), LAYOUT)
