"""Seeded random instances with time in them, small enough to try every schedule."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.calendar import Reservation, ReservationKind, Tariff
from gpuplan.models.dependency import Dependency, DependencyKind
from gpuplan.models.policy.policy import Ageing, Disruption, Policy, Weights
from gpuplan.models.policy.settings import Goal, HorizonPolicy, Objective
from tests.support.builders import build
from tests.support.strategies.instances import quotas_of_cores

if TYPE_CHECKING:
    from gpuplan.models.snapshot import Snapshot

HOUR = timedelta(hours=1)
FEATURES = ("co_start", "deadlines", "dependencies", "eviction", "maintenance", "quota", "racks", "tariffs")


@dataclass(frozen=True)
class Timely:
    """A snapshot with the policy it is planned under."""

    snapshot: Snapshot
    policy: Policy
    features: frozenset[str]


def timely(seed, *, slots=3, jobs=3, features=FEATURES, share=0.4, gpus=(1, 2, 4)):
    """One or two nodes of two or four GPUs, some of them in use for some time, and jobs that wait."""
    draw = random.Random(f"timely {seed}")
    chosen = frozenset(feature for feature in features if draw.random() < share)
    horizon = HorizonPolicy(slots=slots, length="1h", earliness=draw.choice((0.05, 0.1, 0.3)))
    disruption = Disruption(preempt="eviction" in chosen, resize=False)
    policy = Policy(
        horizon=horizon,
        disruption=disruption,
        weights=Weights(ageing=Ageing(cap=0)),
        priority=build.BY_WEIGHT,
        objective=Objective(goal=tuple(Goal)[seed % len(Goal)]),
    )
    now = build.NOW + timedelta(minutes=draw.choice((0, 0, 20)))
    nodes = [
        build.node(f"n{index}", gpus=draw.choice((2, 4)), rack=f"r{index % 2}")
        for index in range(draw.randint(1, 2))
    ]
    running = _running(draw, nodes, now)
    waiting = [_waiting(draw, f"j{index}", gpus, now, chosen) for index in range(jobs)]
    if "dependencies" in chosen:
        waiting = _with_dependencies(draw, waiting, running)
    if "co_start" in chosen:
        waiting[-2:] = [job.model_copy(update={"co_start": "together"}) for job in waiting[-2:]]
    about = {}
    if "maintenance" in chosen:
        start = build.NOW + draw.choice((1, 2)) * HOUR + timedelta(minutes=draw.choice((0, 30)))
        kind = ReservationKind.MAINTENANCE
        about["reservations"] = (
            Reservation(name="m", kind=kind, nodes=("n0",), start=start, duration="30m"),
        )
    if "tariffs" in chosen:
        price = draw.choice((0.1, 0.8))
        about["tariffs"] = (Tariff(name="day", start=build.NOW, duration="1h30m", price_per_gpu_hour=price),)
    queues = [build.queue(nominal=draw.choice((2, 3, 4)) if "quota" in chosen else None)]
    snapshot = build.snapshot(nodes=nodes, jobs=[*running, *waiting], queues=queues, taken_at=now, **about)
    return Timely(snapshot, policy, chosen)


def _running(draw, nodes, now):
    found = []
    for node in nodes:
        free = list(range(node.gpu_count))
        while free and draw.random() < 0.6:
            held = [free.pop(0) for _ in range(min(len(free), draw.choice((1, 2))))]
            job = build.job(
                f"run-{node.name}-{held[0]}",
                gpus=len(held),
                at=[build.replica(node.name, gpus=held)],
                expected_duration=f"{draw.choice((70, 100, 130, 200, 400))}m",
            )
            started = job.running.model_copy(update={"started_at": now - HOUR})
            found.append(job.model_copy(update={"running": started, "submitted_at": now - 2 * HOUR}))
    return found


def _waiting(draw, name, gpus, now, chosen):
    more = {}
    if "deadlines" in chosen and draw.random() < 0.6:
        more["deadline"] = now + timedelta(minutes=draw.choice((60, 120, 150, 240)))
        more["hard_deadline"] = draw.random() < 0.3
    if draw.random() < 0.15:
        more["not_before"] = now + timedelta(minutes=draw.choice((30, 90)))
    replicas = draw.choice((1, 1, 1, 2))
    if replicas > 1 and "racks" in chosen:
        more["locality"] = {"required": "rack"}
    job = build.job(
        name,
        gpus=draw.choice(gpus),
        replicas=replicas,
        priority=draw.choice((0, 0, 1, 4)),
        weight=draw.choice((0.5, 1, 2)),
        expected_duration=f"{draw.choice((20, 60, 60, 90, 150, 500))}m",
        **more,
    )
    return job.model_copy(update={"submitted_at": now - HOUR})


def _with_dependencies(draw, waiting, running):
    """Each job may depend on those before it and on running ones."""
    names = [job.name for job in (*running, *waiting[:1])]
    found = [waiting[0]]
    for job in waiting[1:]:
        chosen = draw.sample(names, min(len(names), draw.choice((0, 1, 1, 2))))
        needs = tuple(
            Dependency(job=name, kind=draw.choice((DependencyKind.SUCCEEDED, DependencyKind.STARTED)))
            for name in chosen
        )
        least = 1 if len(needs) > 1 and draw.random() < 0.5 else None
        found.append(job.model_copy(update={"depends_on": needs, "depends_on_at_least": least}))
        names.append(job.name)
    return found


def tempting(seed, *, slots=3):
    """One rack of two nodes in use, and a gang that may start later if running jobs are stopped now."""
    draw = random.Random(f"tempting {seed}")
    policy = Policy(
        horizon=HorizonPolicy(slots=slots, length="1h", earliness=draw.choice((0.1, 0.3))),
        disruption=Disruption(resize=False, migrate=False),
        weights=Weights(ageing=Ageing(cap=0)),
        priority=build.BY_WEIGHT,
        objective=Objective(goal=draw.choice((Goal.VALUE, Goal.COMPLETION))),
    )
    gpus = draw.choice((1, 2))
    nodes = [build.node(f"n{index}", gpus=gpus, rack="r0") for index in range(2)]
    running = _running(draw, nodes, build.NOW)
    later = build.NOW + timedelta(minutes=draw.choice((30, 90)))
    gang = build.job(
        "gang",
        gpus=gpus,
        replicas=2,
        locality={"required": "rack"},
        priority=8,
        weight=draw.choice((1, 3)),
        expected_duration=f"{draw.choice((50, 110, 500))}m",
        **({"not_before": later} if draw.random() < 0.8 else {}),
    )
    small = build.job(
        "small", gpus=1, priority=draw.choice((0, 4)), expected_duration=f"{draw.choice((50, 110))}m"
    )
    queues = [build.queue(nominal=draw.choice((None, 2 * gpus)))]
    snapshot = build.snapshot(nodes=nodes, jobs=[*running, gang, small], queues=queues, taken_at=build.NOW)
    return Timely(snapshot, policy, frozenset())


def limited_by_cores(world):
    """The same schedules, and as good: each GPU comes with a CPU core, and quotas of GPUs are of cores."""
    return replace(world, snapshot=quotas_of_cores(world.snapshot))
