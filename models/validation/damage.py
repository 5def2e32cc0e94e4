"""
Damage: lost resources that a snapshot still refers to, and the snapshot without them.

A place is lost with its node or its GPUs, with the gang's other replicas, or with the other jobs of its group
if these never started. Planning starts from the sound snapshot, in which no job holds a lost place. So a loss
is not a decision of the plan, and has no cost.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from gpuplan.models.cluster import rack_path
from gpuplan.models.errors import Suggestions
from gpuplan.models.placement import Placement
from gpuplan.models.timing.progress import job_after_stop, running_speed_milli
from gpuplan.models.validation.base import RESERVATIONS, Damage, DamageKind, Location, SnapshotView
from gpuplan.models.validation.checks import DAMAGE_CHECKS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LostReplicas:
    """A running job with lost places."""

    job: Job
    """The job in the damaged snapshot."""
    damages: tuple[Damage, ...]
    """Distinct damages, in the order of its replicas."""
    after: Placement | None
    """Places that it continues with: the sound replicas of an elastic gang, if there are enough."""
    released: bool = True
    """False: the job may not be interrupted and may still work, so it is reported and left unchanged."""


@dataclass(frozen=True, slots=True)
class DamageSurvey:
    """A snapshot with its damage."""

    sound: Snapshot
    """The snapshot without lost places; the snapshot itself if there are none."""
    losses: Mapping[str, LostReplicas]
    """Losses by job, in the order of the snapshot."""
    notes: tuple[tuple[str, Damage], ...]
    """Other damage with its subject, such as `node n3`."""


def survey_damage(snapshot: Snapshot, before: Snapshot | None = None) -> DamageSurvey:
    """
    Find the damage of a snapshot; computed once per snapshot.

    Jobs that are the same objects in an earlier snapshot, `before`, need not be examined again.
    """
    found = snapshot.derived.get(DamageSurvey)
    if not isinstance(found, DamageSurvey):
        sound = before is not None and _stays_sound(snapshot, before)
        found = DamageSurvey(snapshot, {}, ()) if sound else _surveyed(snapshot)
        snapshot.derived[DamageSurvey] = found
    return found


def _stays_sound(snapshot: Snapshot, before: Snapshot) -> bool:
    """True if there was no damage before, and what differs since then has none; False may be wrong."""
    known, cluster = before.derived.get(DamageSurvey), snapshot.cluster
    if not isinstance(known, DamageSurvey) or known.losses or known.notes:
        return False
    # The jobs of a group may be damage of each other wherever they run.
    if cluster is not before.cluster or "co_start" in snapshot.stated:
        return False
    same = before.job_by_name
    new = {job.name for job in snapshot.jobs if same.get(job.name) is not job}
    touched = {replica.node for name in new for replica in snapshot.job_by_name[name].running_replicas}
    jobs = [
        job
        for job in snapshot.jobs
        if job.name in new or (touched and any(each.node in touched for each in job.running_replicas))
    ]
    there = {replica.node for job in jobs for replica in job.running_replicas}
    nodes = tuple([node for node in cluster.nodes if node.name in there])
    # What only nodes decide is as before.
    part = cluster.model_copy(update={"nodes": nodes, "reservations": (), "rack_power": ()})
    view = SnapshotView(snapshot.model_copy(update={"cluster": part, "jobs": tuple(jobs)}), Suggestions(0))
    return all(one.damage is None for check in DAMAGE_CHECKS for one in check(view))


def without_losses(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The snapshot after these jobs, and no others, have given up their lost places."""
    return _without(
        snapshot, {name: loss for name, loss in survey_damage(snapshot).losses.items() if name in names}
    )


def _surveyed(snapshot: Snapshot) -> DamageSurvey:
    view = SnapshotView(snapshot, Suggestions(0))
    replicas: dict[int, dict[int, list[Damage]]] = defaultdict(lambda: defaultdict(list))
    short: dict[int, Damage] = {}
    notes = []
    for one in chain.from_iterable(check(view) for check in DAMAGE_CHECKS):
        if one.damage is None:
            continue
        match one.location:
            case ("jobs", int(index), "running", "replicas"):
                short[index] = one.damage
            case ("jobs", int(index), "running", "replicas", int(number), *_):
                replicas[index][number].append(one.damage)
            case _:
                notes.append((_subject(one.location, snapshot), one.damage))
    losses = {}
    for index in sorted(short.keys() | replicas.keys()):
        job = snapshot.jobs[index]
        losses[job.name] = _loss(job, short.get(index), replicas.get(index, {}))
    sound = _without(snapshot, losses)
    # Without the lost places, the remaining jobs may no longer exceed a node.
    return DamageSurvey(sound, losses, tuple(notes) if sound is snapshot else survey_damage(sound).notes)


def _loss(job: Job, short: Damage | None, damaged: Mapping[int, list[Damage]]) -> LostReplicas:
    """Loss of a running job, given the damages by replica number."""
    damages = (
        *([short] if short else ()),
        *chain.from_iterable(damaged[number] for number in sorted(damaged)),
    )
    told = tuple(dict.fromkeys(damages))
    if not job.preemptible and all(one.kind is DamageKind.GPU_UNHEALTHY for one in told):
        return LostReplicas(job, told, job.placement, released=False)
    replicas = job.running_replicas
    left = tuple(replica for number, replica in enumerate(replicas) if number not in damaged)
    whole = all(one.kind is not DamageKind.GROUP_PART_STARTED for one in told)
    goes_on = whole and job.gang.elastic and len(left) >= job.gang.minimum
    return LostReplicas(job, told, Placement(job=job.name, replicas=left) if goes_on else None)


def _without(snapshot: Snapshot, losses: Mapping[str, LostReplicas]) -> Snapshot:
    """The snapshot after these lost places are given up."""
    if not any(loss.released for loss in losses.values()):
        return snapshot
    jobs = tuple(
        [_given_up(losses[job.name], job, snapshot) if job.name in losses else job for job in snapshot.jobs]
    )
    return snapshot.model_copy(update={"jobs": jobs})


def _given_up(loss: LostReplicas, job: Job, snapshot: Snapshot) -> Job:
    """The job after its lost places are given up; a failure does not count as a preemption."""
    if not loss.released or job.running is None:
        return job
    if loss.after is None:
        return job_after_stop(job, running_speed_milli(job, snapshot.cluster.node_by_name), snapshot.taken_at)
    running = job.running.model_copy(update={"replicas": loss.after.replicas})
    return job.model_copy(update={"running": running})


def _subject(location: Location, snapshot: Snapshot) -> str:
    cluster = snapshot.cluster
    match location:
        case ("jobs", int(index), *_):
            return f"job {snapshot.jobs[index].name}"
        case ("cluster", "nodes", int(index), *_):
            return f"node {cluster.nodes[index].name}"
        case ("cluster", "rack_power", int(index), *_):
            return f"rack {rack_path(cluster.rack_power[index])}"
        case (*path, int(index), _, _) | (*path, int(index), _) if tuple(path) == RESERVATIONS:
            return f"reservation {cluster.reservations[index].name}"
    raise ValueError(f"expected a damaged entry, found {location}")
