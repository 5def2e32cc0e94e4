"""Comparison: a base and its scenarios in figures, each as the production planner leaves it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from planner.models.base import Noun
from planner.models.reason import ReasonCode
from planner.models.units import MILLI, Count, Milli, Name, Timestamp


class ModelUse(Noun):
    """Usable GPUs of one model, and what of them is held."""

    gpu_model: Name
    usable: Milli
    used: Milli

    @property
    def ratio(self) -> float:
        """Part that is held; 0 of none."""
        return round(self.used / self.usable, 6) if self.usable else 0.0


class Figures(Noun):
    """A plan in figures: the cluster once it is applied, and how good it is."""

    plan_id: str
    jobs_running: Count
    jobs_started: Count
    jobs_waiting: Count
    jobs_preempted: Count
    gpus_total: Milli
    """Usable: healthy, on ready nodes."""
    gpus_held: Milli
    gpus_free: Milli
    gpu_allocation_ratio: float
    fragmentation_ratio: float
    jain_index: float
    lost_gpu_hours: float
    """Work in no checkpoint, of jobs that the plan stops, shrinks or moves."""
    nodes_added: Count
    nodes_removed: Count
    hourly_cost: float
    """In the cluster's currency."""
    objective: int
    bound: int | None
    gap: Annotated[float, Field(ge=0)] | None
    status: str
    solver: str
    seconds: float
    terms: dict[str, int]
    waiting: dict[ReasonCode, Count]
    """Waiting jobs by why they wait."""
    gpu_models: tuple[ModelUse, ...]
    """By name."""

    def figure(self, name: str) -> float | None:
        """One number by the name of its field; None if nobody knows it."""
        value: float | None = getattr(self, name)
        milli = name in ("gpus_total", "gpus_held", "gpus_free")
        return value / MILLI if milli and value is not None else value


RATIOS: Final = frozenset({"gpu_allocation_ratio", "fragmentation_ratio", "gap"})
"""Figures that are parts of a whole."""


class Trial(Noun):
    """One world and what became of it."""

    name: Name
    description: str = ""
    figures: Figures | None = None
    """None if it could not be planned."""
    failure: str = ""
    """Why it could not be planned."""
    expected: Count = 0
    """Statements that its scenario makes about its plan: figures, and jobs that run or wait."""
    unmet: tuple[str, ...] = ()
    """Those of them that do not hold, with what was found."""
    differences: dict[str, float] = Field(default_factory=dict)
    """Of figures from the base's, those that are not 0."""


class Comparison(Noun):
    """A base and its scenarios, planned alike."""

    snapshot: str
    """Fingerprint."""
    policy: str
    """Fingerprint."""
    epoch: Timestamp
    seed: int
    base: Trial
    scenarios: tuple[Trial, ...]

    @property
    def expected(self) -> int:
        """Statements that scenarios make about their plans."""
        return sum(trial.expected for trial in self.scenarios)

    @property
    def sound(self) -> bool:
        """True if everything could be planned and is as expected."""
        return not any(trial.failure or trial.unmet for trial in (self.base, *self.scenarios))
