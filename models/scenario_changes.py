"""What a scenario may change in a snapshot and its policy: one noun a change, told apart by `change`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from planner.models.base import Noun
from planner.models.cluster import Node
from planner.models.job import Job
from planner.models.policy_part import PartOfPolicy
from planner.models.scenario_choices import AtLeastOne, JobChoice, NodeChoice
from planner.models.units import Count, Label, Mib, Milli, Name

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
    """Nodes that are not there yet, all alike: like an existing one, of a pool, or as described."""

    change: Literal["add_nodes"]
    count: AtLeastOne = 1
    like: Name | None = None
    """An existing node; the new ones are whole and empty, whatever is wrong with it."""
    pool: Name | None = None
    """The new nodes are this pool's, which may then have more than its `max`."""
    node: Node | None = None
    """Its name begins the names of the new nodes."""
    rack: Label | None = None
    zone: Label | None = None
    region: Label | None = None

    @model_validator(mode="after")
    def _one_pattern(self) -> AddNodes:
        _one_of(self, "like", "pool", "node")
        return self


class RemoveNodes(Noun):
    """Nodes that are gone; what ran there is lost and waits again."""

    change: Literal["remove_nodes"]
    nodes: NodeChoice


class FailNodes(Noun):
    """Nodes that are down; what ran there is lost and waits again."""

    change: Literal["fail_nodes"]
    nodes: NodeChoice


class DrainNodes(Noun):
    """Nodes on which nothing new may start, and which what runs ought to leave."""

    change: Literal["drain_nodes"]
    nodes: NodeChoice


class ReplaceGpus(Noun):
    """
    Nodes with other GPUs, none of them in MIG mode.

    Jobs that may not use them, or hold one that is no more, wait again.
    """

    change: Literal["replace_gpus"]
    nodes: NodeChoice
    model: Name
    count: Annotated[int, Field(strict=True, ge=1, le=128)] | None = None
    """In each node; as many as before if absent."""
    memory_mib: Mib | None = None
    """Of one GPU; if absent, that of the same model elsewhere in the cluster, or unknown."""


class SetPool(Noun):
    """Other limits of a pool."""

    change: Literal["set_pool"]
    pool: Name
    minimum: Count | None = Field(default=None, alias="min")
    maximum: Count | None = Field(default=None, alias="max")

    @model_validator(mode="after")
    def _changes_something(self) -> SetPool:
        if self.minimum is None and self.maximum is None:
            raise ValueError("expected at least one of min, max, found none")
        return self


class SetPrice(Noun):
    """Other prices of nodes, of new nodes of pools, or of GPU-hours by tariff."""

    change: Literal["set_price"]
    nodes: NodeChoice | None = None
    pools: tuple[Name, ...] = ()
    tariffs: tuple[Name, ...] = ()
    factor: Milli | None = None
    value: _Price | None = None
    """An hour, in the cluster's currency."""

    @model_validator(mode="after")
    def _of_something(self) -> SetPrice:
        _some_of(self, "nodes", "pools", "tariffs")
        _one_of(self, "factor", "value")
        return self


class SetQuota(Noun):
    """Another quota of a queue, over all GPU models together or for one of them."""

    change: Literal["set_quota"]
    queue: Name
    gpu_model: Name | None = None
    nominal: Milli | None = None
    factor: Milli | None = None
    """Of the nominal quota."""
    borrowing_limit: Milli | None = None
    lending_limit: Milli | None = None
    guarantee: Milli | None = None
    unlimited: bool = False
    """No quota at this queue at all."""

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
    """Jobs with other weights or priorities, or that are held or let go."""

    change: Literal["set_jobs"]
    jobs: JobChoice
    weight_milli: Milli | None = Field(default=None, alias="weight")
    weight_factor: Milli | None = None
    priority: _Priority | None = None
    held: bool | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> SetJobs:
        values = (self.weight_milli, self.weight_factor, self.priority, self.held)
        if all(value is None for value in values):
            raise ValueError("expected at least one of weight, weight_factor, priority, held, found none")
        if self.weight_milli is not None and self.weight_factor is not None:
            raise ValueError("expected one of weight and weight_factor, found both")
        return self


class AddJobs(Noun):
    """Jobs that wait beside the others."""

    change: Literal["add_jobs"]
    jobs: tuple[Job, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _wait(self) -> AddJobs:
        if running := [job.name for job in self.jobs if job.running]:
            raise ValueError(f"expected jobs that wait, found {', '.join(running)} with running")
        return self


class RemoveJobs(Noun):
    """Jobs that are not there; what they held is free."""

    change: Literal["remove_jobs"]
    jobs: JobChoice


class ScaleDemand(Noun):
    """So many times the waiting jobs: whole copies, and of the rest a random part."""

    change: Literal["scale_demand"]
    factor: Annotated[Milli, Field(le=1_000_000)]
    """2 is each waiting job twice; 0.5 is half of them."""
    queue: Name | None = None
    """Only the jobs of this queue; all of them if absent."""
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    """Of who is in the rest."""


class SetPolicy(Noun):
    """Some knobs of the policy; all others stay, and lists are replaced as a whole."""

    change: Literal["set_policy"]
    policy: PartOfPolicy

    def stated(self) -> dict[str, Any]:
        """The knobs that the document names, as a document."""
        return self.policy.model_dump(mode="json", exclude_unset=True)


class SolverChoice(StrEnum):
    """What may take the place of the policy's solvers."""

    MILP = "milp"
    CPSAT = "cpsat"
    CBC = "cbc"
    GREEDY = "greedy"
    """No exact solver at all."""


class SetSolver(Noun):
    """Another solver instead of the policy's."""

    change: Literal["set_solver"]
    solver: SolverChoice


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
