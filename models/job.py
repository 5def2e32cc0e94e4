"""Job and what it asks for: request per replica, gang, locality, models, where it runs."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Field, field_validator, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.cluster import Level, QosClass, Taint, TaintEffect
from gpuplan.models.dependency import Dependency
from gpuplan.models.gang import Gang
from gpuplan.models.mig import profile_milli
from gpuplan.models.placement import Placement, Replica
from gpuplan.models.progress import Progress
from gpuplan.models.promise import Promise
from gpuplan.models.units import MILLI, AtLeastOne, Count, Label, Mib, Milli, Name, Seconds, Timestamp

if TYPE_CHECKING:
    from collections.abc import Hashable
    from datetime import datetime


class ResourceRequest(Noun):
    """What one replica needs on one node: whole GPUs, or a share of one, or MIG profiles; and the rest."""

    gpus: Annotated[int, Field(strict=True, ge=0, le=128)] = 0
    """Whole GPUs on one node."""
    gpu_milli: Annotated[int, Field(strict=True, ge=0, lt=MILLI)] = 0
    """Share of one GPU, in thousandths."""
    mig: dict[Name, Annotated[int, Field(strict=True, ge=1, le=128)]] = Field(default_factory=dict)
    """MIG instances by profile name."""
    gpu_memory_mib: Mib = 0
    """Memory needed on each GPU, in MiB; a share of a GPU has that part of the GPU's memory."""
    cpu_milli: Milli = Field(default=0, alias="cpus")
    """CPU cores."""
    memory_mib: Mib = 0
    """Memory, in MiB."""
    disk_mib: Mib = 0
    """Local disk, in MiB."""
    resources: dict[Name, Count] = Field(default_factory=dict)
    """Further countable resources by name."""

    @field_validator("mig", "resources")
    @classmethod
    def _by_name(cls, value: dict[str, int]) -> dict[str, int]:
        """Equal requests read alike."""
        return dict(sorted(value.items())) if len(value) > 1 else value

    @model_validator(mode="after")
    def _one_way_to_use_gpus(self) -> ResourceRequest:
        ways = [name for name in ("gpus", "gpu_milli", "mig") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"expected one of gpus, gpu_milli and mig, found {' and '.join(ways)}")
        return self

    @cached_property
    def total_gpu_milli(self) -> int:
        """Thousandths of GPUs one replica counts for in weights and quotas."""
        return (
            self.gpus * MILLI
            + self.gpu_milli
            + sum(profile_milli(profile) * count for profile, count in self.mig.items())
        )

    def __hash__(self) -> int:
        """Dicts have no hash; these are in order."""
        amounts = (
            self.gpus,
            self.gpu_milli,
            self.gpu_memory_mib,
            self.cpu_milli,
            self.memory_mib,
            self.disk_mib,
        )
        return hash((amounts, tuple(self.mig.items()), tuple(self.resources.items())))

    @property
    def needs_gpu(self) -> bool:
        """False for a job that runs on CPUs alone."""
        return bool(self.gpus or self.gpu_milli or self.mig)


class LocalityPreference(Noun):
    """How close the replicas of a gang must, or should, be."""

    required: Level | None = None
    """All replicas must be in one domain of this level."""
    preferred: Level | None = None
    """All replicas should be in one domain of this level; each further domain has a price."""


class Spread(Noun):
    """At most so many replicas of the job in one domain of a level (as topology spread constraints do)."""

    level: Level = Level.NODE
    """Level of the domains."""
    most: AtLeastOne = Field(default=1, alias="max")
    """Most replicas of the job in one domain."""


class MatchOperator(StrEnum):
    """How a node's label is compared (Kubernetes' words)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class NodeMatch(Noun):
    """A condition on a node's labels."""

    key: Name
    """Label that is compared."""
    operator: MatchOperator = MatchOperator.IN
    """How it is compared."""
    values: tuple[Label, ...] = ()
    """Values that it is compared with; none with `Exists` and `DoesNotExist`."""

    @model_validator(mode="after")
    def _values_where_compared(self) -> NodeMatch:
        compares = self.operator in (MatchOperator.IN, MatchOperator.NOT_IN)
        if compares != bool(self.values):
            expected = "values" if compares else "no values"
            raise ValueError(f"expected {expected} with operator {self.operator}, found {list(self.values)}")
        return self

    def holds(self, labels: dict[str, str]) -> bool:
        """True if labels meet the condition; a missing label is in no list of values."""
        match self.operator:
            case MatchOperator.IN:
                return labels.get(self.key) in self.values
            case MatchOperator.NOT_IN:
                return labels.get(self.key) not in self.values
            case MatchOperator.EXISTS:
                return self.key in labels
            case MatchOperator.DOES_NOT_EXIST:
                return self.key not in labels


class PreferredNodes(Noun):
    """Nodes a job would rather be on, and what a replica anywhere else costs."""

    match: NodeMatch
    """Condition that preferred nodes meet."""
    points: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    """Points that a replica on any other node costs."""


