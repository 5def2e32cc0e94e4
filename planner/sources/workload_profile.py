"""
WorkloadProfile: the figures from which the generator makes a cluster and its jobs.

Tables of shapes with counts fix the amount of everything exactly. The seed only decides the order of the
jobs, their queues and users, and the nodes of the running jobs. docs/scenarios.md describes the format.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from gpuplan.models.affinity import (
    AntiAffinity,
    LocalityPreference,
    NodeMatch,
    PreferredNodes,
    Spread,
    Toleration,
)
from gpuplan.models.base import Noun
from gpuplan.models.cluster import Cluster, Dataset, Node, NodePool, Overcommit, QosClass, RackPower
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import LARGEST_COUNT, MILLI, Count, Label, Milli, Name, Seconds, Timestamp
from gpuplan.models.validation.checks import inconsistencies

# JobShape: the common properties of the jobs of one entry of a workload profile.


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


# The profile itself.


_Many = Annotated[int, Field(strict=True, ge=1, le=LARGEST_COUNT)]
_Share = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]
"""A weight relative to the other entries of the same list."""

_Ratio = Annotated[float, Field(ge=0, le=1)]


class NodeShape(Noun):
    """A number of equal nodes."""

    count: _Many
    node: Node
    """The template; its name is the prefix of the nodes' names, and rack and zone come from the layout."""
    draining: Count = 0
    """The last nodes, as many as this, are to be drained; their jobs were started before."""

    @model_validator(mode="after")
    def _not_more_than_there_are(self) -> NodeShape:
        if self.draining > self.count:
            raise ValueError(f"expected at most {self.count} draining nodes, found {self.draining}")
        return self


class RackLayout(Noun):
    """Assignment of nodes to racks and zones, in the order of the shapes; each shape begins a new rack."""

    region: Label = ""
    """Region of nodes if their shape has none."""
    nodes_per_rack: _Many = 16
    racks_per_zone: _Many = 32


class PriorityShare(Noun):
    """Share of a queue's jobs that have a priority."""

    share: _Share
    priority: Annotated[int, Field(strict=True, ge=0, le=10_000)]
    preemptible: bool = True


class QueueShape(Noun):
    """A queue, and the users and priorities of its jobs."""

    queue: Queue
    share: _Share = 0
    """Share of the jobs in this queue; 0 for a queue that only has child queues."""
    users: _Many = 1
    priorities: tuple[PriorityShare, ...] = (PriorityShare(share=1, priority=0),)


class ModelChoice(Noun):
    """Share of the jobs that allow only these GPU models."""

    share: _Share
    gpu_models: GpuModels = Field(default_factory=dict)
    """Empty: the job may use any model."""


class DurationBand(Noun):
    """Share of the jobs with a duration between two bounds; all minutes in between are equally likely."""

    share: _Share
    shortest: Annotated[Seconds, Field(ge=60)]
    longest: Annotated[Seconds, Field(ge=60)]

    @model_validator(mode="after")
    def _in_order(self) -> DurationBand:
        if self.shortest > self.longest:
            raise ValueError("expected shortest <= longest")
        return self


class RunningPart(Noun):
    """The part of the workload that already runs in the snapshot."""

    gpu_ratio: _Ratio
    """Part of the cluster's GPUs that running jobs hold; no job is started once it is reached."""
    ended_ratio: _Ratio = 0.0
    """Ended jobs per running job: they ran beside the running jobs, and their places are free now."""
    longest_wait: Seconds = 0
    """Longest time that running jobs waited before they started."""
    oldest_checkpoint: Seconds = 0
    """Age limit of the last checkpoint of running jobs that ran long enough; 0: no job has a checkpoint."""


class WorkloadProfile(Noun):
    """All input of the generator except the seed."""

    format_version: Literal["1.0"] = "1.0"
    name: Name
    taken_at: Timestamp
    nodes: tuple[NodeShape, ...] = Field(min_length=1)
    layout: RackLayout = Field(default_factory=RackLayout)
    pools: tuple[NodePool, ...] = ()
    overcommit: dict[QosClass, Overcommit] = Field(default_factory=dict)
    datasets: tuple[Dataset, ...] = ()
    rack_power: tuple[RackPower, ...] = ()
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
    def _all_of_it_is_consistent(self) -> WorkloadProfile:
        names = [shape.node.name for shape in self.nodes]
        if twice := [name for index, name in enumerate(names) if name in names[:index]]:
            raise ValueError(f"node '{twice[0]}' is given a second time; expected each node once")
        queue = next(shape.queue.name for shape in self.queues if shape.share)
        drawn = [
            shape.apply_to(Job(name=f"jobs-{number}", queue=queue, submitted_at=self.taken_at))
            for number, shape in enumerate(self.jobs)
        ]
        described = self.without_jobs().model_copy(update={"jobs": tuple(drawn)})
        if found := [problem.message for problem in inconsistencies(described)]:
            raise ValueError("\n".join(found).removesuffix("."))
        return self

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs in the whole cluster."""
        return MILLI * sum(shape.count * shape.node.gpu_count for shape in self.nodes)

    def without_jobs(self) -> Snapshot:
        """The snapshot without jobs: the cluster and the queues."""
        cluster = Cluster(
            name=self.name,
            nodes=self._lay_out(),
            pools=self.pools,
            overcommit=self.overcommit,
            datasets=self.datasets,
            rack_power=self.rack_power,
        )
        return Snapshot(
            taken_at=self.taken_at, cluster=cluster, queues=tuple(shape.queue for shape in self.queues)
        )

    def _lay_out(self) -> tuple[Node, ...]:
        """All nodes with their names, racks and zones; a rack holds nodes of one shape."""
        nodes: list[Node] = []
        layout, rack = self.layout, 0
        for shape in self.nodes:
            width = len(str(shape.count))
            for number in range(shape.count):
                if number % layout.nodes_per_rack == 0:
                    rack += 1
                place = {
                    "name": f"{shape.node.name}-{number + 1:0{width}d}",
                    "region": shape.node.region or layout.region,
                    "zone": f"z{(rack - 1) // layout.racks_per_zone + 1}",
                    "rack": f"r{rack:03d}",
                }
                nodes.append(shape.node.model_copy(update=place))
        return tuple(nodes)
