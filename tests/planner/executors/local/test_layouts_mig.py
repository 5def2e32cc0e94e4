"""MIG layouts are changed on idle GPUs, and jobs see their instances alone."""

from __future__ import annotations

import os
from contextlib import suppress

import pynvml
import pytest

from gpuplan.models.cluster import MigInstance
from gpuplan.models.plan.actions import ActionKind, Migrate, Repartition, changes_of
from gpuplan.planner.executors.interface import ActionPhase, ExecutionError
from gpuplan.planner.executors.local import layouts as mig
from gpuplan.planner.executors.local.host import LocalHost
from tests.support.harness.local_jobs import kinds, wait_until

ONE, THREE, SEVEN = (0, 19), (2, 9), (4, 0)
"""Profiles as NVML numbers them, by constant and id."""
SMALL = tuple(MigInstance(profile="1g.10gb", start=start) for start in (0, 1, 2))
HALF = MigInstance(profile="3g.40gb", start=4)


def layout(host, gpu=0):
    details = host.snapshot().cluster.nodes[0].gpus.by_index
    return None if details[gpu].mig is None else set(details[gpu].mig)


def test_a_layout_is_made_with_exact_places_and_made_again(machine):
    mig.change_layout(0, (*SMALL, HALF))
    assert mig.layout_of(0) == {*SMALL, HALF}
    assert len(set(mig.mig_devices(0).values())) == 4
    mig.change_layout(0, (HALF, SMALL[1]))
    assert mig.layout_of(0) == {HALF, SMALL[1]}
    mig.change_layout(0, ())
    assert mig.layout_of(0) == frozenset()


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceSetMigMode",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlGpuInstanceDestroy",
        "nvmlComputeInstanceDestroy",
    ],
)
@pytest.mark.parametrize("lasts", [0, 1, 2])
def test_a_change_that_ends_on_the_way_goes_on(machine, monkeypatch, call, lasts):
    if call != "nvmlDeviceSetMigMode":
        mig.change_layout(0, SMALL)
    inner, count = getattr(pynvml, call), []

    def failing(*arguments):
        count.append(call)
        if len(count) > lasts:
            raise KeyboardInterrupt
        return inner(*arguments)

    monkeypatch.setattr(pynvml, call, failing)
    with suppress(KeyboardInterrupt):
        mig.change_layout(0, (HALF, MigInstance(profile="2g.20gb", start=0), SMALL[2]))
    monkeypatch.setattr(pynvml, call, inner)
    wanted = {HALF, MigInstance(profile="2g.20gb", start=0), SMALL[2]}
    mig.change_layout(0, wanted)
    assert mig.layout_of(0) == wanted


def test_a_gpu_with_processes_is_left_as_it_is(machine):
    machine.add_process(0, os.getpid())
    with pytest.raises(ExecutionError, match="processes"):
        mig.change_layout(0, SMALL)
    assert mig.layout_of(0) is None


def test_a_gpu_that_needs_a_reset_is_left_as_it_is(machine):
    machine.fail("nvmlDeviceSetMigMode", 19)
    with pytest.raises(ExecutionError, match="GPU 0"):
        mig.change_layout(0, SMALL)


@pytest.mark.slow
def test_a_plan_cuts_an_idle_gpu_and_starts_jobs_there(jobs, machine):
    for gpu in range(4):
        machine.set(gpu, mig=1)
    for name in "ab":
        jobs.submit(name, 'echo "$CUDA_VISIBLE_DEVICES"; sleep 100', mig="3g.40gb")
    plan = jobs.plan()
    assert [each.split("/")[0] for each in kinds(plan)][-2:] == ["start", "start"]
    assert kinds(plan)[0].startswith("repartition/")
    jobs.apply(plan)
    found = {}
    for name in "ab":
        wait_until(lambda name=name: jobs.output(name), "it prints")
        found[name] = jobs.output(name).strip()
    assert found["a"].startswith("MIG-")
    assert found["a"] != found["b"]
    # A GPU in MIG mode is in use now, so the next plan may change no layout.
    assert ActionKind.REPARTITION not in jobs.host.snapshot().cluster.can


def test_layouts_stay_without_leave(jobs, machine):
    machine.set(0, mig=1)
    jobs.submit("a", mig="3g.40gb")
    host = LocalHost(jobs.host.queue.folder)
    assert ActionKind.REPARTITION not in host.can
    assert ActionKind.REPARTITION not in host.snapshot().cluster.can
    jobs.host = host
    plan = jobs.plan()
    assert kinds(plan) == []


def a_change(action, **fields):
    """An action with the reason of another."""
    return {"id": fields.pop("id"), "reason": action.reason.model_dump(mode="json"), **fields}


def test_a_gpu_that_a_job_holds_is_not_cut(jobs):
    jobs.submit("a", gpus=4)
    plan = jobs.plan()
    (start,) = changes_of(plan.actions)
    jobs.apply(plan)
    action = Repartition.model_validate(
        a_change(start, id="repartition/x", node="gpu01", gpu=0, before=None, after=[HALF.document()])
    )
    with pytest.raises(ExecutionError, match="found a"):
        jobs.host.begin(action, "p:repartition/x")
    assert jobs.host.observe(["p:repartition/x"])["p:repartition/x"].phase is ActionPhase.NOT_BEGUN


@pytest.mark.slow
def test_a_migrated_job_runs_on_its_new_gpu(jobs):
    jobs.submit("a", 'echo "$CUDA_VISIBLE_DEVICES"; while true; do sleep 0.1; done')
    plan = jobs.plan()
    (start,) = changes_of(plan.actions)
    jobs.apply(plan)
    before = start.after.document()
    (index,) = jobs.gpus()["a"]
    after = {**before, "replicas": [{**before["replicas"][0], "gpus": [{"index": 3 - index, "milli": 1000}]}]}
    action = Migrate.model_validate(a_change(start, id="migrate/a", job="a", before=before, after=after))
    wait_until(lambda: jobs.output("a"), "it prints")
    jobs.host.begin(action, "p:migrate/a")
    wait_until(
        lambda: jobs.host.observe(["p:migrate/a"])["p:migrate/a"].phase is ActionPhase.LANDED, "it moves"
    )
    assert jobs.gpus() == {"a": [3 - index]}
    wait_until(lambda: len(jobs.output("a").split()) == 2, "it prints")
    assert jobs.record("a").job.preemptions == 0
    assert len(set(jobs.output("a").split())) == 2
