"""Changes of jobs: reweight, hold, add, remove and multiply them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.job import Job
from gpuplan.models.units import MILLI, Milli, Name
from gpuplan.planner.sources.synthetic import Draws
from gpuplan.planner.whatif.patch.world import Faults, JobChoice, SnapshotSections, expect_some_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_Priority: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=10_000)]


class SetJobs(Noun):
    """Change the weight or priority of jobs, or hold or release them."""

    change: Literal["set_jobs"]
    jobs: JobChoice
    """Jobs to change."""
    weight_milli: Milli | None = Field(default=None, alias="weight")
    """Their new weight."""
    weight_factor: Milli | None = None
    """Factor on their present weight."""
    priority: _Priority | None = None
    """Their new priority."""
    held: bool | None = None
    """True: the jobs are held; false: they are released."""

    @model_validator(mode="after")
    def _changes_something(self) -> SetJobs:
        expect_some_of(self, "weight_milli", "weight_factor", "priority", "held")
        if self.weight_milli is not None and self.weight_factor is not None:
            raise ValueError("expected one of weight and weight_factor, found both")
        return self

    def apply(self, world: SnapshotSections) -> Faults:
        """Set weight, priority or hold of jobs."""
        jobs, faults = world.choose_jobs(self.jobs)
        yield from faults
        for job in jobs:
            weight_milli = job.weight_milli if self.weight_milli is None else self.weight_milli
            if self.weight_factor is not None:
                weight_milli = weight_milli * self.weight_factor // MILLI
            update = {
                "weight_milli": weight_milli,
                "priority": job.priority if self.priority is None else self.priority,
                "held": job.held if self.held is None else self.held,
            }
            world.jobs[job.name] = job.model_copy(update=update)


class AddJobs(Noun):
    """Add waiting jobs."""

    change: Literal["add_jobs"]
    jobs: tuple[Job, ...] = Field(min_length=1)
    """Waiting jobs to add."""

    @model_validator(mode="after")
    def _wait(self) -> AddJobs:
        if running := [job.name for job in self.jobs if job.running]:
            raise ValueError(f"expected jobs that wait, found {', '.join(running)} with running")
        return self

    def apply(self, world: SnapshotSections) -> Faults:
        """Add waiting jobs."""
        for job in self.jobs:
            if job.name in world.jobs:
                yield f"there is a job '{job.name}' already; expected a new name."
            yield from world.unknown("queue", job.queue, world.queues)
            world.jobs[job.name] = job


class RemoveJobs(Noun):
    """Remove jobs; what they held becomes free."""

    change: Literal["remove_jobs"]
    jobs: JobChoice
    """Jobs to remove; what they held becomes free."""

    def apply(self, world: SnapshotSections) -> Faults:
        """Remove jobs."""
        jobs, faults = world.choose_jobs(self.jobs)
        yield from faults
        for job in jobs:
            del world.jobs[job.name]


class ScaleDemand(Noun):
    """Multiply the waiting jobs: whole copies, and a random part of them for the rest of the factor."""

    change: Literal["scale_demand"]
    factor: Annotated[Milli, Field(le=1_000_000)]
    """Multiple of the waiting jobs: 2 is each of them twice, 0.5 is half of them."""
    queue: Name | None = None
    """Only the jobs of this queue; if absent, all jobs."""
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    """Seed of the random choice of jobs for the fractional part of the factor."""

    def apply(self, world: SnapshotSections) -> Faults:
        """
        Multiply the waiting jobs: whole copies of all, and a random part of them for the rest of the factor.

        Jobs of one co-start group are drawn together. A copy depends on the copies of its dependencies.
        """
        if self.queue is not None:
            yield from world.unknown("queue", self.queue, world.queues)
        waiting = [
            job for job in world.jobs.values() if job.running is None and self.queue in (None, job.queue)
        ]
        whole, rest = divmod(self.factor, MILLI)
        drawn = _drawn(waiting, rest, self.seed)
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
