"""
Arrivals: jobs that are submitted one after the other, each with its true duration.

They come from a trace, or are drawn from a workload profile. The simulation decides which durations the
planner is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError, InputProblem, truncated_names
from gpuplan.planner.sources.documents.documents import JSON_SUFFIX, YAML_SUFFIXES
from gpuplan.planner.sources.synthetic.synthetic import generate_snapshot, load_workload_profile
from gpuplan.planner.sources.synthetic.workload_profile import RunningPart
from gpuplan.planner.sources.traces.openb import POD_COLUMNS, read_openb_pods
from gpuplan.planner.sources.traces.philly import PHILLY_COLUMNS, read_philly

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import Job

_MOST_GPUS: Final = 8
"""GPUs of one replica at most, if the cluster has no GPUs."""


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
        if columns >= set(PHILLY_COLUMNS):
            widest = max((node.gpu_count for node in cluster.nodes), default=0) or _MOST_GPUS
            found = _from_first(read_philly(path, widest=widest))
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
    f"{truncated_names(PHILLY_COLUMNS)}), or a workload profile (YAML)."
)


def _neither(path: Path, columns: set[str]) -> InputProblem:
    found = truncated_names(sorted(filter(None, columns))[:6]) or "none"
    return InputProblem(f"{path}:1", f"has columns that no known trace has: {found}.\n{_EXPECTED}")
