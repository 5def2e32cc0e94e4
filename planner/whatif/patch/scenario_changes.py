"""Changes that a scenario may make to a snapshot and its policy, one class each; `change` names the kind."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.cluster import Node
from gpuplan.models.job import Job
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from gpuplan.models.units import AtLeastOne, Count, Label, Mib, Milli, Name
from gpuplan.planner.whatif.patch.scenario_choices import JobChoice, NodeChoice

# A subset of the settings of a policy.


class PartialBackfill(Backfill):
    """Some settings of backfill; their consistency is checked in the complete policy."""

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> PartialBackfill:
        return self


class PartialHorizon(HorizonPolicy):
    """Some settings of the horizon."""

    backfill: PartialBackfill = Field(default_factory=PartialBackfill)
    """Some settings of promised starts."""


class PartialPolicy(Policy):
    """Some settings of a policy, each valid by itself."""

    horizon: PartialHorizon = Field(default_factory=PartialHorizon)
    """How far a plan looks ahead, and which starts it promises."""


# The changes.


_Price: TypeAlias = Annotated[float, Field(ge=0, le=1e6)]
_Priority: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=10_000)]


def _given(data: Noun, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(data, name) is not None and getattr(data, name) != ()]


def _one_of(data: Noun, *names: str) -> None:
    given = _given(data, names)
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise ValueError(f"expected one of {', '.join(names)}, found {found}")


def _some_of(data: Noun, *names: str) -> None:
    if not _given(data, names):
        raise ValueError(f"expected at least one of {', '.join(names)}, found none")


class AddNodes(Noun):
    """Add equal new nodes: like an existing one, from a pool, or as described."""

    change: Literal["add_nodes"]
    """The kind of change: `add_nodes`."""
    count: AtLeastOne = 1
    """Nodes to add."""
    like: Name | None = None
    """Existing node to copy; the copies are healthy and empty even if it is not."""
    pool: Name | None = None
    """Pool of the new nodes; its `max` is raised if needed."""
    node: Node | None = None
    """Description of the new nodes; its name is the prefix of their names."""
    rack: Label | None = None
    """Rack of the new nodes, instead of the pattern's."""
    zone: Label | None = None
    """Zone of the new nodes, instead of the pattern's."""
    region: Label | None = None
    """Region of the new nodes, instead of the pattern's."""

    @model_validator(mode="after")
    def _one_pattern(self) -> AddNodes:
        _one_of(self, "like", "pool", "node")
        return self


class RemoveNodes(Noun):
    """Remove nodes; jobs there stop, lose their unsaved work and wait again."""

    change: Literal["remove_nodes"]
    """The kind of change: `remove_nodes`."""
    nodes: NodeChoice
    """Nodes to remove."""


class FailNodes(Noun):
    """Fail nodes; jobs there stop, lose their unsaved work and wait again."""

    change: Literal["fail_nodes"]
    """The kind of change: `fail_nodes`."""
    nodes: NodeChoice
    """Nodes that are down."""


class DrainNodes(Noun):
    """Drain nodes: nothing new may start there, and running jobs should move away."""

    change: Literal["drain_nodes"]
    """The kind of change: `drain_nodes`."""
    nodes: NodeChoice
    """Nodes to drain."""


class ReplaceGpus(Noun):
    """
    Replace the GPUs of nodes; the new GPUs are not in MIG mode.

    Jobs that may not use the new GPUs, or hold a GPU that no longer exists, stop and wait again.
    """

    change: Literal["replace_gpus"]
    """The kind of change: `replace_gpus`."""
    nodes: NodeChoice
    """Nodes that get other GPUs."""
    model: Name
    """The new GPU model."""
    count: Annotated[int, Field(strict=True, ge=1, le=128)] | None = None
    """GPUs in each node; if absent, as many as before."""
    memory_mib: Mib | None = None
    """Memory of one GPU in MiB; if absent, that of the same model in the cluster, or unknown."""


class SetPool(Noun):
    """Change the limits of a pool."""

    change: Literal["set_pool"]
    """The kind of change: `set_pool`."""
    pool: Name
    """Pool to change."""
    minimum: Count | None = Field(default=None, alias="min")
    """Its new minimum of nodes."""
    maximum: Count | None = Field(default=None, alias="max")
    """Its new maximum of nodes."""

    @model_validator(mode="after")
    def _changes_something(self) -> SetPool:
        if self.minimum is None and self.maximum is None:
            raise ValueError("expected at least one of min, max, found none")
        return self


class SetPrice(Noun):
    """Change the price of nodes, of new nodes of pools, or of GPU-hours by tariff."""

    change: Literal["set_price"]
    """The kind of change: `set_price`."""
    nodes: NodeChoice | None = None
    """Nodes that get the new price."""
    pools: tuple[Name, ...] = ()
    """Pools for which new nodes get the new price."""
    tariffs: tuple[Name, ...] = ()
    """Tariffs that get the new price."""
    factor: Milli | None = None
    """Factor on the present price."""
    value: _Price | None = None
    """The new price per hour, in the cluster's currency."""

    @model_validator(mode="after")
    def _of_something(self) -> SetPrice:
        _some_of(self, "nodes", "pools", "tariffs")
        _one_of(self, "factor", "value")
        return self


