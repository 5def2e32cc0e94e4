"""Job and its requirements: request per replica, gang, locality, GPU models; and its running state."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Field, field_validator, model_validator

from gpuplan.models.affinity import (
    AntiAffinity,
    LocalityPreference,
    NodeMatch,
    PreferredNodes,
    Spread,
    Toleration,
)
from gpuplan.models.base import Noun
from gpuplan.models.cluster import QosClass, Taint, TaintEffect
from gpuplan.models.dependency import Dependency, Retry, latest
from gpuplan.models.gang import Gang
from gpuplan.models.mig import profile_milli
from gpuplan.models.placement import Placement, Promise, Running
from gpuplan.models.queue import QuotaAmounts
from gpuplan.models.units import (
    MILLI,
    AtLeastOne,
    Count,
    GpuTime,
    Label,
    Mib,
    Milli,
    Name,
    Seconds,
    Timestamp,
    WorkTime,
)

if TYPE_CHECKING:
    from collections.abc import Hashable
    from datetime import datetime

    from gpuplan.models.placement import Replica

HIGHEST_PRIORITY: Final = 10_000
"""Highest priority that a job may have."""


class ResourceRequest(Noun):
    """Demand of one replica on its node: whole GPUs, a share of one, or MIG profiles; and other resources."""

    gpus: Annotated[int, Field(strict=True, ge=0, le=128)] = 0
    """Whole GPUs on one node."""
    gpu_milli: Annotated[int, Field(strict=True, ge=0, lt=MILLI)] = 0
    """Share of one GPU, in thousandths."""
    mig: dict[Name, Annotated[int, Field(strict=True, ge=1, le=128)]] = Field(default_factory=dict)
    """MIG instances by profile name."""
    gpu_memory_mib: Mib = 0
    """Memory needed on each GPU, in MiB; a share of a GPU has that fraction of the GPU's memory."""
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
        """Sort by name, so that equal requests have equal documents."""
        return dict(sorted(value.items())) if len(value) > 1 else value

    @model_validator(mode="after")
    def _one_way_to_use_gpus(self) -> ResourceRequest:
        ways = [name for name in ("gpus", "gpu_milli", "mig") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"expected one of gpus, gpu_milli and mig, found {' and '.join(ways)}")
        return self

    @cached_property
    def total_gpu_milli(self) -> int:
        """Thousandths of GPUs that one replica counts for in weights and quotas."""
        return (
            self.gpus * MILLI
            + self.gpu_milli
            + sum(profile_milli(profile) * count for profile, count in self.mig.items())
        )

    @property
    def quota(self) -> QuotaAmounts:
        """What one replica counts for against quotas."""
        return QuotaAmounts.of(self.total_gpu_milli, self)

    def __hash__(self) -> int:
        """Dicts are not hashable, so hash their sorted items."""
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
        """False for a job that uses only CPUs."""
        return bool(self.gpus or self.gpu_milli or self.mig)


class Progress(Noun):
    """Progress of a job up to its last preemption or resize."""

    completed_milli: WorkTime = Field(default=0, alias="completed")
    """
    Work that its last checkpoint saved, as a duration on the fastest of its GPU models, such as `9h30m`.

    The remaining work is the expected duration less this.
    """
    last_checkpoint_at: Timestamp | None = None
    """Time of that checkpoint; absent means that none was saved."""
    served_milli: GpuTime | None = Field(default=None, alias="served", exclude_if=lambda value: value is None)
    """
    Service so far, as time on one GPU: two GPUs for three hours are `6h`. Lost work counts, and an elastic
    job counts the replicas that it had. If absent, it is `completed` at full size.
    """


_Part: TypeAlias = ResourceRequest | Gang | LocalityPreference

_NOTHING, _ONE_REPLICA, _ANYWHERE = ResourceRequest(), Gang(), LocalityPreference()

_KNOWN: Final[dict[_Part, _Part]] = {part: part for part in (_NOTHING, _ONE_REPLICA, _ANYWHERE)}
"""Interned parts of jobs: a hundred thousand jobs have few distinct ones, so each is kept once."""

_MOST_KNOWN: Final = 10_000
"""Limit on interned parts, because a process that plans for weeks may see unlimited different requests."""


_PLAIN_FIELDS: Final = frozenset(
    {"name", "queue", "user", "priority", "weight_milli", "request", "gang"}
    | {"submitted_at", "expected_duration"}
)


