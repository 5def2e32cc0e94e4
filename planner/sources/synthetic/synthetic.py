"""
Snapshots from a workload profile and a seed: a documented, repeatable substitute for a real cluster.

The same profile and seed give the same snapshot, byte for byte, on every machine.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.job import Job, Running
from gpuplan.planner.sources.files import load_noun
from gpuplan.planner.sources.synthetic.first_fit import FirstFit, QuotaTracker
from gpuplan.planner.sources.synthetic.random_streams import Draws
from gpuplan.planner.sources.synthetic.workload_profile import WorkloadProfile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Replica
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.traces.job_shape import JobShape

_MINUTE: Final = 60


def load_workload_profile(path: Path) -> WorkloadProfile:
    """
    Read a workload profile from a YAML or JSON file.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    return load_noun(str(path), WorkloadProfile)


def generate_snapshot(profile: WorkloadProfile, *, seed: int) -> Snapshot:
    """Generate the cluster and queues of a profile, its jobs, and the part of them that already runs."""
    draws = Draws(seed)
    empty = profile.without_jobs()
    roomy = FirstFit(_one_of_each(profile))
    drawn = draws.shuffled(
        [_draw(draws, profile, shape, roomy=roomy) for shape in profile.jobs for _ in range(shape.count)]
    )
    placed = _started(draws, profile, empty=empty, drawn=drawn)
    timed = [_timed(draws, profile, job, replicas=placed.get(number)) for number, job in enumerate(drawn)]
    # Names count the jobs in the order of their submission, as a real cluster numbers them.
    timed.sort(key=lambda job: job.submitted_at)
    width = len(str(len(timed)))
    return empty.model_copy(
        update={
            "cluster": empty.cluster.model_copy(update={"nodes": _draining(profile, empty)}),
            "jobs": tuple(
                job.model_copy(update={"name": f"{job.queue}-{number:0{width}d}"})
                for number, job in enumerate(timed, start=1)
            ),
        }
    ).canonical()


def _one_of_each(profile: WorkloadProfile) -> list[Node]:
    """A node of each shape, with its region."""
    return [
        shape.node.model_copy(update={"region": shape.node.region or profile.layout.region})
        for shape in profile.nodes
    ]


def _draining(profile: WorkloadProfile, empty: Snapshot) -> tuple[Node, ...]:
    """The nodes, with the drain mark on the last ones of each shape."""
    last = [
        number >= shape.count - shape.draining for shape in profile.nodes for number in range(shape.count)
    ]
    return tuple(
        node.model_copy(update={"drain": True}) if drains else node
        for node, drains in zip(empty.cluster.nodes, last, strict=True)
    )


def _draw(draws: Draws, profile: WorkloadProfile, shape: JobShape, *, roomy: FirstFit) -> Job:
    """One job of a shape: draw its queue, user, priority, duration and GPU models."""
    asked = [origin for origin in profile.queues if not shape.queues or origin.queue.name in shape.queues]
    origin = draws.by_share(asked)
    queue = origin.queue.name
    # Two draws, so that some users submit far more jobs than others.
    user = draws.below(1 + draws.below(origin.users))
    importance = draws.by_share(origin.priorities)
    band = draws.by_share(profile.durations)
    job = Job(
        name="drawn",
        queue=queue,
        user=f"{queue}-u{user + 1}",
        priority=importance.priority,
        preemptible=importance.preemptible,
        expected_duration=draws.between(band.shortest // _MINUTE, band.longest // _MINUTE) * _MINUTE,
        submitted_at=profile.taken_at,
    )
    job = shape.apply_to(job)
    if shape.gpu_models or not job.request.needs_gpu:
        return job
    choice = draws.by_share(profile.model_choices)
    picky = job.model_copy(update={"gpu_models": choice.gpu_models})
    # Ignore a choice of models if their nodes are all too small for the request.
    return picky if roomy.find(picky, replicas=1) else job


def _started(
    draws: Draws, profile: WorkloadProfile, *, empty: Snapshot, drawn: Sequence[Job]
) -> dict[int, tuple[Replica, ...]]:
    """Replicas of the running jobs, by their index in the list."""
    fit = FirstFit(draws.shuffled(empty.cluster.nodes))
    quotas = QuotaTracker(empty.queues)
    model_of = {node.name: node.gpu_model for node in empty.cluster.nodes}
    left = int(profile.running.gpu_ratio * profile.gpu_milli)
    placed: dict[int, tuple[Replica, ...]] = {}
    for number, job in enumerate(drawn):
        if left <= 0:
            break
        if not _stands_anywhere(job):
            continue
        count = draws.between(job.gang.minimum, job.gang.maximum) if job.gang.elastic else job.gang.maximum
        replicas = fit.find(job, replicas=count)
        held = job.request.total_gpu_milli * count
        if replicas is None or not quotas.admit(job.queue, model_of[replicas[0].node], held):
            continue
        fit.take(replicas)
        placed[number] = replicas
        left -= held
        if draws.happens(profile.running.ended_ratio):
            ended = drawn[draws.below(len(drawn))]
            fit.take(fit.find(ended, replicas=ended.gang.maximum) or ())
    return placed


def _stands_anywhere(job: Job) -> bool:
    """False if the job constrains where its replicas or other jobs run, which first fit ignores."""
    return job.locality.required is None and job.spread is None and not job.anti_affinity


def _timed(draws: Draws, profile: WorkloadProfile, job: Job, *, replicas: tuple[Replica, ...] | None) -> Job:
    """The job with its times; the snapshot falls between the start and the end of a running job."""
    if replicas is None:
        submitted_at = profile.taken_at - timedelta(seconds=draws.between(0, profile.backlog))
        return job.model_copy(update={"submitted_at": submitted_at})
    elapsed = draws.between(1, (job.expected_duration or 2) - 1)
    started_at = profile.taken_at - timedelta(seconds=elapsed)
    waited = timedelta(seconds=draws.between(0, profile.running.longest_wait))
    saved_at = None
    if oldest := profile.running.oldest_checkpoint:
        age = draws.between(0, oldest)
        saved_at = profile.taken_at - timedelta(seconds=age) if age < elapsed else None
    running = Running(started_at=started_at, last_checkpoint_at=saved_at, replicas=replicas)
    return job.model_copy(update={"submitted_at": started_at - waited, "running": running})
