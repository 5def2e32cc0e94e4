"""Snapshot: one consistent view of cluster, queues and jobs at one instant."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from gpuplan.models.base import Noun, canonical_list, canonical_object
from gpuplan.models.cluster import Cluster, rack_of
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.job import Job
from gpuplan.models.placement import MigSlice, Placement, Replica
from gpuplan.models.queue import Queue
from gpuplan.models.units import Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

SNAPSHOT_FORMAT: Final = "1.0"


class Snapshot(Noun):
    """Everything one epoch knows about the world."""

    format_version: Literal["1.0"] = SNAPSHOT_FORMAT
    """Version of the format of this document."""
    taken_at: Timestamp
    """The instant at which all of this was true; ages, waits and remaining times are counted from it."""
    cluster: Cluster
    """Nodes and what is true of them together; a list of nodes is short for a cluster of these nodes."""
    queues: tuple[Queue, ...]
    """Queues with their quotas; each job names one."""
    jobs: tuple[Job, ...] = ()
    """Running and waiting jobs."""
    finished: tuple[FinishedJob, ...] = ()
    """Jobs that have ended, as far as others depend on them or durations are learnt from them."""

    def canonical(self) -> Snapshot:
        """
        The same snapshot with every collection sorted by name, so that input order changes nothing.

        Itself if it is sorted: what was looked up in it once need not be looked up again.
        """
        return self._sorted or self

    @cached_property
    def _sorted(self) -> Snapshot | None:
        """The canonical snapshot; None if this one is."""
        cluster = self.cluster
        sections = {
            "nodes": tuple(sorted(cluster.nodes, key=attrgetter("name"))),
            "pools": tuple(sorted(cluster.pools, key=lambda pool: pool.name)),
            "datasets": tuple(sorted(cluster.datasets, key=lambda dataset: dataset.name)),
            "rack_power": tuple(sorted(cluster.rack_power, key=lambda cap: (*rack_of(cap), cap.watts))),
            "reservations": tuple(sorted(cluster.reservations, key=lambda each: each.name)),
            "tariffs": tuple(sorted(cluster.tariffs, key=lambda tariff: tariff.name)),
        }
        lists = {
            "queues": tuple(sorted(self.queues, key=lambda queue: queue.name)),
            "jobs": tuple(sorted(map(_with_replicas_in_order, self.jobs), key=attrgetter("name"))),
            "finished": tuple(sorted(self.finished, key=lambda job: (job.name, job.ended_at))),
        }
        if not _are_members(cluster, sections):
            cluster = cluster.model_copy(update=sections)
        elif _are_members(self, lists):
            return None
        ordered = self.model_copy(update={"cluster": cluster, **lists})
        ordered.__dict__["_sorted"] = None  # as it would find itself
        return ordered

    @cached_property
    def shared_document(self) -> dict[str, Any]:
        """`document()`, made once for all who only read it: it must not be changed."""
        return self.document()

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical document."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return super().fingerprint()

    def canonical_pieces(self) -> Iterator[str]:
        """Canonical JSON of the document; nodes and jobs know their own."""
        without_nodes = self.cluster.model_copy(update={"nodes": ()})
        hollow = self.model_copy(update={"jobs": (), "cluster": without_nodes})
        long = {"cluster": self.cluster.canonical_pieces()}
        if self.jobs:
            long["jobs"] = canonical_list(job.canonical_text for job in self.jobs)
        return canonical_object(hollow.document(), long)

    @cached_property
    def job_by_name(self) -> dict[str, Job]:
        """Jobs by name."""
        return {job.name: job for job in self.jobs}

    @cached_property
    def stated(self) -> frozenset[str]:
        """Names of the fields that any of its jobs states: in all others every job has the default."""
        # Jobs share the sets of names.
        sets = {id(names): names for names in map(attrgetter("model_fields_set"), self.jobs)}
        return frozenset().union(*sets.values())

    @cached_property
    def waiting(self) -> tuple[Job, ...]:
        """Jobs that do not run."""
        return tuple([job for job in self.jobs if job.running is None])

    @cached_property
    def derived(self) -> dict[type[Any], Any]:
        """Values that follow from the snapshot alone, by class, each computed at its first use."""
        return {}

    def __getstate__(self) -> dict[Any, Any]:
        """Without what can be found out again: for other processes that is more than the snapshot."""
        state = super().__getstate__()
        kept = {name: value for name, value in self.__dict__.items() if name != "derived"}
        return state | {"__dict__": kept}

    @cached_property
    def running_placements(self) -> tuple[Placement, ...]:
        """Where the running jobs are, in the order of the jobs."""
        return tuple(placement for job in self.jobs if (placement := job.placement))


def _are_members(noun: Noun, sections: dict[str, tuple[Any, ...]]) -> bool:
    """True if a noun holds these very entries in this order."""
    return all(
        len(entries) == len(own := getattr(noun, name))
        and all(one is other for one, other in zip(entries, own, strict=True))
        for name, entries in sections.items()
    )


def _with_replicas_in_order(job: Job) -> Job:
    """The job with its running replicas by node and GPUs, as what a replica holds has no other name."""
    if job.running is None or len(job.running.replicas) == 1:
        return job
    nodes = [replica.node for replica in job.running.replicas]
    if all(one < next_ for one, next_ in pairwise(nodes)):
        return job
    ordered = tuple(sorted(job.running.replicas, key=_place))
    if ordered == job.running.replicas:
        return job
    return job.model_copy(update={"running": job.running.model_copy(update={"replicas": ordered})})


def _place(replica: Replica) -> tuple[object, ...]:
    gpus = sorted(
        (held.index, held.start, held.profile) if isinstance(held, MigSlice) else (held.index, held.milli, "")
        for held in replica.gpus
    )
    return (
        replica.node,
        gpus,
        replica.cpu_milli,
        replica.memory_mib,
        replica.disk_mib,
        sorted(replica.resources.items()),
    )
