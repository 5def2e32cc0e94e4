"""Snapshot: one consistent view of cluster, queues and jobs at one instant."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator

from gpuplan.models.base import Noun, canonical_list, canonical_object
from gpuplan.models.cluster import Cluster, rack_of
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.health.measurement import Measurement
from gpuplan.models.job import Job
from gpuplan.models.json_frame import CANONICAL, job_texts
from gpuplan.models.placement import MigSlice, Placement, Replica
from gpuplan.models.queue import Queue
from gpuplan.models.units import Timestamp, print_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import Node

SNAPSHOT_FORMAT: Final = "1.0"

_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Plans look some hundred years ahead of a snapshot at most, and no date is after the year 9999."""

_TEXT: Final = "canonical_text"
"""Name of the cached property of that name."""


def _with_time_ahead(value: datetime) -> datetime:
    if value >= _LATEST:
        raise ValueError(f"expected a time before the year {_LATEST.year}, found {print_timestamp(value)}")
    return value


class Snapshot(Noun):
    """All input of one epoch: the state of the cluster, its queues and jobs."""

    format_version: Literal["1.0"] = SNAPSHOT_FORMAT
    """Version of the format of this document."""
    taken_at: Annotated[Timestamp, AfterValidator(_with_time_ahead)]
    """Instant of this state; ages, waiting times and remaining times are relative to it."""
    cluster: Cluster
    """Nodes and cluster-wide settings; a list of nodes is short for a cluster with only nodes."""
    queues: tuple[Queue, ...]
    """Queues with their quotas; each job names one."""
    jobs: tuple[Job, ...] = ()
    """Running and pending jobs."""
    finished: tuple[FinishedJob, ...] = ()
    """Ended jobs that other jobs depend on, or from which durations are learnt."""

    measured: tuple[Measurement, ...] = ()
    """What GPUs were seen to do: for reports, warnings, and the rules of health in the policy."""

    def canonical(self) -> Snapshot:
        """
        The same snapshot with every collection sorted by name, so that input order has no effect.

        It returns itself if it is sorted, which keeps its cached properties.
        """
        return self._sorted or self

    @cached_property
    def _sorted(self) -> Snapshot | None:
        """The canonical snapshot; None if this one is canonical."""
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
            "measured": tuple(sorted(self.measured, key=lambda each: (each.node, each.index))),
        }
        if not _are_members(cluster, sections):
            cluster = cluster.model_copy(update=sections)
        elif _are_members(self, lists):
            return None
        ordered = self.model_copy(update={"cluster": cluster, **lists})
        ordered.__dict__["_sorted"] = None  # it is canonical itself
        return ordered

    @cached_property
    def shared_document(self) -> dict[str, Any]:
        """`document()`, computed once for all readers; it must not be modified."""
        return self.document()

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical document."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return super().fingerprint()

    def canonical_pieces(self) -> Iterator[str]:
        """Canonical JSON of the document; the canonical texts of nodes and jobs are cached."""
        without_nodes = self.cluster.model_copy(update={"nodes": ()})
        hollow = self.model_copy(update={"jobs": (), "cluster": without_nodes})
        long = {"cluster": self.cluster.canonical_pieces()}
        if self.jobs:
            self._write_jobs()
            long["jobs"] = canonical_list(job.canonical_text for job in self.jobs)
        return canonical_object(hollow.document(), long)

    def _write_jobs(self) -> None:
        """Compute the canonical texts of jobs, once for all plain jobs that differ in their name alone."""
        unwritten = [job for job in self.jobs if _TEXT not in job.__dict__]
        for job, text in zip(unwritten, job_texts(unwritten, CANONICAL), strict=True):
            job.__dict__[_TEXT] = text

    def with_nodes(self, nodes: Iterable[Node]) -> Snapshot:
        """The same with these nodes."""
        cluster = self.cluster.model_copy(update={"nodes": tuple(nodes)})
        return self.model_copy(update={"cluster": cluster})

    @cached_property
    def job_by_name(self) -> dict[str, Job]:
        """Jobs by name."""
        return {job.name: job for job in self.jobs}

    @cached_property
    def parent_queues(self) -> dict[str, str | None]:
        """The queue above each queue, by name; None above a root."""
        return {queue.name: queue.parent for queue in self.queues}

    @cached_property
    def child_queues(self) -> dict[str | None, list[str]]:
        """The queues directly below each queue, in their order; those below None are the roots."""
        children: dict[str | None, list[str]] = {}
        for queue in self.queues:
            children.setdefault(queue.parent, []).append(queue.name)
        return children

    @cached_property
    def stated(self) -> frozenset[str]:
        """Names of the fields that any job sets: all other fields have their default in every job."""
        # Jobs share the sets of field names, so few distinct ones exist.
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
        """State without the cache, which is larger than the snapshot when sent to another process."""
        state = super().__getstate__()
        kept = {name: value for name, value in self.__dict__.items() if name != "derived"}
        return state | {"__dict__": kept}

    @cached_property
    def running_placements(self) -> tuple[Placement, ...]:
        """Placements of the running jobs, in the order of the jobs."""
        return tuple(placement for job in self.jobs if (placement := job.placement))


def _are_members(noun: Noun, sections: dict[str, tuple[Any, ...]]) -> bool:
    """True if the fields of a value contain exactly these objects in this order."""
    return all(
        len(entries) == len(own := getattr(noun, name))
        and all(one is other for one, other in zip(entries, own, strict=True))
        for name, entries in sections.items()
    )


def _with_replicas_in_order(job: Job) -> Job:
    """The job with its running replicas sorted by node and GPUs, since replicas have no names."""
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
