"""Changes of settings: prices, quotas, the policy and its solvers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, WithJsonSchema, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.errors import Suggestions
from gpuplan.models.policy.policy import Policy, SolverName
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from gpuplan.models.queue import (
    ALL_MODELS,
    AnyQuota,
    CpuQuota,
    MemoryQuota,
    Quota,
    QuotaResource,
    resource_key,
)
from gpuplan.models.units import LARGEST_COUNT, MILLI, Milli, Name, QuotaMilli, parse_mib
from gpuplan.planner.sources.documents.build_snapshot import validate_noun
from gpuplan.planner.whatif.patch.world import (
    Faults,
    NodeChoice,
    SnapshotSections,
    expect_one_of,
    expect_some_of,
)

_Price: TypeAlias = Annotated[float, Field(ge=0, le=1e6)]


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


class SolverChoice(StrEnum):
    """Solvers that may replace the policy's solvers."""

    MILP = "milp"
    CPSAT = "cpsat"
    CBC = "cbc"
    GREEDY = "greedy"
    """Only the greedy heuristic, no exact solver."""


class SetPrice(Noun):
    """Change the price of nodes, of new nodes of pools, or of GPU-hours by tariff."""

    change: Literal["set_price"]
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
        expect_some_of(self, "nodes", "pools", "tariffs")
        expect_one_of(self, "factor", "value")
        return self

    def apply(self, world: SnapshotSections) -> Faults:
        """Change the price of nodes, of new nodes of pools, or of GPU-hours by tariff."""

        def price(before: float) -> float:
            if self.value is not None:
                return self.value
            return round(before * (self.factor or 0) / MILLI, 6)

        if self.nodes is not None:
            yield from world.change_nodes(
                self.nodes,
                lambda node: node.model_copy(update={"price_per_hour": price(node.price_per_hour)}),
            )
        for name in self.pools:
            yield from world.unknown("pool", name, world.pools)
            if (pool := world.pools.get(name)) is not None:
                template = pool.template.model_copy(
                    update={"price_per_hour": price(pool.template.price_per_hour)}
                )
                world.pools[name] = pool.model_copy(update={"template": template})
        for name in self.tariffs:
            yield from world.unknown("tariff", name, world.tariffs)
            if (tariff := world.tariffs.get(name)) is None:
                continue
            if amount := price(tariff.price_per_gpu_hour):
                world.tariffs[name] = tariff.model_copy(update={"price_per_gpu_hour": amount})
            else:  # a tariff's price must be above 0
                del world.tariffs[name]


_Amount: TypeAlias = Annotated[
    QuotaMilli,
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "examples": ["11.5", "500m", "64Gi"]}]}),
]
"""An amount of GPUs or CPU cores in thousandths, or of memory in thousandths of MiB."""


class SetQuota(Noun):
    """Change a quota of a queue: of all GPUs, of one GPU model, of CPU cores or of memory."""

    change: Literal["set_quota"]
    queue: Name
    """Queue to change."""
    gpu_model: Name | None = None
    """GPU model of the quota; if absent, the quota over all models."""
    resource: QuotaResource = "gpus"
    """What the quota counts. Amounts are GPUs, CPU cores, or MiB or quantities such as `512Gi`."""
    nominal: _Amount | None = None
    """The new nominal quota."""
    factor: Milli | None = None
    """Factor on the present nominal quota."""
    borrowing_limit: _Amount | None = None
    """The new borrowing limit."""
    lending_limit: _Amount | None = None
    """The new lending limit."""
    guarantee: Milli | None = None
    """The new guarantee in GPUs."""
    unlimited: bool = False
    """True: the queue has no quota at all."""

    @model_validator(mode="before")
    @classmethod
    def _memory_in_mib(cls, given: Any) -> Any:
        """Quantities of memory as numbers of MiB."""
        if not isinstance(given, dict) or given.get("resource") != "memory":
            return given
        amounts = ("nominal", "borrowing_limit", "lending_limit")
        return given | {name: parse_mib(given[name]) for name in amounts if given.get(name) is not None}

    @model_validator(mode="after")
    def _fits_its_resource(self) -> SetQuota:
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            if self.resource != "memory" and (getattr(self, name) or 0) > LARGEST_COUNT * MILLI:
                raise ValueError(f"expected at most {LARGEST_COUNT} as {name}")
        for name in ("gpu_model", "guarantee"):
            if self.resource != "gpus" and getattr(self, name) is not None:
                raise ValueError(f"expected no {name} with resource {self.resource}: only GPUs have one")
        return self

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

    def apply(self, world: SnapshotSections) -> Faults:
        """Change the quota of a queue."""
        yield from world.unknown("queue", self.queue, world.queues)
        queue = world.queues.get(self.queue)
        if queue is None:
            return
        resource = resource_key(self.resource, self.gpu_model or ALL_MODELS)
        before = queue.limits_for(resource)
        if self.unlimited:
            quota = None
        elif before is None and self.nominal is None:
            of = f" for {resource}" if resource else ""
            yield f"queue '{queue.name}' has no quota{of} to be changed; expected a nominal one."
            return
        else:
            quota = _quota(before, self)
        world.queues[queue.name] = queue.with_quota(resource, quota)


class SetPolicy(Noun):
    """Change some settings of the policy; all others stay, and lists are replaced as a whole."""

    change: Literal["set_policy"]
    policy: PartialPolicy
    """Settings of the policy to change; all others stay, and lists are replaced as a whole."""

    def stated(self) -> dict[str, Any]:
        """Return the settings that the document names, as a document."""
        return self.policy.model_dump(mode="json", exclude_unset=True)

    def apply(self, world: SnapshotSections) -> Faults:
        """Change some settings of the policy; keys that a mapping does not name keep their value."""
        # Unset fields must stay unset: the plan warns about fields that are set and have no effect.
        document = merge_documents(world.policy.model_dump(mode="json", exclude_unset=True), self.stated())
        policy, problems = validate_noun(
            document, Policy, lambda _: None, subject="the policy", near=Suggestions()
        )
        yield from (problem.message for problem in problems)
        if policy is not None:
            world.policy = policy


class SetSolver(Noun):
    """Use another solver instead of the policy's solvers."""

    change: Literal["set_solver"]
    solver: SolverChoice
    """Solver to use instead of the policy's solvers."""

    def apply(self, world: SnapshotSections) -> Faults:
        """Replace the policy's solvers by one solver."""
        solvers = () if self.solver is SolverChoice.GREEDY else (SolverName(self.solver.value),)
        world.policy = world.policy.model_copy(update={"solvers": solvers})
        yield from ()


def _quota(before: AnyQuota | None, change: SetQuota) -> AnyQuota:
    unit = MILLI if change.resource == "memory" else 1
    stated = {
        name: value // unit
        for name in ("nominal", "borrowing_limit", "lending_limit", "guarantee")
        if (value := getattr(change, name)) is not None
    }
    if before is not None and change.factor is not None:
        stated["nominal"] = before.nominal * change.factor // MILLI
    return (before or _NO_QUOTA[change.resource]).model_copy(update=stated)


_NO_QUOTA: Final[dict[QuotaResource, AnyQuota]] = {
    "gpus": Quota(nominal=0),
    "cpus": CpuQuota(nominal=0),
    "memory": MemoryQuota(nominal=0),
}


def merge_documents(before: Any, stated: Any) -> Any:
    """Merge a document into another: mappings key by key, everything else replaced."""
    if not (isinstance(before, dict) and isinstance(stated, dict)):
        return stated
    return before | {key: merge_documents(before.get(key), value) for key, value in stated.items()}