class AntiAffinity(Noun):
    """Jobs that must not share a domain with this one: those that carry all of the labels."""

    labels: dict[Name, Label] = Field(min_length=1)
    """Labels of the jobs that must not share a domain with this one; a job must carry all of them."""
    level: Level = Level.NODE
    """Level of the domain that must not be shared."""


class Toleration(Noun):
    """A taint the job accepts (Kubernetes' rules: an empty key is every key, no value is every value)."""

    key: Name | None = None
    """Taint key that is tolerated; absent is every key."""
    value: Label | None = None
    """Taint value that is tolerated; absent is every value."""
    effect: TaintEffect | None = None
    """Taint effect that is tolerated; absent is every effect."""

    def accepts(self, taint: Taint) -> bool:
        """True if this toleration covers the taint."""
        return (
            self.key in (None, taint.key)
            and self.value in (None, taint.value)
            and self.effect in (None, taint.effect)
        )


class Running(Noun):
    """Where a job runs now, since when, and what would be lost if it were stopped."""

    started_at: Timestamp
    """When the job started."""
    last_checkpoint_at: Timestamp | None = None
    """When it last saved its state; absent if it never did since it started."""
    resumed_at: Timestamp | None = None
    """
    When it is back from a checkpoint, after it was stopped or resized, and works; absent means from
    `started_at` on.
    """
    kill_at: Timestamp | None = None
    """When it is stopped for good, since its place is promised to another job from then on."""
    resized_at: Timestamp | None = None
    """When it was last shrunk or grown; absent if it never was, or if it is not known."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Where each replica runs and what it holds there."""


_Part: TypeAlias = ResourceRequest | Gang | LocalityPreference

_NOTHING, _ONE_REPLICA, _ANYWHERE = ResourceRequest(), Gang(), LocalityPreference()

_KNOWN: Final[dict[_Part, _Part]] = {part: part for part in (_NOTHING, _ONE_REPLICA, _ANYWHERE)}
"""Of those of a hundred thousand jobs few differ: they are kept, and compared, once."""

_MOST_KNOWN: Final = 10_000
"""Requests may differ without end in a process that plans for weeks."""


