"""The verifier as tests call it, and builders for what only its rules look at."""

from __future__ import annotations

from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.verifier import verify
from tests.support.builders.build import by_value


def judge(snapshot, *placements, policy=None, **more):
    """Everything that breaks a rule if these placements hold; `more` are added, removed and planned."""
    return verify.verify(snapshot, policy or by_value(), placements, **more).violations


def apart_from_damage(violations):
    """What else is wrong where running jobs hold what is lost."""
    return tuple(each for each in violations if each.rule is not Rule.DAMAGE)


def worth(snapshot, *placements, policy=None, **more):
    """The terms of the objective if these placements hold; `more` are added, removed and planned."""
    return verify.verify(snapshot, policy or by_value(), placements, **more).terms


def rules(**switches):
    """A policy that differs in what may be done to running jobs."""
    return by_value(disruption=Disruption(**switches))


def broken(rule, subject, found, allowed):
    """What `judge` answers if one rule is broken once."""
    return (Violation(rule, subject, found, allowed),)


def asking(job, **request):
    """The same job with other fields of its request."""
    return job.model_copy(update={"request": job.request.model_copy(update=request)})


def holding(replica, **held):
    """The same replica holding other things."""
    return replica.model_copy(update=held)


def sliced(replica, *slices):
    """The same replica on MIG slices (GPU index, profile, start)."""
    held = tuple(MigSlice(index=index, profile=profile, start=start) for index, profile, start in slices)
    return replica.model_copy(update={"gpus": held})
