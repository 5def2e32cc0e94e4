"""Builders for what has to do with time: hours from now, later starts, expected ends, promises."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.placement import Promise, Running
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from tests.support.builders.build import NOW, by_value, job

HOUR = 3600


def at(hours):
    """An instant so many hours after now."""
    return NOW + timedelta(hours=hours)


def ahead(slots=6, *, length=HOUR, earliness=0.1, backfill=None, **more):
    """A policy that looks ahead in slots of an hour; now is the beginning of one."""
    horizon = HorizonPolicy(
        slots=slots, length=length, earliness=earliness, backfill=Backfill(**backfill or {})
    )
    return by_value(horizon=horizon, **more)


def runs(name="r", *replicas, hours=1, ran=1, **more):
    """A job that has run for some hours on whole GPUs and goes on for so many."""
    given = {"gpus": len(replicas[0].gpus), "replicas": len(replicas)} | more
    running = Running(started_at=at(-ran), replicas=replicas)
    made = job(name, expected_duration=int((ran + hours) * HOUR), **given)
    return made.model_copy(update={"running": running})


def waits(name="a", *, hours=1, gpus=1, **more):
    """A waiting job that takes so many hours on one GPU."""
    return job(name, gpus=gpus, expected_duration=int(hours * HOUR), **more)


def later(name, slot, *replicas):
    """A later start."""
    return LaterStart(name, slot, replicas)


def promised(made, hours, *replicas):
    """The same job, promised a start."""
    return made.model_copy(update={"promise": Promise(start=at(hours), replicas=replicas)})
