"""The terms of the objective that depend on time: completion, deadlines and tariffs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.verifier.job_changes import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context
    from gpuplan.models.verifier.timeline import Interval


def completion_term(case: Context) -> int:
    """
    Points of jobs after the plan less their points before, over all jobs that change: Σ_j w_j · completed_j.

    Later starts are included. An invalid start earns nothing: a held job, a job placed twice, a wrong slot,
    or no allowed GPU model.
    """
    total = sum(_value(case, stay) for stay in _starts(case))
    total -= sum(_value_before(case, job) for job in case.stopped)
    for job, occupant in case.changed:
        if job.running:
            total += _value(case, case.time.interval_of_placement(occupant, job)) - _value_before(case, job)
    return total


def points_of_starts(case: Context, name: str | None = None) -> int:
    """Points of jobs that start, now or later, or grow: of one job, or of all."""
    total = 0
    for stay in _starts(case, name):
        replicas = stay.placement.replicas
        model, when = case.time.gpu_model(stay.job, replicas), {"start": stay.start, "seconds": stay.seconds}
        total += _value(case, stay) + case.time.start_value.saved_lateness(stay.job, **when)
        total -= case.time.start_value.tariff_points(stay.job, model, len(replicas), **when)
    for job, occupant in case.changed:
        if occupant.change is Change.GROWN and name in (None, job.name):
            total += _value(case, case.time.interval_of_placement(occupant, job))
            total -= _value_before(case, job)
    return total


def _starts(case: Context, name: str | None = None) -> Iterator[Interval]:
    """Valid starts, now and later, of one job or of all."""
    times = case.placement_counts
    for stay in case.time.starting:
        job = stay.job
        if name in (None, job.name) and not (job.held or stay.placement.slot or times[job.name] > 1):
            yield from [stay] if _may_run(case, stay) else ()
    for stay in case.time.later:
        if name in (None, stay.job.name):
            yield from [stay] if _may_run(case, stay) else ()


def _may_run(case: Context, stay: Interval) -> bool:
    """True if the job needs no GPU, or all its replicas are on one GPU model that it may use."""
    job, models = stay.job, case.gpu_models(stay.placement.replicas)
    known = len(models) == 1 and (not job.gpu_models or models[0] in job.gpu_models)
    return known or not job.request.needs_gpu


def _value(case: Context, stay: Interval) -> int:
    replicas = stay.placement.replicas
    model = case.time.gpu_model(stay.job, replicas)
    return case.time.start_value.completion(
        stay.job, model, len(replicas), start=stay.start, seconds=stay.seconds
    )


def _value_before(case: Context, job: Job) -> int:
    """Points that a running job would earn if it stayed."""
    replicas = job.running.replicas if job.running else ()
    model, seconds = case.time.gpu_model(job, replicas), case.time.durations.remaining(job)
    return case.time.start_value.completion(job, model, len(replicas), seconds=seconds)


def deadline_term(case: Context) -> int:
    """Lateness avoided by starts, less that of preempted jobs."""
    if case.time.slots.count == 1:
        return 0
    earnings, durations = case.time.start_value, case.time.durations
    saved = sum(
        earnings.saved_lateness(stay.job, start=stay.start, seconds=stay.seconds) for stay in _starts(case)
    )
    lost = sum(
        earnings.saved_lateness(job, start=0, seconds=durations.remaining(job)) for job in case.stopped
    )
    return saved - lost


def tariff_term(case: Context) -> int:
    """Cost of tariffs for starts, by their time."""
    if case.time.slots.count == 1 or not case.snapshot.cluster.tariffs:
        return 0
    return -sum(
        case.time.start_value.tariff_points(
            stay.job,
            case.time.gpu_model(stay.job, stay.placement.replicas),
            len(stay.placement.replicas),
            start=stay.start,
            seconds=stay.seconds,
        )
        for stay in _starts(case)
    )
