"""
Arrivals: jobs that are submitted one after the other, each with its true duration.

They come from a trace, or are drawn from a workload profile. The simulation decides which durations the
planner is given. Outages of nodes over the same time are read here too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError, InputProblem, truncated_names
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.units import LONGEST_SECONDS
from gpuplan.planner.sources.documents.documents import JSON_SUFFIX, YAML_SUFFIXES
from gpuplan.planner.sources.synthetic import generate_snapshot, load_workload_profile
from gpuplan.planner.sources.traces.csv_rows import CsvFile, CsvRow
from gpuplan.planner.sources.traces.openb import POD_COLUMNS, read_openb_pods
from gpuplan.planner.sources.workload_profile import RunningPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpuplan.models.cluster import Cluster


_MOST_GPUS: Final = 8
"""GPUs of one replica at most, if the cluster has no GPUs."""
_PHILLY_COLUMNS: Final = ("timestamp", "duration", "num_gpus", "cluster")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job of a trace."""

    after: int
    """Seconds from the start of the trace to the submission."""
    job: Job
    """The job; its submission time and expected duration are not used."""
    duration: int
    """True duration in seconds, at full size on the fastest of its GPU models."""


def read_arrivals(path: Path, cluster: Cluster, *, seed: int) -> tuple[Arrival, ...]:
    """
    Read an openb pod list, a Philly job list (CSV), or a workload profile (YAML or JSON), by time and name.

    A Philly job states only a number of GPUs and becomes a gang with replicas of up to the GPUs of the
    cluster's largest node. Jobs of a profile are drawn with the seed and arrive over a time as long as its
    backlog.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    if path.suffix in (*YAML_SUFFIXES, JSON_SUFFIX):
        found = _drawn(path, seed=seed)
    else:
        columns = _columns(path)
        if columns >= set(_PHILLY_COLUMNS):
            widest = max((node.gpu_count for node in cluster.nodes), default=0) or _MOST_GPUS
            file = CsvFile(path, what="a job list of the trace, such as philly_jobs.csv")
            found = _from_first(file.read(_philly_jobs(file, widest)))
        elif columns >= set(POD_COLUMNS):
            found = _from_first(read_openb_pods(path))
        else:
            raise BadInputError((_neither(path, columns),))
    return tuple(sorted(found, key=lambda arrival: (arrival.after, arrival.job.name)))


def _drawn(path: Path, *, seed: int) -> list[Arrival]:
    """The jobs of a profile; its backlog is the time over which they arrive."""
    profile = load_workload_profile(path)
    if not profile.backlog:
        message = "has no backlog; expected the time over which its jobs arrive, such as backlog: 1d."
        raise BadInputError((InputProblem(str(path), message),))
    waiting = generate_snapshot(profile.model_copy(update={"running": RunningPart(gpu_ratio=0.0)}), seed=seed)
    return [
        Arrival(
            after=profile.backlog - int((waiting.taken_at - job.submitted_at).total_seconds()),
            # The prefix prevents name clashes with a snapshot generated from the same profile.
            job=job.model_copy(update={"name": f"new-{job.name}"}),
            duration=max(1, job.expected_duration or 0),
        )
        for job in waiting.jobs
    ]


def _from_first(jobs: Iterable[Job]) -> list[Arrival]:
    """Jobs of a trace that starts with the first submission; an unknown duration becomes the median."""
    jobs = list(jobs)
    first = min((job.submitted_at for job in jobs), default=None)
    known = sorted(job.expected_duration for job in jobs if job.expected_duration is not None)
    usual = known[len(known) // 2] if known else 1
    return [
        Arrival(
            after=0 if first is None else int((job.submitted_at - first).total_seconds()),
            job=job,
            duration=max(1, usual if job.expected_duration is None else job.expected_duration),
        )
        for job in jobs
    ]


def _columns(path: Path) -> set[str]:
    """Column names in the header of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return {name.strip() for name in file.readline().split(",")}
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"cannot be read: {reason}.\n{_EXPECTED}"
        raise BadInputError((InputProblem(str(path), message),)) from None


