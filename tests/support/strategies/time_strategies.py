"""Random instances with all that there is of time: horizons, dependencies, windows, deadlines, promises."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from gpuplan.models.calendar import Reservation, ReservationKind, Tariff
from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, JobOutcome
from gpuplan.models.placement import Promise, Running
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.strategies import instances

HOUR = 3600
FAR = 7
"""Hours in which everything happens."""


def hours(number):
    """An instant so many hours after now."""
    return build.NOW + timedelta(hours=number)


def posed(*jobs, slots=4, finished=(), policy=None, **more):
    """The question with slots of one hour; now is the beginning of one."""
    snapshot = build.snapshot(jobs=jobs, **more).model_copy(update={"finished": tuple(finished)})
    return build_problem(
        snapshot, build.by_value(**{"horizon": {"slots": slots, "length": HOUR}} | (policy or {}))
    )


def waits(name="w", *, on=(), least=None, takes=1, **more):
    """A waiting job that takes an hour; `on` has what it depends on as (job, kind) or job."""
    pairs = [(each, DependencyKind.SUCCEEDED) if isinstance(each, str) else each for each in on]
    return build.job(
        name,
        gpus=1,
        expected_duration=int(takes * HOUR),
        depends_on=tuple(Dependency(job=job, kind=kind) for job, kind in pairs),
        depends_on_at_least=least,
        **more,
    )


def runs(name="r", *, left=1, first=0, node="n0", checkpoint=None, **more):
    """A running job on one GPU with so many hours to go."""
    place = build.replica(node, gpus=(first,))
    job = build.job(name, gpus=1, at=[place], expected_duration=int((1 + left) * HOUR), **more)
    running = Running(started_at=hours(-1), last_checkpoint_at=checkpoint, replicas=job.running.replicas)
    return job.model_copy(update={"running": running})


def found(problem, name="w"):
    """The class of a waiting job, or None."""
    return next((one for one in problem.classes if name in one.jobs and one.role is ClassRole.START), None)


def instance(seed, *, slots=None, make=instances.everything):
    """One of `instances` with times for its jobs, nodes and data, under a policy that may look ahead."""
    draw = random.Random(f"timed {seed}")
    given = make(seed)
    snapshot = given.snapshot.model_copy(update={"finished": _finished()})
    cluster = snapshot.cluster
    names = [node.name for node in cluster.nodes]
    cluster = cluster.model_copy(
        update={
            "nodes": tuple(_node(draw, node) for node in cluster.nodes),
            "datasets": tuple(_dataset(draw, dataset) for dataset in cluster.datasets),
            "reservations": tuple(
                _reservation(draw, number, names) for number in range(draw.choice((0, 0, 1, 3)))
            ),
            "tariffs": (_tariff(draw),) if draw.random() < 0.4 else (),
        }
    )
    jobs = tuple(_job(draw, job, snapshot.jobs, cluster.nodes) for job in snapshot.jobs)
    snapshot = snapshot.model_copy(update={"cluster": cluster, "jobs": jobs}).canonical()
    snapshot = survey_damage(snapshot).sound
    slots = draw.choice((1, 2, 4, 6, 6)) if slots is None else slots
    mode = draw.choice(("conservative", "aggressive"))
    backfill = Backfill(
        mode=mode,
        max_delay=draw.choice((600, HOUR)) if mode == "aggressive" else 0,
        depth=draw.choice((None, 1, 2)),
        starving=draw.choice((None, None, 6 * HOUR)),
    )
    horizon = HorizonPolicy(slots=slots, length=draw.choice((HOUR, 2400)), backfill=backfill)
    return replace(given, snapshot=snapshot, policy=given.policy.model_copy(update={"horizon": horizon}))


def _node(draw, node):
    if node.schedulable and draw.random() < 0.15:
        return node.model_copy(update={"ready": False, "ready_at": hours(draw.choice((0.5, 1, 2.4, 9)))})
    return node


def _dataset(draw, dataset):
    if draw.random() < 0.5:
        return dataset.model_copy(update={"available_at": hours(draw.choice((-1, 0.2, 1, 2, 20)))})
    return dataset


def _reservation(draw, number, names):
    owned = draw.random() < 0.7
    owners = {"queues": ("root",)} if draw.random() < 0.5 else {"queues": ("c",), "users": ("u",)}
    when = (
        {"cron": draw.choice(("30 * * * *", "0 13-15 * * *", "0 12 * * *"))}
        if draw.random() < 0.4
        else {"start": hours(draw.choice((-1, 0.5, 1, 3)))}
    )
    where = (
        {"count": draw.randint(1, min(2, len(names)))}
        if draw.random() < 0.4
        else {"nodes": tuple(draw.sample(names, draw.randint(1, len(names))))}
    )
    return Reservation(
        name=f"window-{number}",
        kind=ReservationKind.RESERVED if owned else ReservationKind.MAINTENANCE,
        duration=draw.choice((1200, HOUR, 3 * HOUR)),
        **(owners if owned else {}),
        **when,
        **where,
    )


def _tariff(draw):
    models = (draw.choice(instances.MODELS),) if draw.random() < 0.5 else ()
    return Tariff(name="peak", cron="0 13 * * *", duration=7200, price_per_gpu_hour=0.3, gpu_models=models)


def _finished():
    return tuple(
        FinishedJob(name=name, queue="a", outcome=outcome, started_at=hours(-3), ended_at=hours(-1))
        for name, outcome in (("well", JobOutcome.SUCCEEDED), ("ill", JobOutcome.FAILED))
    )


def _job(draw, job, jobs, nodes):
    names = [node.name for node in nodes]
    about = {"expected_duration": draw.choice((None, 600, HOUR, HOUR, 2 * HOUR, 30 * HOUR))}
    about["user"] = draw.choice(("u", "v"))
    if draw.random() < 0.3:
        about["deadline"] = hours(draw.choice((0.5, 2, 4, 20)))
        about["hard_deadline"] = draw.random() < 0.4
    if job.running is not None:
        if draw.random() < 0.3:
            running = job.running.model_copy(update={"last_checkpoint_at": hours(-0.5)})
            about["running"] = running
        return job.model_copy(update=about)
    if draw.random() < 0.2:
        about["not_before"] = hours(draw.choice((-1, 0.3, 1, 2, 12)))
    if draw.random() < 0.6:
        # On jobs with smaller names, so that none waits for itself.
        waiting = [other.name for other in jobs if other.name < job.name and not other.running]
        others = waiting * 3 + [other.name for other in jobs if other.running] + ["well", "ill"]
        chosen = sorted(set(draw.sample(others, min(len(others), draw.choice((1, 1, 2, 3))))))
        kinds = [draw.choice(list(DependencyKind)) for _ in chosen]
        about["depends_on"] = tuple(
            Dependency(job=name, kind=kind) for name, kind in zip(chosen, kinds, strict=True)
        )
        about["depends_on_at_least"] = draw.choice((None, 1))
    elif draw.random() < 0.6:
        # A job that waits for others is tied to none, so that no two wait for each other.
        about["co_start"] = draw.choice(("one", "two"))
    if draw.random() < 0.3:
        size = job.request.gpus or bool(job.request.gpu_milli)
        wide = [node.name for node in nodes if node.gpu_count >= size]
        milli = job.request.gpu_milli or 1000
        place = build.replica(draw.choice(wide or names), gpus=range(size), milli=milli)
        replicas = (place,) * job.gang.minimum
        about["promise"] = Promise(start=hours(draw.choice((-1, 1, 2, 9))), replicas=replicas)
    return job.model_copy(update=about)
