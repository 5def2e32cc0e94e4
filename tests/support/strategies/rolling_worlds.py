"""Random worlds for rolling planning, and the jobs that arrive in them while time passes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.dependency import Dependency, DependencyKind
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from tests.support.doubles.rolling_cluster import Rolling
from tests.support.strategies import instances, job_strategies
from tests.support.strategies.instance_sizes import Kit

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.job import Job

HOUR = timedelta(hours=1)
KITS = {
    True: Kit(gpus=(1, 1, 2, 4), shares=(250, 500, 500), fair=True),
    False: Kit(gpus=(1, 1, 2, 3), shares=(300, 470, 810), fair=False),
}
KINDS = tuple(sorted(set(instances.FEATURES) - {"drain", "pools"}))
"""Nodes to be drained, or still to come, are no promise's places."""

LENGTHS = (600, 1800, 3600, 5400, 7200, 10800, 9 * 3600)
MOST_WAITING = 12
PATIENCE = 6 * HOUR


@dataclass
class World:
    """A world, and the jobs that arrive in it by and by."""

    draw: random.Random
    rolling: Rolling
    features: frozenset[str]
    fair: bool
    arrived: int = 0

    def hour(self, seconds: int = 3600):
        """One epoch, the time to the next, and the jobs that arrive meanwhile; the epoch's plan."""
        plan = self.rolling.plan()
        self.rolling.apply(plan)
        self._withdraw()
        self.rolling.advance(seconds, self.arrivals(seconds))
        return plan

    def _withdraw(self) -> None:
        """Users lose patience with jobs that were promised nothing for long, so that others can come."""
        rolling = self.rolling
        waiting = {job.name: job for job in rolling.waiting()}
        needed = {each.job for job in waiting.values() for each in job.depends_on}
        tired = {
            name: job
            for name, job in waiting.items()
            if job.promise is None and name not in needed and rolling.now - job.submitted_at >= PATIENCE
        }
        bound = {job.co_start for name, job in waiting.items() if name not in tired}
        leaving = {name for name, job in tired.items() if job.co_start is None or job.co_start not in bound}
        left = tuple(job for job in rolling.snapshot.jobs if job.name not in leaving)
        rolling.snapshot = rolling.snapshot.model_copy(update={"jobs": left})

    def arrivals(self, seconds: int) -> tuple[Job, ...]:
        """Up to three jobs an hour, as long as not too many wait."""
        number = self.draw.choice((1, 2, 3)) if seconds >= 3600 else self.draw.choice((0, 1, 1))
        room = MOST_WAITING - sum(1 for _ in self.rolling.waiting())
        jobs = [self._job(seconds) for _ in range(min(number, room))]
        if len(jobs) > 1 and self.draw.random() < 0.2:
            # They start together, and so wait for none that they know nothing of.
            jobs = [job.model_copy(update={"co_start": f"g{self.arrived}"}) for job in jobs]
        return tuple(jobs)

    def _job(self, seconds: int) -> Job:
        self.arrived += 1
        job = job_strategies.job(self.draw, f"x{self.arrived:04d}", self.features, KITS[self.fair])
        others = [other.name for other in self.rolling.snapshot.jobs]
        return timed(self.draw, job, self.rolling.now + timedelta(seconds=seconds), others)


def world(seed, *, preempt=None, factor=None, **backfill) -> World:
    """A small cluster with part of all that there is, and a policy that looks some hours ahead."""
    draw = random.Random(f"rolling {seed}")
    fair = draw.random() < 0.5
    given = (instances.everything if fair else instances.everything_mixed)(seed, features=KINDS)
    snapshot, now = given.snapshot, given.snapshot.taken_at
    reservations = _reservations(draw, [node.name for node in snapshot.cluster.nodes])
    snapshot = snapshot.model_copy(
        update={
            "jobs": tuple(timed(draw, job, now, []) for job in snapshot.jobs),
            "cluster": snapshot.cluster.model_copy(update={"reservations": reservations}),
        }
    ).canonical()
    rules = {"depth": draw.choice((None, None, 1, 3)), "starving": draw.choice((None, 3 * 3600))}
    preempt = draw.random() < 0.5 if preempt is None else preempt
    policy = given.policy.model_copy(
        update={
            "horizon": HorizonPolicy(slots=draw.choice((3, 6, 12)), backfill=Backfill(**rules | backfill)),
            "disruption": Disruption(preempt=preempt, resize=preempt),
            "solvers": (),
        }
    )
    more = {} if factor is None else {"factor": factor}
    return World(draw, Rolling(snapshot, policy, **more), given.features, fair)


def timed(draw, job: Job, now: datetime, others: list[str]) -> Job:
    """A job with a length, and perhaps a begin time, a deadline, and other jobs that it waits for."""
    about = {"expected_duration": draw.choice(LENGTHS)}
    if job.running is not None:
        return job.model_copy(update=about)
    about["submitted_at"] = now
    if draw.random() < 0.15:
        about["not_before"] = now + draw.choice((0.3, 1, 3)) * HOUR
    if draw.random() < 0.25:
        about["deadline"] = now + draw.choice((2, 4, 8)) * HOUR
        about["hard_deadline"] = draw.random() < 0.3
    if others and draw.random() < 0.35:
        names = sorted(set(draw.sample(others, min(len(others), draw.choice((1, 1, 2))))))
        kinds = [draw.choice(list(DependencyKind)) for _ in names]
        about["depends_on"] = tuple(
            Dependency(job=name, kind=kind) for name, kind in zip(names, kinds, strict=True)
        )
        if len(names) > 1 and draw.random() < 0.5:
            about["depends_on_at_least"] = 1
    return job.model_copy(update=about)


def _reservations(draw, names):
    """Windows that are known from the beginning on."""
    found = []
    if draw.random() < 0.6:
        about = {"cron": f"30 {draw.choice((3, 15))} * * *", "duration": draw.choice((1200, 7200))}
        nodes = (draw.choice(names),)
        found.append(Reservation(name="m", kind=ReservationKind.MAINTENANCE, nodes=nodes, **about))
    if draw.random() < 0.3:
        about = {"cron": "0 */6 * * *", "duration": 3600, "queues": ("a",), "nodes": (draw.choice(names),)}
        found.append(Reservation(name="o", kind=ReservationKind.RESERVED, **about))
    return tuple(found)
