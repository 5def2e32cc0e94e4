"""Selectors for the nodes and jobs of a scenario's change: all given conditions must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import AtLeastOne, Label, Name

if TYPE_CHECKING:
    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job


class _Choice(Noun):
    """Conditions; at least one must be given, so that a mistake does not select everything."""

    @model_validator(mode="before")
    @classmethod
    def _chooses(cls, data: Any) -> Any:
        known = {field.alias or name for name, field in cls.model_fields.items()} - {"count"}
        if isinstance(data, dict) and not known & data.keys() and not data.keys() - {"count"}:
            raise ValueError(f"expected at least one of {', '.join(sorted(known))}")
        return data


class NodeChoice(_Choice):
    """Selects nodes of the cluster."""

    names: tuple[Name, ...] = ()
    """Nodes with one of these names; each must exist."""
    rack: Label | None = None
    """Nodes of this rack."""
    zone: Label | None = None
    """Nodes of this zone."""
    region: Label | None = None
    """Nodes of this region."""
    pool: Name | None = None
    """Nodes of this pool."""
    gpu_model: Name | None = None
    """Nodes with GPUs of this model."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Nodes with all of these labels."""
    every: bool = Field(default=False, alias="all")
    """True: every node that meets the other conditions."""
    count: AtLeastOne | None = None
    """Number of nodes to select, the first by name; if absent, all of them."""

    def holds(self, node: Node) -> bool:
        """True if the node meets all conditions."""
        places = ((self.rack, node.rack), (self.zone, node.zone), (self.region, node.region))
        kinds = ((self.pool, node.pool), (self.gpu_model, node.gpu_model))
        return (
            (not self.names or node.name in self.names)
            and all(wanted in (None, found) for wanted, found in (*places, *kinds))
            and self.labels.items() <= node.labels.items()
        )


class JobChoice(_Choice):
    """Selects running or waiting jobs."""

    names: tuple[Name, ...] = ()
    """Jobs with one of these names; each must exist."""
    queue: Name | None = None
    """Jobs of this queue."""
    user: Name | None = None
    """Jobs of this user."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Jobs with all of these labels."""
    waiting: bool = False
    """True: only waiting jobs."""

    def holds(self, job: Job) -> bool:
        """True if the job meets all conditions."""
        return (
            (not self.names or job.name in self.names)
            and self.queue in (None, job.queue)
            and self.user in (None, job.user)
            and self.labels.items() <= job.labels.items()
            and not (self.waiting and job.running)
        )
