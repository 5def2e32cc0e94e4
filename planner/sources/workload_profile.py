"""
WorkloadProfile: the figures from which the generator makes a cluster and its queue.

Tables of shapes by count say how much there is of everything, exactly; the seed only decides which job comes
when, from whom, and where the running ones stand. docs/scenarios.md describes the format.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.models.base import Noun
from planner.models.cluster import Cluster, Node
from planner.models.consistency import inconsistencies
from planner.models.job import ResourceRequest
from planner.models.queue import Queue
from planner.models.snapshot import Snapshot
from planner.models.units import LARGEST_COUNT, MILLI, Label, Name, Seconds, Timestamp

_Many = Annotated[int, Field(strict=True, ge=1, le=LARGEST_COUNT)]
_Share = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]
"""A part relative to the other parts of the same list."""

_Ratio = Annotated[float, Field(ge=0, le=1)]


class NodeShape(Noun):
    """So many equal nodes."""

    count: _Many
    node: Node
    """Its name is the prefix of the nodes' names; rack and zone come from the layout."""


class Layout(Noun):
    """How nodes stand in racks and zones: in the order of the shapes, each shape beginning a new rack."""

    region: Label = ""
    nodes_per_rack: _Many = 16
    racks_per_zone: _Many = 32


class JobShape(Noun):
    """So many jobs with equal requests."""

    count: _Many
    request: ResourceRequest
    replicas: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1
    gpu_models: tuple[Name, ...] = ()
    """Allowed GPU models; empty leaves it to the profile's `model_choices`."""
    queues: tuple[Name, ...] = ()
    """Queues the jobs may come from; empty is every queue with a share."""

    @model_validator(mode="after")
    def _without_mig(self) -> JobShape:
        if self.request.mig:
            raise ValueError("expected whole GPUs or a share of one, found mig")
        return self


class PriorityShare(Noun):
    """How often jobs of a queue have a priority."""

    share: _Share
    priority: Annotated[int, Field(strict=True, ge=0, le=10_000)]
    preemptible: bool = True


class QueueShape(Noun):
    """A queue, and who submits to it."""

    queue: Queue
    share: _Share = 0
    """How many of the jobs come from here; 0 for a queue that only holds others."""
    users: _Many = 1
    priorities: tuple[PriorityShare, ...] = (PriorityShare(share=1, priority=0),)


class ModelChoice(Noun):
    """How often a job names these GPU models as the only ones it may use."""

    share: _Share
    gpu_models: tuple[Name, ...] = ()
    """Empty: the job may use any."""


class DurationBand(Noun):
    """How often a job's duration is between two bounds; within them all minutes are equally likely."""

    share: _Share
    shortest: Annotated[Seconds, Field(ge=60)]
    longest: Annotated[Seconds, Field(ge=60)]

    @model_validator(mode="after")
    def _in_order(self) -> DurationBand:
        if self.shortest > self.longest:
            raise ValueError("expected shortest <= longest")
        return self


class RunningPart(Noun):
    """What already runs when the snapshot is taken."""

    gpu_ratio: _Ratio
    """Part of the cluster's GPUs that running jobs hold; no more jobs are started once it is reached."""
    ended_ratio: _Ratio = 0.0
    """Jobs that ran beside the running ones and have ended, for each running one: they left holes."""
    longest_wait: Seconds = 0
    """Running jobs waited at most this long before they started."""


class WorkloadProfile(Noun):
    """Everything the generator is told, the seed apart."""

    format_version: Literal["1.0"] = "1.0"
    name: Name
    taken_at: Timestamp
    nodes: tuple[NodeShape, ...] = Field(min_length=1)
    layout: Layout = Field(default_factory=Layout)
    queues: tuple[QueueShape, ...] = Field(min_length=1)
    jobs: tuple[JobShape, ...]
    model_choices: tuple[ModelChoice, ...] = (ModelChoice(share=1),)
    durations: tuple[DurationBand, ...] = (DurationBand(share=1, shortest=3600, longest=3600),)
    backlog: Seconds = 0
    """Waiting jobs were submitted within this time before the snapshot."""
    running: RunningPart = Field(default_factory=lambda: RunningPart(gpu_ratio=0.0))

    @model_validator(mode="after")
    def _something_to_draw_from(self) -> WorkloadProfile:
        lists: dict[str, tuple[QueueShape | ModelChoice | DurationBand | PriorityShare, ...]] = {
            "queues": self.queues,
            "model_choices": self.model_choices,
            "durations": self.durations,
            **{f"priorities of queue '{shape.queue.name}'": shape.priorities for shape in self.queues},
        }
        for name, entries in lists.items():
            if not any(entry.share for entry in entries):
                raise ValueError(f"expected a share above 0 in {name}, found none")
        return self

    @model_validator(mode="after")
    def _jobs_come_from_somewhere(self) -> WorkloadProfile:
        sharing = {shape.queue.name for shape in self.queues if shape.share}
        for number, shape in enumerate(self.jobs):
            if without := sorted(set(shape.queues) - sharing):
                found = ", ".join(without)
                raise ValueError(f"expected queues with a share in jobs[{number}].queues, found {found}")
        return self

    @model_validator(mode="after")
    def _nodes_and_queues_are_consistent(self) -> WorkloadProfile:
        described = self.without_jobs(tuple(shape.node for shape in self.nodes))
        if found := [problem.message for problem in inconsistencies(described)]:
            raise ValueError("\n".join(found).removesuffix("."))
        return self

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs in the whole cluster."""
        return MILLI * sum(shape.count * shape.node.gpu_count for shape in self.nodes)

    def without_jobs(self, nodes: tuple[Node, ...]) -> Snapshot:
        """The snapshot before any job: these nodes, and the queues."""
        return Snapshot(
            taken_at=self.taken_at,
            cluster=Cluster(name=self.name, nodes=nodes),
            queues=tuple(shape.queue for shape in self.queues),
        )
