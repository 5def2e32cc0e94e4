"""
Snapshots from a workload profile and a seed: a documented, repeatable substitute for a real cluster.

The same profile and seed give the same snapshot, byte for byte, on every machine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import GpuShare, MigSlice, Replica, Running
from gpuplan.models.queue import Queue, QuotaAmounts, queue_limits, quota_resources
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.files import load_noun
from gpuplan.planner.sources.workload_profile import JobShape, WorkloadProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpuplan.models.cluster import Node
    from gpuplan.models.snapshot import Snapshot


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
        if replicas is None or not quotas.admit(
            job.queue, model_of[replicas[0].node], job.request.quota.times(count)
        ):
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


# First fit: places the running part of a synthetic workload within capacities and quotas.


_Kind: TypeAlias = tuple[object, ...]
"""Properties that decide where a job fits; jobs with equal ones are searched together."""


class FirstFit:
    """
    Nodes in a fixed order that fill up; resources are never freed.

    A node without room for a kind of job never gets room for it again, so the search for each kind continues
    where it stopped.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._free = {node.name: FreeResources.of(node) for node in nodes}
        self._models = sorted({node.gpu_model for node in nodes if node.gpu_model})
        self._candidates: dict[_Kind, list[Node]] = {}
        self._searched: dict[_Kind, int] = {}

    def find(self, job: Job, *, replicas: int) -> tuple[Replica, ...] | None:
        """Places for all replicas on the first nodes with room, on one GPU model; None if they do not fit."""
        if replicas == 1 or not job.request.needs_gpu:
            return self._find_on(job, None, replicas)
        found = (self._find_on(job, model, replicas) for model in self._models)
        return next((places for places in found if places), None)

    def take(self, replicas: Iterable[Replica]) -> None:
        """Mark the resources of the replicas as used."""
        for replica in replicas:
            self._free[replica.node].take(replica)

    def _find_on(self, job: Job, model: str | None, wanted: int) -> tuple[Replica, ...] | None:
        kind = (job.request.model_dump_json(), eligibility_key(job), model)
        candidates = self._nodes_for(job, model)
        replicas: list[Replica] = []
        for position in range(self._searched.get(kind, 0), len(candidates)):
            node = candidates[position]
            replicas += _replicas(job.request, node, self._free[node.name], most=wanted - len(replicas))
            if len(replicas) == wanted:
                return tuple(replicas)
            if not replicas:
                self._searched[kind] = position + 1
        return None

    def _nodes_for(self, job: Job, model: str | None) -> list[Node]:
        """Nodes on which the job is eligible, whatever is free there."""
        alike = (eligibility_key(job), model)
        if alike not in self._candidates:
            self._candidates[alike] = [
                node
                for node in self._nodes
                if model in (None, node.gpu_model) and ineligibility(job, node) is None
            ]
        return self._candidates[alike]


def _replicas(request: ResourceRequest, node: Node, free: FreeResources, *, most: int) -> list[Replica]:
    """As many replicas as fit on one node together, at most `most`."""
    replicas: list[Replica] = []
    while len(replicas) < most and (replica := _replica(request, node, free)):
        if not replicas:
            own = list(free.gpu_milli), dict(free.resources), set(free.mig_used)
            free = replace(free, gpu_milli=own[0], resources=own[1], mig_used=own[2])
        free.take(replica)
        replicas.append(replica)
    return replicas


def _replica(request: ResourceRequest, node: Node, free: FreeResources) -> Replica | None:
    """One replica on the first GPUs of a node with room; None if it does not fit."""
    gpus = _instances(request, node, free) if request.mig else _gpus(request, free)
    if gpus is None:
        return None
    replica = Replica(
        node=node.name,
        gpus=gpus,
        cpu_milli=f"{request.cpu_milli}m",
        memory_mib=request.memory_mib,
        disk_mib=request.disk_mib,
        resources=request.resources,
    )
    return replica if free.holds(replica) else None


def _gpus(request: ResourceRequest, free: FreeResources) -> tuple[GpuShare, ...] | None:
    """The first whole GPUs, or the first GPU with room for a share; None if there are too few."""
    each = request.gpu_milli or MILLI
    wanted = 1 if request.gpu_milli else request.gpus
    indices = [index for index, milli in enumerate(free.gpu_milli) if milli >= each][:wanted]
    return tuple(GpuShare(index=index, milli=each) for index in indices) if len(indices) == wanted else None


def _instances(request: ResourceRequest, node: Node, free: FreeResources) -> tuple[MigSlice, ...] | None:
    """The first idle MIG instances of the node; None if there are too few."""
    left = dict(request.mig)
    found: list[MigSlice] = []
    for gpu in node.gpus.details if node.gpus else ():
        for instance in (gpu.mig or ()) if gpu.healthy else ():
            if left.get(instance.profile) and (gpu.index, instance.start) not in free.mig_used:
                left[instance.profile] -= 1
                found.append(MigSlice(index=gpu.index, profile=instance.profile, start=instance.start))
    return None if any(left.values()) else tuple(found)


class QuotaTracker:
    """Usage of each queue, checked against the limits of the queue tree."""

    def __init__(self, queues: tuple[Queue, ...]) -> None:
        self._limits = {resource: queue_limits(queues, resource) for resource in quota_resources(queues)}
        self._own: dict[str, dict[str, int]] = {resource: {} for resource in self._limits}

    def admit(self, queue: str, gpu_model: str | None, asked: QuotaAmounts) -> bool:
        """Add a starting job and return True, or return False if a limit of the tree forbids it."""
        added: dict[str, dict[str, int]] = {}
        for resource, limits in self._limits.items():
            if not (amount := asked.on(gpu_model, resource)):
                continue
            own = self._own[resource] | {queue: self._own[resource].get(queue, 0) + amount}
            for name, used in limits.usage(own).items():
                limit = limits.limit[name]
                if limit is not None and used > limit:
                    return False
            added[resource] = own
        self._own.update(added)
        return True


class _HasShare(Protocol):
    @property
    def share(self) -> int: ...


_T = TypeVar("_T")
_Shared = TypeVar("_Shared", bound=_HasShare)


class Draws:
    """
    A seeded source of draws.

    Uses only `Random.random()`: Python keeps its sequence for a seed equal in all versions.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a workload, no secret

    def happens(self, probability: float) -> bool:
        """True with a probability."""
        return self._random.random() < probability

    def below(self, bound: int) -> int:
        """A whole number from 0 up to but not including `bound`."""
        return int(self._random.random() * bound)

    def between(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`, both included."""
        return least + self.below(most - least + 1)

    def by_share(self, entries: Sequence[_Shared]) -> _Shared:
        """One of the entries, with a probability proportional to its share."""
        ticket = self.below(sum(entry.share for entry in entries))
        for entry in entries:
            ticket -= entry.share
            if ticket < 0:
                return entry
        raise AssertionError

    def shuffled(self, entries: Sequence[_T]) -> list[_T]:
        """The entries in random order (Fisher-Yates)."""
        order = list(entries)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order
