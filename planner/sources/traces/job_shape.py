"""JobShape: the common properties of the jobs of one entry of a workload profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, Field

from gpuplan.models.base import Noun
from gpuplan.models.cluster import QosClass
from gpuplan.models.gang import Gang
from gpuplan.models.job import (
    AntiAffinity,
    LocalityPreference,
    NodeMatch,
    PreferredNodes,
    ResourceRequest,
    Spread,
    Toleration,
)
from gpuplan.models.units import LARGEST_COUNT, Label, Milli, Name

if TYPE_CHECKING:
    from gpuplan.models.job import Job


def _equal_speeds(data: Any) -> Any:
    """A list of models means equal speeds, as in a job."""
    named = isinstance(data, list | tuple) and all(isinstance(model, str) for model in data)
    return dict.fromkeys(data, 1) if named else data


GpuModels = Annotated[dict[Name, Annotated[Milli, Field(ge=1)]], BeforeValidator(_equal_speeds)]
"""Allowed GPU models with their speeds, or a list of equally fast models."""


class JobShape(Noun):
    """A number of jobs with equal requests; the fields after `queues` are those of a job."""

    count: Annotated[int, Field(strict=True, ge=1, le=LARGEST_COUNT)]
    request: ResourceRequest
    gang: Gang = Field(default_factory=Gang, alias="replicas")
    gpu_models: GpuModels = Field(default_factory=dict)
    """Allowed GPU models; if empty, the profile's `model_choices` decide."""
    queues: tuple[Name, ...] = ()
    """Queues that the jobs may be in; empty means every queue with a share."""
    node_selector: dict[Name, Label] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[NodeMatch, ...] = ()
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    regions: tuple[Label, ...] = ()
    locality: LocalityPreference = Field(default_factory=LocalityPreference)
    spread: Spread | None = None
    anti_affinity: tuple[AntiAffinity, ...] = ()
    datasets: tuple[Name, ...] = ()
    workload_class: Name = "default"
    qos: QosClass = QosClass.GUARANTEED
    time_slicing: bool = False
    labels: dict[Name, Label] = Field(default_factory=dict)

    def apply_to(self, job: Job) -> Job:
        """The job with all fields of the shape."""
        return job.model_copy(update={field: getattr(self, field) for field in _OF_THE_JOB})


_OF_THE_JOB: Final = tuple(field for field in JobShape.model_fields if field not in ("count", "queues"))