class Job(Noun):
    """A unit of work that a user submits."""

    name: Name
    """Name of the job, unique in the snapshot."""
    queue: Name
    """Queue that the job is in."""
    user: Name = "unknown"
    """User that submitted the job."""
    priority: Annotated[int, Field(strict=True, ge=0, le=HIGHEST_PRIORITY)] = 0
    """Priority; a larger number is more important."""
    weight_milli: Milli = Field(default=MILLI, alias="weight")
    """Importance of the job beside others of its priority; with 0 it has no value."""
    request: ResourceRequest = _NOTHING
    """Demand of one replica on its node."""
    gang: Gang = Field(default=_ONE_REPLICA, alias="replicas")
    """Replicas that start together; a number means equal `min` and `max`."""
    gpu_models: dict[Name, Milli] = Field(default_factory=dict)
    """
    Allowed GPU models with relative speeds, such as `{H100-80GB: 3, A100-80GB: 1}`. A list means equal
    speeds; empty allows every model at equal speed.
    """
    node_selector: dict[Name, Label] = Field(default_factory=dict)
    """Labels that each node of the job must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the job accepts."""
    affinity: tuple[NodeMatch, ...] = ()
    """Conditions that each node of the job must meet, all of them."""
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    """Nodes that the job should use, with the price of any other node."""
    regions: tuple[Label, ...] = ()
    """Regions that the job may run in, for data residency; empty means anywhere."""
    locality: LocalityPreference = _ANYWHERE
    """How close together the replicas must, or should, be."""
    spread: Spread | None = None
    """How far apart the replicas must be; absent means no rule."""
    anti_affinity: tuple[AntiAffinity, ...] = ()
    """Jobs that must not share a domain with this one."""
    datasets: tuple[Name, ...] = ()
    """Names of the data sets that every replica reads."""
    workload_class: Name = "default"
    """Class such as training or inference, to which placement profiles and interference refer."""
    qos: QosClass = QosClass.GUARANTEED
    """How firmly the CPU and memory that the job requests are guaranteed."""
    time_slicing: bool = False
    """True: the job may share a GPU without isolation."""
    submitted_at: Timestamp
    """Submission time of the job; its age counts from here."""
    expected_duration: Seconds | None = None
    """
    Expected run time of the whole job with all replicas on the fastest of its GPU models; slower models take
    proportionally longer. If absent it is learnt from finished jobs, or is the policy's default.
    """
    deadline: Timestamp | None = None
    """Time by which the job should complete."""
    hard_deadline: bool = False
    """True: the job has no value after its deadline, and never starts if it would be late."""
    not_before: Timestamp | None = None
    """Earliest start that the user requests."""
    depends_on: tuple[Dependency, ...] = ()
    """Jobs that must meet a condition before this one starts."""
    depends_on_at_least: AtLeastOne | None = None
    """Number of jobs in `depends_on` that suffice; absent means all."""
    co_start: Name | None = None
    """Name of a group: all jobs of one group start in the same slot, or none of them."""
    preemptible: bool = True
    """True: the job may be preempted, shrunk or migrated while it runs."""
    checkpoint_duration: Seconds | None = None
    """Time to save its state before it is preempted; absent means the policy's value."""
    restart_duration: Seconds | None = None
    """Time to resume work from its last checkpoint; absent means the policy's value."""
    preemptions: Count = 0
    """Number of times that plans have preempted the job so far."""
    progress: Progress | None = None
    """Progress saved before the job was last preempted or resized; absent if it never was."""
    retry: Retry | None = None
    """Retries after failures; absent means that failures do not matter to plans."""
    failures: Count = 0
    """Number of failed attempts since the last success; stops by plans and lost nodes are none."""
    failed_at: Timestamp | None = None
    """End of the last failed attempt."""
    held: bool = False
    """True: a user or an operator prevents the job from starting."""
    hold_reason: Label = ""
    """
    Reason why it is held, such as a request that the snapshot cannot express; empty means that its user or an
    operator holds it.
    """
    checkpoint_storage: Name | None = None
    """Storage that its checkpoints are saved to; the policy may limit how many jobs use one at a time."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Labels that anti-affinity, disruption budgets and scenarios select jobs by."""
    running: Running | None = None
    """Nodes and start time of a running job; absent for a pending job."""
    promise: Promise | None = None
    """Start and places that an earlier plan promised to the pending job."""

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
    def running_replicas(self) -> tuple[Replica, ...]:
        """The replicas with which it runs; none while it is pending."""
        return self.running.replicas if self.running else ()

    @property
    def retries_used_up(self) -> bool:
        """True if it has failed more often than it may be tried again."""
        return self.retry is not None and self.retry.is_used_up(self.failures)

    @property
    def withheld(self) -> bool:
        """True if it does not start as it is: it is held, or its retries are used up."""
        return self.held or self.retries_used_up

    @property
    def retry_at(self) -> datetime | None:
        """End of the back-off of a pending job after its last failure, past or future; None without one."""
        if self.retry is None or self.failed_at is None or not self.failures or self.running:
            return None
        return self.failed_at + self.retry.wait(self.failures)

    @property
    def begins_at(self) -> datetime | None:
        """Its earliest start: as the user requests, and after the back-off; None if there is neither."""
        if self.retry is None:
            return self.not_before
        return latest(self.not_before, self.retry_at)

    @property
    def has_run(self) -> bool:
        """True if it runs, or ran before."""
        return self.running is not None or self.progress is not None

    @property
    def last_checkpoint_at(self) -> datetime | None:
        """Time at which it last saved its state, in this run or an earlier one; None if never."""
        found = self.running.last_checkpoint_at if self.running else None
        return found or (self.progress.last_checkpoint_at if self.progress else None)

    @property
    def plain_key(self) -> tuple[Hashable, ...] | None:
        """
        All its attributes but its name, if it sets no other fields than `_PLAIN_FIELDS`; None if it does.

        What follows from one plain job follows from all with an equal key, unless it depends on the name.
        Only keys of jobs that exist at the same time compare: requests and gangs are told apart by identity,
        since equal ones are one object (`_KNOWN`), and to hash them takes longer than it saves.
        """
        if self.expected_duration is None or not self.model_fields_set <= _PLAIN_FIELDS:
            return None
        return (
            *(self.queue, self.user, self.priority, self.weight_milli),
            *(id(self.request), id(self.gang), self.submitted_at, self.expected_duration),
        )

    @cached_property
    def requirements_key(self) -> tuple[Hashable, ...]:
        """
        All its requirements in a canonical order: jobs with equal requirements compare equal.

        Value, earliest start and anti-affinity are not part of it.
        """
        request, gang = self.request, self.gang
        return (
            *(
                self.queue,
                self.held,
                self.retries_used_up,
                self.weight_milli == 0,
                self.qos,
                self.time_slicing,
            ),
            *(gang.minimum, gang.maximum, self.locality.required, self.spread),
            *(request.gpus, request.gpu_milli, request.gpu_memory_mib),
            *(request.cpu_milli, request.memory_mib, request.disk_mib),
            tuple(sorted(request.mig.items())),
            tuple(sorted(request.resources.items())),
            tuple(sorted(self.gpu_models)),
            tuple(sorted(self.node_selector.items())),
            *(frozenset(self.tolerations), frozenset(self.affinity), frozenset(self.regions)),
        )

    def waiting_seconds(self, now: datetime) -> int:
        """Whole seconds since submission; 0 if that is in the future."""
        return max(0, int((now - self.submitted_at).total_seconds()))

    def tolerates(self, taint: Taint) -> bool:
        """True if the taint does not exclude the job."""
        return taint.effect is TaintEffect.PREFER_NO_SCHEDULE or any(
            toleration.accepts(taint) for toleration in self.tolerations
        )

    def speed_milli(self, gpu_model: str | None) -> int:
        """Speed at full size on a GPU model, in thousandths of that on the fastest allowed one."""
        if gpu_model is None or not self.gpu_models:
            return MILLI
        return self.rate_milli(gpu_model, self.gang.maximum)

    def rate_milli(self, gpu_model: str | None, replicas: int) -> int:
        """
        Speed of this number of replicas on a GPU model, in thousandths of full size on the fastest allowed
        model.

        It is the speed of the model (`gpu_models`) times that of the number of replicas (`Gang.scaling`).
        """
        gang, speeds = self.gang, self.gpu_models
        if gpu_model is None or not speeds:
            return gang.speed_milli(replicas, gpu_model) * MILLI // gang.speed_milli(gang.maximum, gpu_model)
        speed = speeds.get(gpu_model)
        if speed is None:  # the running job is on a model where it may not start today
            speed = min(speeds.values())
        return speed * gang.speed_milli(replicas, gpu_model) * MILLI // self._full_speed

    @cached_property
    def _full_speed(self) -> int:
        """Speed of all replicas on the fastest GPU model."""
        most = self.gang.maximum
        return max(speed * self.gang.speed_milli(most, model) for model, speed in self.gpu_models.items())
