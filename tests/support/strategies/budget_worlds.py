"""Seeded random worlds of disruption budgets that often bind: busy nodes, drains, jobs of high priority."""

from __future__ import annotations

import random
from datetime import timedelta

from gpuplan.models.calendar import Recurring
from gpuplan.models.job import Progress
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import BudgetUnit, DisruptionBudget
from gpuplan.models.queue import Queue
from tests.support.builders import build

TEAMS = ({"team": "red"}, {"team": "blue"})
"""Labels of the groups."""

_NOW_ON = Recurring(start=build.NOW - timedelta(hours=1), duration=7200)
_LATER = Recurring(start=build.NOW + timedelta(hours=1), duration=7200)


def world(seed, *, nodes=3, most=8, waiting=3):
    """(snapshot, policy) with up to so many nodes of four GPUs, running jobs and waiting jobs."""
    draw = random.Random(f"budgets {seed}")
    machines = [
        build.node(f"n{index}", gpus=4, drain=draw.random() < 0.4) for index in range(draw.randint(1, nodes))
    ]
    running = _running(draw, machines, most)
    jobs = [_waiting(draw, f"w{index}") for index in range(draw.randint(1, waiting))]
    queues = [Queue(name="root"), Queue(name="a", parent="root"), Queue(name="b")]
    policy = build.by_value(
        priority=build.BY_WEIGHT,
        disruption=Disruption(
            preempt=draw.random() < 0.9,
            migrate=draw.random() < 0.5,
            priority_gap=draw.choice((0, 1, 1)),
            budgets=tuple(_budget(draw, f"b{number}") for number in range(draw.randint(1, 3))),
        ),
    )
    return build.snapshot(nodes=machines, jobs=[*running, *jobs], queues=queues), policy


def _running(draw, machines, most):
    found = []
    for node in machines:
        free = list(range(node.gpu_count))
        while free and len(found) < most and draw.random() < 0.9:
            count = min(draw.choice((1, 1, 2, 2, 3)), len(free))
            gpus = draw.choice((1, count))
            places = [build.replica(node.name, gpus=free[at : at + gpus]) for at in range(0, count, gpus)]
            fewest = draw.randint(1, len(places))
            about = _about(draw)
            one = build.job(f"r{len(found)}", gpus=gpus, replicas=(fewest, len(places)), at=places, **about)
            found.append(_interrupted(draw, one))
            del free[:count]
    return found


def _about(draw):
    return {
        "labels": draw.choice(TEAMS),
        "queue": draw.choice(("a", "b")),
        "priority": draw.choice((0, 0, 1)),
    }


def _waiting(draw, name):
    replicas = draw.choice((1, 1, 2))
    about = _about(draw) | {"priority": draw.choice((0, 2, 5))}
    one = build.job(name, gpus=draw.choice((1, 2, 3, 4)), replicas=replicas, **about)
    return _interrupted(draw, one.model_copy(update={"held": draw.random() < 0.1}))


def _interrupted(draw, job):
    """The job, now and then stopped, moved or resized before."""
    if draw.random() < 0.88:
        return job
    update = {"preemptions": draw.choice((0, 1)), "progress": draw.choice((None, Progress(completed="10m")))}
    if job.running:
        at = build.NOW + timedelta(minutes=draw.choice((-30, -2, 5)))
        key = draw.choice(("resumed_at", "resized_at")) if at < build.NOW else "resumed_at"
        update["running"] = job.running.model_copy(update={key: at})
    return job.model_copy(update=update)


def _budget(draw, name):
    kind = draw.choice(("max_unavailable", "max_unavailable", "min_available"))
    few, many = (0, 1, 1, 1, 2, 2, 3, "20%"), (2, 3, 4, "40%", "60%")
    return DisruptionBudget(
        name=name,
        labels=draw.choice((*TEAMS, {}, {})),
        queue=draw.choice((None, None, None, None, "root", "b")),
        counts=draw.choice(tuple(BudgetUnit)),
        min_ready=draw.choice((0, 600)),
        windows=draw.choice(((), (), (), (), (_LATER, _NOW_ON), (_LATER,))),
        **{kind: draw.choice(few if kind == "max_unavailable" else many)},
    )