class SetQuota(Noun):
    """Change a quota of a queue, over all GPU models together or for one of them."""

    change: Literal["set_quota"]
    """The kind of change: `set_quota`."""
    queue: Name
    """Queue to change."""
    gpu_model: Name | None = None
    """GPU model of the quota; if absent, the quota over all models."""
    nominal: Milli | None = None
    """The new nominal quota in GPUs."""
    factor: Milli | None = None
    """Factor on the present nominal quota."""
    borrowing_limit: Milli | None = None
    """The new borrowing limit in GPUs."""
    lending_limit: Milli | None = None
    """The new lending limit in GPUs."""
    guarantee: Milli | None = None
    """The new guarantee in GPUs."""
    unlimited: bool = False
    """True: the queue has no quota at all."""

    @model_validator(mode="after")
    def _changes_something(self) -> SetQuota:
        amounts = ("nominal", "factor", "borrowing_limit", "lending_limit", "guarantee")
        given = [name for name in amounts if getattr(self, name) is not None]
        if self.unlimited == bool(given):
            found = f"both, unlimited and {given[0]}" if given else "none"
            raise ValueError(f"expected unlimited, or some of {', '.join(amounts)}, found {found}")
        if self.nominal is not None and self.factor is not None:
            raise ValueError("expected one of nominal and factor, found both")
        return self


class SetJobs(Noun):
    """Change the weight or priority of jobs, or hold or release them."""

    change: Literal["set_jobs"]
    """The kind of change: `set_jobs`."""
    jobs: JobChoice
    """Jobs to change."""
    weight_milli: Milli | None = Field(default=None, alias="weight")
    """Their new weight."""
    weight_factor: Milli | None = None
    """Factor on their present weight."""
    priority: _Priority | None = None
    """Their new priority."""
    held: bool | None = None
    """True: the jobs are held; false: they are released."""

    @model_validator(mode="after")
    def _changes_something(self) -> SetJobs:
        values = (self.weight_milli, self.weight_factor, self.priority, self.held)
        if all(value is None for value in values):
            raise ValueError("expected at least one of weight, weight_factor, priority, held, found none")
        if self.weight_milli is not None and self.weight_factor is not None:
            raise ValueError("expected one of weight and weight_factor, found both")
        return self


class AddJobs(Noun):
    """Add waiting jobs."""

    change: Literal["add_jobs"]
    """The kind of change: `add_jobs`."""
    jobs: tuple[Job, ...] = Field(min_length=1)
    """Waiting jobs to add."""

    @model_validator(mode="after")
    def _wait(self) -> AddJobs:
        if running := [job.name for job in self.jobs if job.running]:
            raise ValueError(f"expected jobs that wait, found {', '.join(running)} with running")
        return self


class RemoveJobs(Noun):
    """Remove jobs; what they held becomes free."""

    change: Literal["remove_jobs"]
    """The kind of change: `remove_jobs`."""
    jobs: JobChoice
    """Jobs to remove; what they held becomes free."""


class ScaleDemand(Noun):
    """Multiply the waiting jobs: whole copies, and a random part of them for the rest of the factor."""

    change: Literal["scale_demand"]
    """The kind of change: `scale_demand`."""
    factor: Annotated[Milli, Field(le=1_000_000)]
    """Multiple of the waiting jobs: 2 is each of them twice, 0.5 is half of them."""
    queue: Name | None = None
    """Only the jobs of this queue; if absent, all jobs."""
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    """Seed of the random choice of jobs for the fractional part of the factor."""


class SetPolicy(Noun):
    """Change some settings of the policy; all others stay, and lists are replaced as a whole."""

    change: Literal["set_policy"]
    """The kind of change: `set_policy`."""
    policy: PartialPolicy
    """Settings of the policy to change; all others stay, and lists are replaced as a whole."""

    def stated(self) -> dict[str, Any]:
        """Return the settings that the document names, as a document."""
        return self.policy.model_dump(mode="json", exclude_unset=True)


class SolverChoice(StrEnum):
    """Solvers that may replace the policy's solvers."""

    MILP = "milp"
    CPSAT = "cpsat"
    CBC = "cbc"
    GREEDY = "greedy"
    """Only the greedy heuristic, no exact solver."""


class SetSolver(Noun):
    """Use another solver instead of the policy's solvers."""

    change: Literal["set_solver"]
    """The kind of change: `set_solver`."""
    solver: SolverChoice
    """Solver to use instead of the policy's solvers."""


Change: TypeAlias = Annotated[
    AddNodes
    | RemoveNodes
    | FailNodes
    | DrainNodes
    | ReplaceGpus
    | SetPool
    | SetPrice
    | SetQuota
    | SetJobs
    | AddJobs
    | RemoveJobs
    | ScaleDemand
    | SetPolicy
    | SetSolver,
    Field(discriminator="change"),
]
