"""
Disruption budget: how many replicas or jobs of a group may be unavailable at a time, as far as plans decide.

The terms are those of Kubernetes' PodDisruptionBudget (`maxUnavailable`, `minAvailable`) and of the
disruption budgets of Karpenter (a budget may be in force at some times only). Percentages round up, as there.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.calendar import Recurring
from gpuplan.models.units import LARGEST_COUNT, Label, Name, Seconds

if TYPE_CHECKING:
    from datetime import datetime

_PERCENT: Final = re.compile(r"(\d{1,3}) ?%")


def _portion(value: Any) -> int | str:
    """A number, or a percentage in its only form, such as `25%`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT:
        return value
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1]) > 100:
        raise ValueError(
            f"expected a number such as 2, or a percentage up to 100% such as 25%, found {value!r}"
        )
    return f"{int(match[1])}%"


Portion: TypeAlias = Annotated[
    int | str,
    BeforeValidator(_portion),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": LARGEST_COUNT},
                {"type": "string", "pattern": r"^(100|[1-9]?\d) ?%$", "examples": ["25%"]},
            ]
        }
    ),
]
"""A number of a whole, or a percentage of it, as Kubernetes' IntOrString."""


class BudgetUnit(StrEnum):
    """What a disruption budget counts."""

    REPLICAS = "replicas"
    JOBS = "jobs"


class DisruptionBudget(Noun):
    """Limit on the jobs of a group that are unavailable at a time; plans that disrupt more are not made."""

    name: Name
    """Name of the budget, shown where it keeps a job from being disrupted."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Labels of the jobs of the group; such a job has all of them. Empty is every job."""
    queue: Name | None = None
    """Queue of the jobs of the group, with all queues below it; absent is every queue."""
    max_unavailable: Portion | None = None
    """Maximum number, or percentage, that may be unavailable; a percentage rounds up."""
    min_available: Portion | None = None
    """Minimum number, or percentage, that stays available, instead; a percentage rounds up."""
    counts: BudgetUnit = BudgetUnit.REPLICAS
    """What is counted: replicas, or whole jobs whatever their size."""
    min_ready: Seconds = 0
    """Time that a job which was stopped or moved counts as unavailable after it runs again."""
    windows: tuple[Recurring, ...] = ()
    """Times at which the budget is in force; empty is always."""

    @model_validator(mode="after")
    def _one_limit(self) -> DisruptionBudget:
        if (self.max_unavailable is None) == (self.min_available is None):
            found = "neither" if self.max_unavailable is None else "both"
            raise ValueError(f"expected one of max_unavailable and min_available, found {found}")
        return self

    def __hash__(self) -> int:
        """Dicts are not hashable, so hash their sorted items."""
        limits = self.max_unavailable, self.min_available, self.counts, self.min_ready
        return hash((self.name, tuple(sorted(self.labels.items())), self.queue, limits, self.windows))

    def is_in_force(self, now: datetime) -> bool:
        """True at an instant in one of its windows, or always if it has none."""
        return not self.windows or any(
            begins <= 0 for window in self.windows for begins, _ in window.spans(now, 1)
        )

    @property
    def limit_text(self) -> str:
        """The limit as written: `max_unavailable 25%`."""
        if self.max_unavailable is not None:
            return f"max_unavailable {self.max_unavailable}"
        return f"min_available {self.min_available}"


def portion_of(portion: int | str, whole: int) -> int:
    """The number that a portion stands for: itself, or the percentage of the whole, rounded up."""
    if isinstance(portion, int):
        return portion
    return -(-int(portion.removesuffix("%")) * whole // 100)
