"""Changes of a scenario to jobs: add, remove, reweight, hold and multiply them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from gpuplan.models.units import MILLI
from gpuplan.planner.sources.synthetic.random_streams import Draws

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.job import Job
    from gpuplan.planner.whatif.patch.scenario_changes import AddJobs, RemoveJobs, ScaleDemand, SetJobs
    from gpuplan.planner.whatif.world import Faults, SnapshotSections


def set_jobs(world: SnapshotSections, change: SetJobs) -> Faults:
    """Set weight, priority or hold of jobs."""
    jobs, faults = world.choose_jobs(change.jobs)
    yield from faults
    for job in jobs:
        weight_milli = job.weight_milli if change.weight_milli is None else change.weight_milli
        if change.weight_factor is not None:
            weight_milli = weight_milli * change.weight_factor // MILLI
        update = {
            "weight_milli": weight_milli,
            "priority": job.priority if change.priority is None else change.priority,
            "held": job.held if change.held is None else change.held,
        }
        world.jobs[job.name] = job.model_copy(update=update)


def add_jobs(world: SnapshotSections, change: AddJobs) -> Faults:
    """Add waiting jobs."""
    for job in change.jobs:
        if job.name in world.jobs:
            yield f"there is a job '{job.name}' already; expected a new name."
        yield from world.unknown("queue", job.queue, world.queues)
        world.jobs[job.name] = job


def remove_jobs(world: SnapshotSections, change: RemoveJobs) -> Faults:
    """Remove jobs."""
    jobs, faults = world.choose_jobs(change.jobs)
    yield from faults
    for job in jobs:
        del world.jobs[job.name]


def scale_demand(world: SnapshotSections, change: ScaleDemand) -> Faults:
    """
    Multiply the waiting jobs: whole copies of all, and a random part of them for the rest of the factor.

    Jobs of one co-start group are drawn together. A copy depends on the copy of its original's dependency.
    """
    if change.queue is not None:
        yield from world.unknown("queue", change.queue, world.queues)
    waiting = [
        job for job in world.jobs.values() if job.running is None and change.queue in (None, job.queue)
    ]
    whole, rest = divmod(change.factor, MILLI)
    drawn = _drawn(waiting, rest, change.seed)
    if not whole:
        for job in waiting:
            if job.name not in drawn:
                del world.jobs[job.name]
        return
    for _ in range(whole - 1):
        _copy(world, waiting)
    _copy(world, [job for job in waiting if job.name in drawn])


def _drawn(jobs: Iterable[Job], part_milli: int, seed: int) -> set[str]:
    """Draw the names of a part of the jobs; a co-start group is drawn as a whole or not at all."""
    groups: dict[str, list[str]] = {}
    for job in sorted(jobs, key=lambda job: job.name):
        groups.setdefault(job.co_start or f"{job.name} alone", []).append(job.name)
    # Round to the nearest whole group, halves up.
    wanted = (2 * len(groups) * part_milli + MILLI) // (2 * MILLI)
    drawn = Draws(seed).shuffled(list(groups.values()))[:wanted]
    return {name for group in drawn for name in group}


def _copy(world: SnapshotSections, jobs: Iterable[Job]) -> None:
    """Add one copy of each job; dependencies and groups among the copies mirror those of the originals."""
    originals = list(jobs)
    taken = {*world.jobs, *(job.co_start for job in world.jobs.values())}
    names = {job.name: _new_name(job.name, taken) for job in originals}
    groups = {job.co_start: _new_name(job.co_start, taken) for job in originals if job.co_start}
    for job in originals:
        depends_on = tuple(
            each.model_copy(update={"job": names.get(each.job, each.job)}) for each in job.depends_on
        )
        update = {"name": names[job.name], "depends_on": depends_on, "promise": None, "progress": None}
        if job.co_start:
            update["co_start"] = groups[job.co_start]
        world.jobs[names[job.name]] = job.model_copy(update=update)


def _new_name(name: str, taken: set[str | None]) -> str:
    return next(new for number in count(1) if (new := f"{name}-copy-{number}") not in taken)
