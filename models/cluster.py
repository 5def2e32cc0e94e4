"""Cluster, Node and Gpu: the hardware and its place in the locality tree."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from functools import cached_property
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Field, field_validator, model_validator

from gpuplan.models.base import Noun, canonical_list, canonical_object
from gpuplan.models.calendar import Reservation, Tariff
from gpuplan.models.plan.action_kinds import ActionKind, ChangingKind
from gpuplan.models.units import MILLI, Count, Label, Mib, Milli, Name, Seconds, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_GPUS: Final = 128
"""GPUs of one node."""


class Level(StrEnum):
    """A level of the locality tree, narrowest first."""

    NODE = "node"
    NVLINK_ISLAND = "nvlink_island"
    RACK = "rack"
    ZONE = "zone"
    REGION = "region"


class TaintEffect(StrEnum):
    """Effect of a taint on jobs that do not tolerate it (Kubernetes' terms)."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(Noun):
    """A mark on a node that excludes jobs without a matching toleration."""

    key: Name
    """Name of the taint."""
    value: Label = ""
    """Value of the taint, which a toleration may name."""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    """Effect on jobs that do not tolerate the taint."""


class MigInstance(Noun):
    """One MIG instance: its profile and the first memory slice it occupies."""

    profile: Name
    """MIG profile, such as `3g.40gb`."""
    start: Annotated[int, Field(ge=0, le=7)]
    """First memory slice that the instance occupies."""


class Gpu(Noun):
    """State of one GPU that differs from the default (healthy, MIG mode off)."""

    index: Annotated[int, Field(ge=0, le=MOST_GPUS - 1)]
    """Index of the GPU on its node, from 0."""
    uuid: Label = Field(default="", exclude_if=not_)
    """Identity of the GPU, such as `GPU-5f1c…`; empty if unknown."""
    healthy: bool = True
    """False: no job may start on this GPU."""
    fault: Label = Field(default="", exclude_if=not_)
    """What makes the GPU unhealthy, for people; empty if it is healthy or the cause is unknown."""
    mig: tuple[MigInstance, ...] | None = None
    """MIG instances present; an empty list means MIG mode on without instances, absent means MIG mode off."""
    numa: Annotated[int, Field(ge=0, le=63)] | None = None
    """NUMA node that the GPU is attached to."""
    nvlink: Annotated[int, Field(ge=0, le=63)] | None = None
    """Number of an NVLink group: GPUs of the node with the same number are joined by NVLink."""

    @model_validator(mode="after")
    def _a_fault_is_of_an_unhealthy_gpu(self) -> Gpu:
        if self.fault and self.healthy:
            raise ValueError(f"expected a fault only with healthy: false, found {self.fault!r}")
        return self


_PLAIN: Final = tuple(Gpu(index=index) for index in range(MOST_GPUS))
"""GPUs in the default state, shared by all nodes."""


class NodeGpus(Noun):
    """The GPUs of one node, all of one model."""

    model: Name
    """GPU model, such as `H100-80GB`; jobs and quotas name it."""
    count: Annotated[int, Field(strict=True, ge=1, le=MOST_GPUS)]
    """GPUs of the node, healthy or not."""
    memory_mib: Mib = 0
    """Memory of one GPU in MiB; 0 is unknown: requests for GPU memory then do not match."""
    details: tuple[Gpu, ...] = ()
    """GPUs that differ from the default (healthy, MIG mode off); all others need no entry."""
    time_sliced: bool = False
    """True: GPU shares take turns without isolation, so only jobs that allow time-slicing may share a GPU."""
    pinned: bool = Field(default=True, exclude_if=bool)
    """
    False: the cluster can be told how many GPUs of the node a job gets, but not which. Their indices in plans
    are then expected, not certain, and no job that needs GPUs starts here while one of them is unhealthy.
    """
    watts: Count = 0
    """Power of one GPU under load in watts; 0 means that it does not count against power caps."""

    @cached_property
    def by_index(self) -> dict[int, Gpu]:
        """Every GPU by index; GPUs without an entry are in the default state."""
        given = {gpu.index: gpu for gpu in self.details}
        return {index: given.get(index, _PLAIN[index]) for index in range(self.count)}

    @cached_property
    def may_be_unhealthy(self) -> bool:
        """True if a job may be given an unhealthy GPU, since the cluster chooses the GPUs."""
        return not self.pinned and any(not gpu.healthy for gpu in self.details)


_PLAIN_GPUS: Final[dict[NodeGpus, NodeGpus]] = {}
"""Interned GPU descriptions without details: ten thousand nodes have few distinct ones."""


class Node(Noun):
    """One machine of the cluster and its allocatable resources (net of system reservations)."""

    name: Name
    """Name of the node, unique in the cluster."""
    gpus: NodeGpus | None = None
    """GPUs of the node; absent if it has none."""
    cpu_milli: Milli = Field(default=0, alias="cpus")
    """CPU cores that jobs may use."""
    memory_mib: Mib = 0
    """Memory that jobs may use, in MiB."""
    disk_mib: Mib = 0
    """Local disk that jobs may use, in MiB."""
    resources: dict[Name, Count] = Field(default_factory=dict)
    """Further countable resources by name, such as `rdma/hca: 8`."""
    region: Label = ""
    """Region of the node; empty if regions are not used."""
    zone: Label = ""
    """Zone within the region; empty if zones are not used."""
    rack: Label = ""
    """Rack within the zone; empty if racks are not used."""
    nvlink_island: Label = ""
    """NVLink island within the rack; empty if the node is in none."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Labels that jobs select nodes by."""
    taints: tuple[Taint, ...] = ()
    """Taints that exclude jobs without a matching toleration."""
    pool: Name | None = None
    """Node pool that the node belongs to; absent if none."""
    price_per_hour: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of the node, in the cluster's currency an hour."""
    spot: bool = False
    """True: the provider may interrupt the node."""
    cordoned: bool = False
    """True: no job may start here; running jobs continue."""
    drain: bool = False
    """True: no job may start here, and running jobs should leave."""
    ready: bool = True
    """False: the node is down, and no job can run here."""
    state_reason: Label = Field(default="", exclude_if=not_)
    """Why it is cordoned, to be drained or down, as its operators say; empty if they gave no reason."""
    ready_at: Timestamp | None = None
    """Time at which a node that is being provisioned becomes ready: jobs started here run from then on."""
    power_cap_watts: Count = 0
    """Most power that the node's GPUs may draw together, in watts; 0 is no cap."""

    @field_validator("gpus")
    @classmethod
    def _equal_ones_are_one(cls, gpus: NodeGpus | None) -> NodeGpus | None:
        return gpus if gpus is None or gpus.details else _PLAIN_GPUS.setdefault(gpus, gpus)

    @property
    def gpu_count(self) -> int:
        """GPUs in the node, healthy or not."""
        return self.gpus.count if self.gpus else 0

    @property
    def gpu_model(self) -> str | None:
        """Model of the node's GPUs; None if it has none."""
        return self.gpus.model if self.gpus else None

    @property
    def schedulable(self) -> bool:
        """True if jobs may start here."""
        return self.ready and not self.cordoned and not self.drain

    def as_new(self) -> Node:
        """The node as if newly delivered: healthy, schedulable and in no NVLink island."""
        gpus = self.gpus
        if gpus is not None:
            new = {"uuid": "", "healthy": True, "fault": ""}
            details = tuple(gpu.model_copy(update=new) for gpu in gpus.details)
            gpus = gpus.model_copy(update={"details": details})
        usable = {"cordoned": False, "drain": False, "ready": True, "state_reason": "", "ready_at": None}
        return self.model_copy(update={"gpus": gpus, "nvlink_island": "", **usable})

    def domain(self, level: Level) -> tuple[str, ...] | None:
        """
        Path of the node's domain at a level, widest first, so that equal rack names in two zones differ.

        None if the node has no such domain (no island, or an empty level).
        """
        path = (self.region, self.zone, self.rack, self.nvlink_island, self.name)
        depth = {Level.REGION: 1, Level.ZONE: 2, Level.RACK: 3, Level.NVLINK_ISLAND: 4, Level.NODE: 5}[level]
        return path[:depth] if path[depth - 1] else None


class NodePool(Noun):
    """Equal nodes that can be added and removed, such as a cloud autoscaling group."""

    name: Name
    """Name of the pool."""
    template: Node
    """Description of a new node; its name is the prefix of new node names, and new nodes have its price."""
    names: tuple[Name, ...] = ()
    """
    Names that nodes of the pool may have, such as those of machines that can be powered up; empty means any.
    """
    minimum: Count = Field(default=0, alias="min")
    """Minimum number of nodes."""
    maximum: Count = Field(alias="max")
    """Maximum number of nodes."""
    provisioning: Seconds = 0
    """Time from ordering a node until it accepts jobs."""
    interruptions_per_hour: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Expected interruptions of a spot node, per hour."""
    node_added_at: Timestamp | None = None
    """Time at which a node was last added to the pool; absent if never or unknown."""
    node_removed_at: Timestamp | None = None
    """Time at which a node was last removed from the pool; absent if never or unknown."""

    @model_validator(mode="after")
    def _in_order(self) -> NodePool:
        if self.minimum > self.maximum:
            raise ValueError(f"expected min <= max, found min {self.minimum} and max {self.maximum}")
        if self.names and (found := len(set(self.names))) < self.maximum:
            raise ValueError(f"expected a name for each of max {self.maximum} nodes, found {found}")
        if self.template.pool not in (None, self.name):
            raise ValueError(f"expected a template in pool {self.name}, found pool {self.template.pool}")
        return self

    def with_scaling_times_of(self, other: NodePool) -> NodePool:
        """The pool with the times of the last scale-up and scale-down of another pool."""
        times = {"node_added_at": other.node_added_at, "node_removed_at": other.node_removed_at}
        return self.model_copy(update=times)


class QosClass(StrEnum):
    """How firmly CPU and memory requests of a job are guaranteed (Kubernetes' terms)."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BEST_EFFORT = "best_effort"


class Overcommit(Noun):
    """Overcommit ratios of CPU and memory for jobs of one QoS class."""

    cpu_milli: Annotated[Milli, Field(ge=MILLI)] = Field(default=MILLI, alias="cpus")
    """
    Ratio of requested to available CPUs that a node may have.
    """
    memory_milli: Annotated[Milli, Field(ge=MILLI)] = Field(default=MILLI, alias="memory")
    """
    Ratio of requested to available memory that a node may have.
    """


class Dataset(Noun):
    """A data set and the cost to read it from each zone."""

    name: Name
    """Name of the data set."""
    zones: dict[Label, Annotated[float, Field(ge=0, le=1e6)]] = Field(default_factory=dict)
    """Cost for one replica that reads it from a node of the zone, in the cluster's currency."""
    elsewhere: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Cost from any other zone."""
    available_at: Timestamp | None = None
    """Time at which the data is available: no job that reads it starts earlier; absent means now."""


class RackPower(Noun):
    """A cap on the power that all GPUs of one rack may draw together."""

    rack: Label
    """Rack that the cap is for."""
    zone: Label = ""
    """Zone of the rack."""
    region: Label = ""
    """Region of the rack."""
    watts: Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
    """Most power that all GPUs of the rack may draw together, in watts."""


Rack: TypeAlias = tuple[str, str, str]
"""(region, zone, rack name): racks of two zones may have the same name."""


def rack_of(where: Node | RackPower) -> Rack:
    """The rack of a node or of a power cap."""
    return where.region, where.zone, where.rack


def rack_path(where: Node | RackPower) -> str:
    """A rack with its region and zone, such as `eu/z1/r12`."""
    return "/".join(part for part in rack_of(where) if part)


class Cluster(Noun):
    """All nodes of one snapshot, with the settings that apply to several nodes."""

    name: Name = "cluster"
    """Name of the cluster, as reports print it."""
    nodes: tuple[Node, ...]
    """All nodes, in any order."""
    pools: tuple[NodePool, ...] = ()
    """Node pools that may grow and shrink."""
    overcommit: dict[QosClass, Overcommit] = Field(default_factory=dict)
    """Overcommit of CPU and memory by QoS class; guaranteed jobs always count in full."""
    datasets: tuple[Dataset, ...] = ()
    """Data sets that jobs refer to in `datasets`, with the cost to read them from each zone."""
    rack_power: tuple[RackPower, ...] = ()
    """Power caps of single racks."""
    reservations: tuple[Reservation, ...] = ()
    """Nodes set aside for certain jobs or for maintenance during some time."""
    tariffs: tuple[Tariff, ...] = ()
    """Prices of a GPU-hour by time of day."""
    can: tuple[ChangingKind, ...] | None = Field(default=None, exclude_if=not_)
    """
    Kinds of action that the cluster can carry out, `release` and `start` among them: plans have no others.
    Absent means all.
    """

    @field_validator("can")
    @classmethod
    def _starts_at_least(cls, can: tuple[ActionKind, ...] | None) -> tuple[ActionKind, ...] | None:
        if can is None:
            return None
        if missing := [kind for kind in (ActionKind.RELEASE, ActionKind.START) if kind not in can]:
            found = ", ".join(can) or "none"
            raise ValueError(f"expected {' and '.join(missing)} among the kinds of action, found {found}")
        return tuple(kind for kind in ActionKind if kind in can)

    def offers(self, kind: ActionKind) -> bool:
        """True if the cluster can carry out actions of a kind."""
        return self.can is None or kind in self.can

    @model_validator(mode="before")
    @classmethod
    def _nodes_alone_are_a_cluster(cls, data: Any) -> Any:
        return {"nodes": data} if isinstance(data, list) else data

    @property
    def named(self) -> bool:
        """True if the cluster has a name other than the default."""
        return bool(self.name != type(self).model_fields["name"].default)

    def canonical_pieces(self) -> Iterator[str]:
        """Canonical JSON of the document; the canonical text of each node is cached."""
        hollow = self.model_copy(update={"nodes": ()}).document()
        nodes = canonical_list(node.canonical_text for node in self.nodes)
        return canonical_object(hollow, {"nodes": nodes})

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def open_gpus(self) -> dict[str, int]:
        """Number of GPUs of the nodes that accept jobs, healthy or not, by GPU model."""
        found = Counter[str]()
        for node in self.nodes:
            if node.gpus and node.schedulable:
                found[node.gpus.model] += node.gpus.count
        return dict(sorted(found.items()))

    @cached_property
    def gpu_model_by_node(self) -> dict[str, str]:
        """GPU models of the nodes that have GPUs, by node name."""
        return {node.name: node.gpus.model for node in self.nodes if node.gpus}
