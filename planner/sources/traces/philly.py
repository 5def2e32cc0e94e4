"""
Jobs of the Philly trace, from a cluster for deep learning at Microsoft.

Each line is a job: submission time, duration in seconds, number of GPUs, and the virtual cluster, which
becomes its queue. The trace has no CPU and memory data. Described in Jeon et al., "Analysis of Large-Scale
Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.planner.sources.traces.csv_rows import CsvFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuplan.planner.sources.traces.csv_rows import CsvRow

PHILLY_COLUMNS: Final = ("timestamp", "duration", "num_gpus", "cluster")

_MOST_GPUS: Final = 100_000
_LONGEST: Final = 100 * 366 * 24 * 3600
"""Seconds; equal to the largest duration of a document."""


def read_philly(path: Path, *, widest: int) -> tuple[Job, ...]:
    """
    Read a job list of the trace, in the order of the file; a replica has at most `widest` GPUs.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    file = CsvFile(path, what="a job list of the trace, such as philly_jobs.csv")
    found = tuple(_jobs(file, widest))
    if problems := file.all_problems():
        raise BadInputError(problems)
    return found


def _jobs(file: CsvFile, widest: int) -> Iterator[Job]:
    for row in file.rows(*PHILLY_COLUMNS):
        gpus = row.whole("num_gpus", most=_MOST_GPUS)
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
    if 0 <= seconds <= _LONGEST:
        return math.ceil(seconds)
    row.complain("duration", f"seconds from 0 to {_LONGEST}")
    return 0
