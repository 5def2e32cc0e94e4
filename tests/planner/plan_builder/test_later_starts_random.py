"""Whatever is planned for later, legal or not: the plan agrees with itself, and every view can be made."""

from __future__ import annotations

import random

import pytest

from gpuplan.models.calendar import Reservation, ReservationKind, Tariff
from gpuplan.models.cluster import Dataset
from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, JobOutcome
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.plan import DeadlineState
from gpuplan.models.plan.solution import LaterStart
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.explain.job import explain
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.render.explain_job import explanation_text
from gpuplan.planner.render.plan.diff import diff_text
from gpuplan.planner.render.plan.text import plan_text
from gpuplan.planner.render.reports.plan import plan_report
from gpuplan.planner.render.style import Style
from tests.support.builders.build import NOW, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.samples.horizon_plans import HOUR, at, looking_ahead, promise, running, waiting

SEEDS = 40
NODES = 4


def place(draw, gpus):
    return replica(f"n{draw.randrange(NODES)}", gpus=sorted(draw.sample(range(8), gpus)))


def a_waiting_job(draw, name, names):
    gpus = draw.choice((1, 2, 8))
    about = {}
    if draw.random() < 0.5:
        others = draw.sample(names, draw.randint(1, min(3, len(names))))
        about["depends_on"] = tuple(
            Dependency(job=other, kind=draw.choice(list(DependencyKind))) for other in others if other != name
        )
        if about["depends_on"] and draw.random() < 0.4:
            about["depends_on_at_least"] = draw.randint(1, len(about["depends_on"]))
    if draw.random() < 0.5:
        about |= {"deadline": at(draw.randint(1, 16)), "hard_deadline": draw.random() < 0.4}
    if draw.random() < 0.3:
        about["not_before"] = at(draw.randint(-1, 5))
    if draw.random() < 0.3:
        about["datasets"] = ("d",)
    if draw.random() < 0.3:
        about["co_start"] = draw.choice("gh")
    if draw.random() < 0.4:
        about["promise"] = promise(draw.randint(-1, 14), place(draw, gpus))
    return waiting(name, gpus=gpus, hours=draw.randint(1, 20), queue=draw.choice("pq"), **about)


def a_world(draw):
    names = [f"w{number}" for number in range(draw.randint(1, 6))]
    known = [*names, "r0", "r1", "done", "failed"]
    nodes = [
        node(f"n{number}", **draw.choice(({}, {}, {"cordoned": True}, {"ready": False, "ready_at": at(2)})))
        for number in range(NODES)
    ]
    jobs = [a_waiting_job(draw, name, known) for name in names]
    # Nothing runs on a node that is down; what does is another story (test_damaged_worlds).
    up = [each.name for each in nodes if each.ready] or [nodes[0].name]
    nodes[0] = nodes[0].model_copy(update={"ready": True, "ready_at": None})
    jobs += [
        running(
            name, replica(draw.choice(up), gpus=sorted(draw.sample(range(8), 2))), hours=draw.randint(0, 6)
        )
        for name in ("r0", "r1")
    ]
    finished = tuple(
        FinishedJob(name=name, queue="q", outcome=outcome, started_at=at(-2), ended_at=at(-1))
        for name, outcome in (("done", JobOutcome.SUCCEEDED), ("failed", JobOutcome.FAILED))
    )
    window = Reservation(
        name="m",
        kind=ReservationKind.MAINTENANCE,
        nodes=("n0", "n1"),
        start=at(draw.randint(-1, 5)),
        duration=2 * HOUR,
    )
    world = snapshot(
        nodes=nodes,
        jobs=jobs,
        queues=[queue("q", nominal=draw.choice((8, 16))), queue("p")],
        datasets=(Dataset(name="d", available_at=at(draw.randint(-1, 6))),),
        reservations=(window,) if draw.random() < 0.6 else (),
        tariffs=(Tariff(name="t", price_per_gpu_hour=1, start=NOW, duration=3 * HOUR),),
    )
    return world.model_copy(update={"finished": finished})


def a_plan(draw):
    world = a_world(draw)
    policy = looking_ahead(draw.choice((1, 4, 12)), kill=draw.random() < 0.5, depth=draw.choice((None, 1)))
    started, planned, stopped = [], [], []
    for job in world.jobs:
        fate = draw.random()
        if fate < (0.6 if job.running else 0.3):
            continue
        if job.running:
            stopped.append(job.name)
            if fate < 0.7 or policy.horizon.slots == 1:
                continue
            fate = 1
        if fate < 0.5 or policy.horizon.slots == 1:
            started.append(placement(job.name, place(draw, job.request.gpus)))
        else:
            slot = draw.randrange(1, policy.horizon.slots)
            held = (place(draw, job.request.gpus),)
            planned.append(LaterStart(job.name, slot, held, promised=draw.random() < 0.7))
    return drafted(world, *started, policy=policy, planned=planned, stopped=stopped)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_plan_agrees_with_itself_and_every_view_of_it_fits(seed):
    plan = a_plan(random.Random(seed))

    assert list(contradictions(plan)) == []
    options = Style(width=80, ascii_only=True)
    views = [
        plan_text(plan, options, verbose=False, path="plan.json"),
        diff_text(diff(plan, plan.snapshot), options, verbose=False, path="plan.json"),
        *(explanation_text(explain(plan, job.name, source="x"), options) for job in plan.snapshot.jobs),
    ]
    assert all(view.isascii() and max(map(len, view.splitlines())) <= 80 for view in views)
    assert "None" not in "".join(views)
    assert "None" not in plan_report(plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_said_of_each_job_is_true_of_it(seed):
    plan = a_plan(random.Random(seed))
    planned = {each.job: each for each in plan.planned}
    starts = {action.job: action for action in plan.actions if isinstance(action, Start)}

    for told in plan.waiting:
        assert bool(told.waits_for) == (told.job in planned)
        kept = told.promised and told.earlier_promise and told.projected_start <= told.earlier_promise
        assert bool(told.promise_changed) == bool(told.earlier_promise and not kept)
    for outlook in plan.deadlines:
        job = plan.snapshot.job_by_name[outlook.job]
        on_time = outlook.state in (DeadlineState.MET, DeadlineState.CRITICAL)
        if outlook.projected_finish is not None:
            assert on_time == (outlook.projected_finish <= job.deadline)
        assert outlook.state is not DeadlineState.CRITICAL or (not job.running and job.name not in starts)
    for name, start in starts.items():
        assert (start.kill_at is not None) <= plan.policy.horizon.backfill.kill
        assert (start.kill_at is not None) <= ("ahead_of" in start.reason.numbers), name
