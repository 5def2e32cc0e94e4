"""
Snapshots from a workload profile and a seed: a documented, repeatable stand-in for a real cluster.

The same profile and seed give the same snapshot, to the byte, on every machine.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from planner.models.job import Gang, Job, Running
from planner.models.units import MILLI
from planner.sources.draws import Draws
from planner.sources.files import load_noun
from planner.sources.first_fit import FirstFit, QuotaUse
from planner.sources.workload_profile import WorkloadProfile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from planner.models.cluster import Node
    from planner.models.placement import Replica
    from planner.models.snapshot import Snapshot
    from planner.sources.workload_profile import JobShape

_MINUTE: Final = 60


def load_profile(path: Path) -> WorkloadProfile:
    """
    Read a workload profile from a YAML or JSON file.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    return load_noun(str(path), WorkloadProfile)


def generate(profile: WorkloadProfile, *, seed: int) -> Snapshot:
    """Make the cluster of a profile, its queues, a backlog of jobs and a part of them that runs already."""
    draws = Draws(seed)
    empty = profile.without_jobs(lay_out(profile))
    roomy = FirstFit([shape.node for shape in profile.nodes])
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
            "jobs": tuple(
                job.model_copy(update={"name": f"{job.queue}-{number:0{width}d}"})
                for number, job in enumerate(timed, start=1)
            )
        }
    ).canonical()


def lay_out(profile: WorkloadProfile) -> tuple[Node, ...]:
    """All nodes with their names, racks and zones; a rack holds nodes of one shape."""
    nodes: list[Node] = []
    rack = 0
    for shape in profile.nodes:
        width = len(str(shape.count))
        for number in range(shape.count):
            if number % profile.layout.nodes_per_rack == 0:
                rack += 1
            place = {
                "name": f"{shape.node.name}-{number + 1:0{width}d}",
                "region": profile.layout.region,
                "zone": f"z{(rack - 1) // profile.layout.racks_per_zone + 1}",
                "rack": f"r{rack:03d}",
            }
            nodes.append(shape.node.model_copy(update=place))
    return tuple(nodes)


def _draw(draws: Draws, profile: WorkloadProfile, shape: JobShape, *, roomy: FirstFit) -> Job:
    """One job of a shape: from whom, how important, how long, and on which GPU models."""
    asked = [origin for origin in profile.queues if not shape.queues or origin.queue.name in shape.queues]
    origin = draws.by_share(asked)
    queue = origin.queue.name
    # Drawn twice, so that some users submit far more than others.
    user = draws.below(1 + draws.below(origin.users))
    importance = draws.by_share(origin.priorities)
    band = draws.by_share(profile.durations)
    job = Job(
        name="drawn",
        queue=queue,
        user=f"{queue}-u{user + 1}",
        priority=importance.priority,
        preemptible=importance.preemptible,
        request=shape.request,
        gang=Gang(minimum=shape.replicas, maximum=shape.replicas),
        gpu_models=dict.fromkeys(shape.gpu_models, 1),
        expected_duration=draws.between(band.shortest // _MINUTE, band.longest // _MINUTE) * _MINUTE,
        submitted_at=profile.taken_at,
    )
    if shape.gpu_models or not job.request.needs_gpu:
        return job
    choice = draws.by_share(profile.model_choices)
    picky = job.model_copy(update={"gpu_models": dict.fromkeys(choice.gpu_models, MILLI)})
    # Nobody asks for a model whose nodes are too small for the request.
    return picky if roomy.find(picky.model_copy(update={"gang": Gang()})) else job


def _started(
    draws: Draws, profile: WorkloadProfile, *, empty: Snapshot, drawn: Sequence[Job]
) -> dict[int, tuple[Replica, ...]]:
    """Replicas of the jobs that run, by their place in the list."""
    fit = FirstFit(draws.shuffled(empty.cluster.nodes))
    quotas = QuotaUse(empty.queues)
    model_of = {node.name: node.gpu_model for node in empty.cluster.nodes}
    left = int(profile.running.gpu_ratio * profile.gpu_milli)
    placed: dict[int, tuple[Replica, ...]] = {}
    for number, job in enumerate(drawn):
        if left <= 0:
            break
        replicas = fit.find(job)
        held = job.request.total_gpu_milli * job.gang.maximum
        if replicas is None or not quotas.admit(job.queue, model_of[replicas[0].node], held):
            continue
        fit.take(replicas)
        placed[number] = replicas
        left -= held
        if draws.happens(profile.running.ended_ratio):
            fit.take(fit.find(drawn[draws.below(len(drawn))]) or ())
    return placed


def _timed(draws: Draws, profile: WorkloadProfile, job: Job, *, replicas: tuple[Replica, ...] | None) -> Job:
    """The job with its times: a running one is somewhere between its start and its end."""
    if replicas is None:
        submitted_at = profile.taken_at - timedelta(seconds=draws.between(0, profile.backlog))
        return job.model_copy(update={"submitted_at": submitted_at})
    elapsed = draws.between(1, (job.expected_duration or 2) - 1)
    started_at = profile.taken_at - timedelta(seconds=elapsed)
    waited = timedelta(seconds=draws.between(0, profile.running.longest_wait))
    return job.model_copy(
        update={
            "submitted_at": started_at - waited,
            "running": Running(started_at=started_at, replicas=replicas),
        }
    )
