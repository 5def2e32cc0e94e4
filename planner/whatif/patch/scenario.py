"""Scenario: a named what-if: changes to a snapshot and its policy, and expectations of the plan."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import Name
from gpuplan.planner.whatif.patch.scenario_changes import Change

if TYPE_CHECKING:
    from collections.abc import Callable


# Expectations of a scenario about its plan: figures compared with numbers or the base, and jobs that run.


_NUMBER: Final = r"\d[\d,]*(?:\.\d+)?|\.\d+"
_PATTERN: Final = re.compile(
    rf"\s*(?P<relation>[<>]=?|==?|!=)\s*"
    rf"(?:(?P<base>base)(?:\s*(?P<sign>[-+*])\s*(?P<change>{_NUMBER}))?"
    rf"|(?P<number>-?(?:{_NUMBER}))(?P<percent>\s*%)?)\s*"
)
_RELATIONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_SIGNS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_TOLERANCE: Final = 1e-9
"""Figures that differ by less are equal, because figures are written with six decimals."""


def _check(value: str) -> str:
    if not _PATTERN.fullmatch(value):
        raise ValueError(f"expected a comparison such as '>= 40', '< 5 %' or '>= base - 2', found {value!r}")
    return value


Check: TypeAlias = Annotated[
    str, AfterValidator(_check), WithJsonSchema({"type": "string", "examples": [">= 40", ">= base - 2"]})
]
"""A relation and a number, a percentage, or the base's figure with an optional change by a number."""


def check_passes(check: Check, found: float, base: float) -> bool:
    """True if a figure passes a check, given the same figure of the base."""
    parts = _PATTERN.fullmatch(check)
    if parts is None:
        raise ValueError(f"expected a comparison, found {check!r}")
    limit = _limit(parts, base)
    if abs(found - limit) <= _TOLERANCE * max(1.0, abs(limit)):
        found = limit
    return _RELATIONS[parts["relation"]](found, limit)


def _limit(parts: re.Match[str], base: float) -> float:
    if parts["number"] is not None:
        return _number(parts["number"]) / (100 if parts["percent"] else 1)
    return base if parts["sign"] is None else _SIGNS[parts["sign"]](base, _number(parts["change"]))


def _number(text: str) -> float:
    return float(text.replace(",", ""))


class Expectation(Noun):
    """A condition on the scenario's plan; if it has several statements, all must hold."""

    job: Name | None = None
    """Job that `runs` refers to."""
    runs: bool | None = None
    """True: the job runs once the plan is applied; false: it waits."""
    jobs_running: Check | None = None
    """Jobs that run after the plan."""
    jobs_started: Check | None = None
    """Jobs that the plan starts."""
    jobs_waiting: Check | None = None
    """Jobs that wait after the plan."""
    jobs_preempted: Check | None = None
    """Running jobs that the plan stops."""
    gpus_total: Check | None = None
    """Usable GPUs of the cluster after the plan."""
    gpus_held: Check | None = None
    """GPUs that jobs hold after the plan."""
    gpus_free: Check | None = None
    """Usable GPUs that no job holds after the plan."""
    gpu_allocation_ratio: Check | None = None
    """GPUs held divided by usable GPUs, from 0 to 1."""
    fragmentation_ratio: Check | None = None
    """Part of the free GPUs on which no replica of the reference gang fits, from 0 to 1."""
    jain_index: Check | None = None
    """Jain's fairness index of the queues, from 0 to 1."""
    lost_gpu_hours: Check | None = None
    """GPU-hours of work that are lost."""
    nodes_added: Check | None = None
    """Nodes that the plan adds."""
    nodes_removed: Check | None = None
    """Nodes that the plan removes."""
    hourly_cost: Check | None = None
    """Cost of the nodes after the plan, in the cluster's currency per hour."""
    objective: Check | None = None
    """Objective of the plan, in points."""
    gap: Check | None = None
    """Proven gap of the plan, as a fraction of its objective."""

    @model_validator(mode="after")
    def _says_something(self) -> Expectation:
        if (self.job is None) != (self.runs is None):
            missing = "runs" if self.runs is None else "job"
            raise ValueError(f"expected job and runs together, found no {missing}")
        if self.job is None and not self.checks:
            raise ValueError("expected a figure with a comparison, or job and runs, found neither")
        return self

    @property
    def statements(self) -> int:
        """Number of statements."""
        return len(self.checks) + (self.job is not None)

    @property
    def checks(self) -> dict[str, Check]:
        """Comparisons by figure."""
        stated: dict[str, Any] = self.model_dump(exclude={"job", "runs"}, exclude_none=True)
        return stated


# The scenario itself.


class Scenario(Noun):
    """A named list of changes and expectations; without changes the world is the base itself."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    name: Name
    """Name of the scenario."""
    description: Annotated[str, Field(max_length=200)] = ""
    """One sentence for people."""
    changes: tuple[Change, ...] = ()
    """Changes to snapshot and policy, applied in this order; an empty list is the base itself."""
    expectations: tuple[Expectation, ...] = ()
    """What must hold of the scenario's plan."""
