"""A group of which only a part runs starts again as a whole, or waits as a whole, by the next plan."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.plan.actions import Release
from gpuplan.models.policy.policy import SolverName
from gpuplan.models.validation.base import DamageKind
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.verdict import verdict_on
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, by_value, cluster, job, replica, snapshot
from tests.support.seeds import examples

EARLIER = timedelta(hours=2)
"""Before the jobs that run were started."""
NODE_GPUS = 4


def world_of(running, waiting, others=(), fixed=(), *, nodes=2):
    """
    Jobs of group g that run and that wait, by their GPUs on one node; others wait alone, and fixed ones run.

    The running ones are packed in their order; None if they do not fit.
    """
    used, jobs = dict.fromkeys(range(nodes), 0), []
    for name, gpus, more in [
        *((f"g{index}", gpus, {"co_start": "g"}) for index, gpus in enumerate(running)),
        *((f"fixed{index}", gpus, {"preemptible": False}) for index, gpus in enumerate(fixed)),
    ]:
        place = next((number for number in used if used[number] + gpus <= NODE_GPUS), None)
        if place is None:
            return None
        held = replica(f"n{place}", gpus=range(used[place], used[place] + gpus))
        used[place] += gpus
        jobs.append(job(name, gpus=gpus, at=[held], waited=EARLIER, **more))
    jobs += [job(f"w{index}", gpus=gpus, waited=EARLIER, co_start="g") for index, gpus in enumerate(waiting)]
    jobs += [job(f"o{index}", gpus=gpus, waited=EARLIER) for index, gpus in enumerate(others)]
    return snapshot(nodes=cluster(nodes, gpus=NODE_GPUS), jobs=jobs)


def planned(world, *solvers):
    return plan_epoch(world, by_value(solvers=solvers), seed=0, created_at=NOW)


def after(world, plan):
    """The jobs that run once the plan was applied."""
    with TemporaryDirectory() as folder, SimulatedCluster.create(Path(folder) / "c.db", world) as live:
        log = AuditLog(Path(folder) / "audit.jsonl")
        apply_plan(plan, live, log, actor="ann@login1", now=lambda: NOW)
        return {placed.job for placed in live.snapshot().running_placements}


def most_gpus(world):
    """GPUs of the jobs that may start at most, by trying all: those of the group together or not at all."""
    sizes = {each.name: each.request.gpus for each in world.jobs}
    group = {each.name for each in world.jobs if each.co_start}
    room = {node.name: NODE_GPUS for node in world.cluster.nodes}
    for each in world.jobs:
        if each.name.startswith("fixed"):
            (held,) = each.running.replicas
            room[held.node] -= sizes[each.name]
    free = [name for name in sizes if not name.startswith("fixed")]
    best = 0
    for places in product([None, *room], repeat=len(free)):
        chosen = dict(zip(free, places, strict=True))
        started = {name for name, node in chosen.items() if node}
        used = dict.fromkeys(room, 0)
        for name in started:
            used[chosen[name]] += sizes[name]
        if all(used[node] <= room[node] for node in room) and len(started & group) in (0, len(group)):
            best = max(best, sum(sizes[name] for name in started))
    return best


@st.composite
def worlds(draw):
    sizes = st.integers(1, 3)
    made = world_of(
        draw(st.lists(sizes, min_size=1, max_size=2)),
        draw(st.lists(sizes, min_size=1, max_size=2)),
        draw(st.lists(sizes, max_size=2)),
        draw(st.lists(sizes, max_size=2)),
    )
    return made if made is not None else world_of([1], [1])


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(worlds(), st.booleans())
def test_the_next_plan_starts_the_group_as_a_whole_or_stops_it(world, exact):
    plan = planned(world, *((SolverName.MILP,) if exact else ()))

    assert verdict_on(plan, world).verified
    running = after(world, plan)
    group = {each.name for each in world.jobs if each.co_start}
    assert running & group in (set(), group)
    assert running >= {each.name for each in world.jobs if each.name.startswith("fixed")}
    started = sum(
        each.request.gpus for each in world.jobs if each.name in running and not each.name.startswith("fixed")
    )
    assert started <= most_gpus(world)
    if exact:
        assert started == most_gpus(world)


def test_a_group_with_room_starts_as_a_whole():
    world = world_of([2], [2])
    plan = planned(world)

    assert after(world, plan) == {"g0", "w0"}
    (finding,) = plan.findings
    assert (finding.job, finding.kinds) == ("g0", (DamageKind.GROUP_PART_STARTED,))
    assert finding.text.startswith("w0 of its group did not start")


def test_a_group_without_room_is_released():
    world = world_of([2], [3], fixed=[2, 2])
    plan = planned(world)

    assert [action.job for action in plan.actions if isinstance(action, Release)] == ["g0"]
    assert after(world, plan) == {"fixed0", "fixed1"}


def test_an_elastic_job_of_a_part_started_group_gives_up_all_its_places():
    held = [replica("n0", gpus=[0]), replica("n0", gpus=[1])]
    runs = job("g0", gpus=1, replicas=(1, 2), at=held, waited=EARLIER, co_start="g")
    world = snapshot(jobs=[runs, job("w0", gpus=1, waited=EARLIER, co_start="g")])

    assert survey_damage(world).losses["g0"].after is None


@pytest.mark.parametrize(
    "missing",
    [
        {"waited": timedelta(0)},
        {"waited": EARLIER, "held": True},
        {"waited": EARLIER, "preemptions": 1},
        {"waited": EARLIER, "failures": 1},
    ],
    ids=["submitted later", "held", "was preempted", "has failed"],
)
def test_a_job_that_its_group_did_not_wait_for_is_not_missing(missing):
    runs = job("g0", gpus=1, at=[replica("n0", gpus=[0])], waited=EARLIER, co_start="g")
    world = snapshot(jobs=[runs, job("w0", gpus=1, co_start="g", **missing)])

    assert survey_damage(world).sound is world


def test_a_job_that_may_not_be_stopped_runs_on():
    runs = job("g0", gpus=1, at=[replica("n0", gpus=[0])], waited=EARLIER, co_start="g", preemptible=False)
    world = snapshot(jobs=[runs, job("w0", gpus=1, waited=EARLIER, co_start="g")])

    assert survey_damage(world).sound is world
    assert after(world, planned(world)) == {"g0", "w0"}
