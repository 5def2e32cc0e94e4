"""
Contention: demand for GPUs relative to the cluster's GPUs while a job is in the system, for fairness.

Finish-time fairness (Mahajan et al., Themis, NSDI 2020) compares a job's time in the system with its time in
a dedicated cluster that is smaller by the average contention N. Here N is averaged over the job's own stay,
as in Shockwave (Zheng et al., NSDI 2023), and is counted in GPUs, since jobs differ in size:

    ρ_j = (end_j − submitted_j) / (exclusive duration_j · max(1, N_j))
    N_j = mean over the stay of Σ_k GPUs that the jobs k then in the system ask for / GPUs of the cluster

A job with ρ > 1 would have finished earlier with an equal share.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.job import Job

UNFAIR: Final = 1.05
"""A job with a ρ above this counts as unfairly treated (Shockwave's threshold)."""


def demand_of(job: Job) -> int:
    """Thousandths of GPUs that a job requests at full size."""
    return job.request.total_gpu_milli * job.gang.maximum


class Contention:
    """Demand for GPUs over time, from the arrival and departure of each job."""

    def __init__(self, stays: Iterable[tuple[datetime, datetime | None, int]], gpu_milli: float) -> None:
        """`stays` are (arrival, departure, demand) of jobs; `gpu_milli` is the average capacity."""
        changes: dict[datetime, int] = {}
        for came, gone, demand in stays:
            changes[came] = changes.get(came, 0) + demand
            if gone is not None:
                changes[gone] = changes.get(gone, 0) - demand
        self._gpu_milli = gpu_milli
        self._times = sorted(changes)
        self._demand = list(accumulate(changes[at] for at in self._times))
        spans = ((later - at).total_seconds() for at, later in pairwise(self._times))
        asked = (demand * span for demand, span in zip(self._demand, spans, strict=False))
        self._before = list(accumulate(asked, initial=0.0))

    def mean(self, begin: datetime, end: datetime) -> float:
        """N between two times; 0 without GPUs."""
        seconds = (end - begin).total_seconds()
        if seconds <= 0 or self._gpu_milli <= 0:
            return 0.0
        return (self._asked(end) - self._asked(begin)) / seconds / self._gpu_milli

    def _asked(self, until: datetime) -> float:
        """Demand up to a time, in thousandths of GPUs times seconds."""
        index = bisect_right(self._times, until) - 1
        if index < 0:
            return 0.0
        return self._before[index] + self._demand[index] * (until - self._times[index]).total_seconds()