_EXPECTED: Final = (
    f"  Give an openb pod list (CSV with {truncated_names(POD_COLUMNS)}), a Philly job list (CSV with "
    f"{truncated_names(_PHILLY_COLUMNS)}), or a workload profile (YAML)."
)


def _neither(path: Path, columns: set[str]) -> InputProblem:
    found = truncated_names(sorted(filter(None, columns))[:6]) or "none"
    return InputProblem(f"{path}:1", f"has columns that no known trace has: {found}.\n{_EXPECTED}")


# The Philly trace, from a cluster for deep learning at Microsoft.
#
# Each line is a job: submission time, duration in seconds, number of GPUs, and the virtual cluster, which
# becomes its queue. The trace has no CPU and memory data. Described in Jeon et al., "Analysis of Large-Scale
# Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.


# The most replicas of a gang (`AtLeastOne` of models/units.py).
_MOST_GPUS_OF_A_JOB: Final = 100_000


def _philly_jobs(file: CsvFile, widest: int) -> Iterator[Job]:
    for row in file.rows(*_PHILLY_COLUMNS):
        gpus = row.whole("num_gpus", most=_MOST_GPUS_OF_A_JOB)
        each = _per_replica(gpus, widest)
        replicas = gpus // each if each else 1
        yield Job(
            name=f"philly-{row.line - 1:06d}",
            queue=row.name("cluster"),
            request=ResourceRequest(gpus=each),
            gang=Gang(minimum=replicas, maximum=replicas),
            submitted_at=_submitted(row),
            expected_duration=_seconds(row),
        )


def _per_replica(gpus: int, widest: int) -> int:
    """GPUs per replica: the largest divisor of `gpus` up to `widest`, so that all replicas are equal."""
    return max((size for size in range(1, min(gpus, widest) + 1) if gpus % size == 0), default=0)


def _submitted(row: CsvRow) -> datetime:
    """Submission time; the trace has no time zone, so UTC is assumed."""
    try:
        return datetime.fromisoformat(row.text("timestamp")).replace(tzinfo=UTC)
    except ValueError:
        row.complain("timestamp", "a time such as 2017-10-09 07:01:55")
        return datetime(2017, 1, 1, tzinfo=UTC) + timedelta(seconds=row.line)


def _seconds(row: CsvRow) -> int:
    try:
        seconds = float(row.text("duration"))
    except ValueError:
        seconds = math.nan
    if 0 <= seconds <= LONGEST_SECONDS:
        return math.ceil(seconds)
    row.complain("duration", f"seconds from 0 to {LONGEST_SECONDS}")
    return 0


# Outages: when nodes fail and when they return, from a CSV file.


_COLUMNS: Final = ("second", "node", "event")


class NodeEvent(StrEnum):
    """An event of a node."""

    FAILS = "fails"
    RETURNS = "returns"


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that fails or returns."""

    after: int
    """Seconds from the start of the simulation."""
    node: str
    event: NodeEvent


def read_outages(path: Path, cluster: Cluster) -> tuple[Outage, ...]:
    """
    Read which nodes of a cluster fail and return, by time and node.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    file = CsvFile(
        path, what="a list of outages, such as one with the lines second,node,event and 3600,n0,fails"
    )
    found = file.read(_outages(file, cluster))
    return tuple(sorted(found, key=lambda outage: (outage.after, outage.node, outage.event)))


def _outages(file: CsvFile, cluster: Cluster) -> Iterator[Outage]:
    names = cluster.node_by_name
    for row in file.rows(*_COLUMNS):
        node = row.name("node")
        if node not in names and "node" not in row.faulty:
            row.complain("node", f"a node of the cluster ({truncated_names(names) or 'it has none'})")
        yield Outage(after=row.whole("second", most=LONGEST_SECONDS), node=node, event=_event(row))


def _event(row: CsvRow) -> NodeEvent:
    try:
        return NodeEvent(row.text("event"))
    except ValueError:
        row.complain("event", "fails or returns")
        return NodeEvent.FAILS