class Job(Noun):
    """A unit of work a user submitted."""

    name: Name
    """Name of the job, unique in the snapshot."""
    queue: Name
    """Queue that the job is in."""
    user: Name = "unknown"
    """User that submitted the job."""
    priority: Annotated[int, Field(strict=True, ge=0, le=10_000)] = 0
    """Priority; a larger number is more important."""
    weight_milli: Milli = Field(default=MILLI, alias="weight")
    """Factor of the job's points; 0 is worth nothing."""
    request: ResourceRequest = _NOTHING
    """What one replica needs on its node."""
    gang: Gang = Field(default=_ONE_REPLICA, alias="replicas")
    """Replicas that start together; a number is short for equal `min` and `max`."""
    gpu_models: dict[Name, Milli] = Field(default_factory=dict)
    """
    Allowed GPU models with their relative speeds, such as `{H100-80GB: 3, A100-80GB: 1}`; a list is short
    for equal speeds, empty allows every model at equal speed.
    """
    node_selector: dict[Name, Label] = Field(default_factory=dict)
    """Labels that each node of the job must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the job accepts."""
    affinity: tuple[NodeMatch, ...] = ()
    """Conditions that each node of the job must meet, all of them."""
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    """Nodes that the job should be on, with the price of any other."""
    regions: tuple[Label, ...] = ()
    """Regions that the job may run in, for data residency; empty is anywhere."""
    locality: LocalityPreference = _ANYWHERE
    """How close together the replicas must, or should, be."""
    spread: Spread | None = None
    """How far apart the replicas must be; absent is no rule."""
    anti_affinity: tuple[AntiAffinity, ...] = ()
    """Jobs that must not share a domain with this one."""
    datasets: tuple[Name, ...] = ()
    """Names of the data sets that every replica reads."""
    workload_class: Name = "default"
    """Class such as training or inference, which placement profiles and interference are stated for."""
    qos: QosClass = QosClass.GUARANTEED
    """How firmly the job counts on the CPU and memory that it requests."""
    time_slicing: bool = False
    """True: the job may share a GPU without isolation."""
    submitted_at: Timestamp
    """When the job was submitted; its age counts from here."""
    expected_duration: Seconds | None = None
    """
    Expected run time of the whole job with all its replicas on the fastest of its GPU models; on others it
    takes longer by their speeds. Absent is learnt from finished jobs, or the policy's default.
    """
    deadline: Timestamp | None = None
    """When the job should be done."""
    hard_deadline: bool = False
    """True: the job is of no use after its deadline, and never starts if it would be late."""
    not_before: Timestamp | None = None
    """Earliest start that its user asks for."""
    depends_on: tuple[Dependency, ...] = ()
    """Jobs that something must have happened to before this one starts."""
    depends_on_at_least: AtLeastOne | None = None
    """How many of the jobs in `depends_on` suffice; absent is all."""
    co_start: Name | None = None
    """Name of a group: jobs of one group start in the same slot, or none of them does."""
    preemptible: bool = True
    """True: the job may be stopped, shrunk or moved while it runs."""
    checkpoint_duration: Seconds | None = None
    """Time to save its state before it is stopped; absent is the policy's."""
    restart_duration: Seconds | None = None
    """Time to resume work from its last checkpoint; absent is the policy's."""
    preemptions: Count = 0
    """How often plans have stopped the job so far."""
    progress: Progress | None = None
    """What the job saved before it was last stopped or resized; absent for one that never was."""
    held: bool = False
    """True: a user or an operator keeps the job from starting."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Labels that anti-affinity and scenarios select jobs by."""
    running: Running | None = None
    """Where it runs and since when; absent for a job that waits."""
    promise: Promise | None = None
    """Start and places that an earlier plan promised the job while it waits."""

    @model_validator(mode="before")
    @classmethod
    def _a_list_of_models_has_equal_speeds(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(models := data.get("gpu_models"), list):
            if strange := [model for model in models if not isinstance(model, str)]:
                raise ValueError(f"expected names of GPU models in gpu_models, found {strange[0]!r}")
            return data | {"gpu_models": dict.fromkeys(models, 1)}
        return data

    @field_validator("request", "gang", "locality")
    @classmethod
    def _equal_ones_are_one(cls, value: _Part) -> _Part:
        if len(_KNOWN) >= _MOST_KNOWN:
            return _KNOWN.get(value, value)
        return _KNOWN.setdefault(value, value)

    @model_validator(mode="after")
    def _depends_on_each_once(self) -> Job:
        names = [each.job for each in self.depends_on]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected each job once in depends_on, found {', '.join(twice)} more than once")
        return self

    @model_validator(mode="after")
    def _speeds_are_positive(self) -> Job:
        if slow := sorted(model for model, speed in self.gpu_models.items() if speed == 0):
            raise ValueError(f"expected a speed above 0 in gpu_models, found 0 for {', '.join(slow)}")
        return self

    @cached_property
    def placement(self) -> Placement | None:
        """The running placement, if any."""
        return Placement(job=self.name, replicas=self.running.replicas) if self.running else None

    @property
    def has_run(self) -> bool:
        """True if it runs, or ran before it waits."""
        return self.running is not None or self.progress is not None

    @property
    def last_checkpoint_at(self) -> datetime | None:
        """When it last saved its state, in this run or an earlier one; None if it never did."""
        found = self.running.last_checkpoint_at if self.running else None
        return found or (self.progress.last_checkpoint_at if self.progress else None)

    @cached_property
    def likeness(self) -> tuple[Hashable, ...]:
        """
        All that it needs to run, whatever the order it is stated in: jobs that need the same are alike.

        Not what it is worth, when it may start, and whom it must not meet.
        """
        request, gang = self.request, self.gang
        return (
            *(self.queue, self.held, self.weight_milli == 0, self.qos, self.time_slicing),
            *(gang.minimum, gang.maximum, self.locality.required, self.spread),
            *(request.gpus, request.gpu_milli, request.gpu_memory_mib),
            *(request.cpu_milli, request.memory_mib, request.disk_mib),
            tuple(sorted(request.mig.items())),
            tuple(sorted(request.resources.items())),
            tuple(sorted(self.gpu_models)),
            tuple(sorted(self.node_selector.items())),
            *(frozenset(self.tolerations), frozenset(self.affinity), frozenset(self.regions)),
        )

    def waited(self, now: datetime) -> int:
        """Whole seconds since it was submitted; 0 if that is still to come."""
        return max(0, int((now - self.submitted_at).total_seconds()))

    def tolerates(self, taint: Taint) -> bool:
        """True if the taint does not keep the job away."""
        return taint.effect is TaintEffect.PREFER_NO_SCHEDULE or any(
            toleration.accepts(taint) for toleration in self.tolerations
        )

    def speed_milli(self, gpu_model: str | None) -> int:
        """Speed at full size on a GPU model, in thousandths of that on the fastest one allowed."""
        return self.rate_milli(gpu_model, self.gang.maximum)

    def rate_milli(self, gpu_model: str | None, replicas: int) -> int:
        """
        Speed of so many replicas on a GPU model, in thousandths of that at full size on the fastest allowed.

        That of the model (`gpu_models`) times that of the number of replicas (`Gang.scaling`).
        """
        gang, speeds = self.gang, self.gpu_models
        if gpu_model is None or not speeds:
            return gang.speed_milli(replicas, gpu_model) * MILLI // gang.speed_milli(gang.maximum, gpu_model)
        speed = speeds.get(gpu_model)
        if speed is None:  # it runs where it may not start today
            speed = min(speeds.values())
        return speed * gang.speed_milli(replicas, gpu_model) * MILLI // self._full_speed

    @cached_property
    def _full_speed(self) -> int:
        """Of all replicas on the fastest GPU model."""
        most = self.gang.maximum
        return max(speed * self.gang.speed_milli(most, model) for model, speed in self.gpu_models.items())
