"""Submission: new jobs in one document."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.job import Job


class JobBatch(Noun):
    """Waiting jobs that are new to a cluster."""

    jobs: tuple[Job, ...] = Field(min_length=1)
