"""What every exact solver is given and what it gives back."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from gpuplan.models.plan.solution import SolveStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpuplan.models.formulation.rows import Cut, Formulation, Ints

    Floats: TypeAlias = NDArray[np.float64]

MANY_LATER: Final = 1_000
"""More columns of later starts than this need a choice among them."""

MANY_COLUMNS: Final = 1_000
"""More columns than this need one too."""


RELAXES_FIRST: Final = "gpuplan.solvers.exact.milp:solve"
"""Solves the linear relaxation first where there are so many."""


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
    iterations: int | None = None
    """Of the simplex method, for each linear program; None is no limit."""

    @property
    def seconds(self) -> float:
        """Wall clock left, never less than a moment."""
        return max(0.01, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver claims; nothing in it is trusted until it is verified."""

    status: SolveStatus
    values: Ints | None = None
    """Of all columns, with OPTIMAL and FEASIBLE; with NO_ANSWER a guess that may break rows."""
    bound: int | None = None
    """No assignment scores more."""
    multipliers: Floats | None = None
    """One a row, from which a bound follows that need not be believed: see `certificate`."""
    cuts: tuple[Cut, ...] = ()
    """Rows that follow from those of the formulation and were added to them, also for the multipliers."""
    detail: str = ""
    """The solver's own words about how it ended."""
    is_vertex: bool = False
    """True if `values` are the vertex at which the linear relaxation has ended, rounded."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """By so many points, at most, can any plan be better than the one that is being refined."""

    points: int


def begins_with_relaxation(solver: str, formulation: Formulation) -> bool:
    """True if a solver, named as an entry point, solves the linear relaxation itself and reports it."""
    large = len(formulation.later) > MANY_LATER or len(formulation.upper) > MANY_COLUMNS
    return large and solver == RELAXES_FIRST


def well_formed(message: object) -> Answer | None:
    """The message if it is an answer whose parts are of the right types; what they say may still be wrong."""
    if not isinstance(message, Answer) or not isinstance(message.status, SolveStatus):
        return None
    if not (message.bound is None or type(message.bound) is int) or not isinstance(message.detail, str):
        return None
    for part, kind in ((message.values, "i"), (message.multipliers, "f")):
        if part is not None and not (isinstance(part, np.ndarray) and part.dtype.kind == kind):
            return None
    return message if _are_cuts(message.cuts) else None


def _are_cuts(cuts: object) -> bool:
    return isinstance(cuts, tuple) and all(
        isinstance(cut, tuple)
        and len(cut) == 2
        and isinstance(cut[1], tuple)
        and all(type(position) is int for position in (cut[0], *cut[1]))
        for cut in cuts
    )


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
