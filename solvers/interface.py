"""What every exact solver is given and what it gives back."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.models.formulation.rows import Formulation, Ints
    from planner.models.solution import SolveStatus


@dataclass(frozen=True, slots=True)
class Budget:
    """When a solver must stop."""

    deadline: float
    """Instant of `time.monotonic`, which all processes of a machine share."""
    workers: int = 1
    seed: int = 0
    ticks: int | None = None
    """Deterministic work; with it the answer does not depend on the clock unless `deadline` comes first."""
    stop_gap: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall clock left, never less than a moment."""
        return max(0.01, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver claims; nothing in it is trusted until it is verified."""

    status: SolveStatus
    values: Ints | None = None
    """Of all columns, with OPTIMAL and FEASIBLE only."""
    bound: int | None = None
    """No assignment scores more."""
    detail: str = ""
    """The solver's own words about how it ended."""


Report: TypeAlias = "Callable[[Answer], None]"
"""Takes what a solver has so far, should it not live to give its last answer."""


class Solver(Protocol):
    """Maximizes a formulation within a budget; `hint` is a complete feasible assignment."""

    def __call__(self, formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> Answer:
        """Solve; report better values and bounds on the way."""
        ...


def integer_bound(bound: float, *, relative_error: float = 0.0) -> int:
    """The largest integer objective a bound allows, the rounding error of floating-point sums included."""
    return math.floor(bound + max(1e-6, relative_error * abs(bound)))
