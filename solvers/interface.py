"""Input and output of every exact solver."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.params.search import SearchParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpuplan.models.formulation.decode import Aggregate
    from gpuplan.models.formulation.rows import Cut, Formulation, Ints
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.solvers.params.exact import HighsParams

    Floats: TypeAlias = NDArray[np.float64]


RELAXES_FIRST: Final = "gpuplan.solvers.exact.milp:solve"
"""The solver that solves the linear relaxation first if there are more columns."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a solver run."""

    deadline: float
    """Instant of `time.monotonic`, which all processes of a machine share."""
    workers: int = 1
    seed: int = 0
    ticks: int | None = None
    """Deterministic work; with it the answer does not depend on the clock unless `deadline` comes first."""
    stop_gap: float = 0.0
    iterations: int | None = None
    """Of the simplex method, for each linear program; None is no limit."""
    params: SearchParams = SearchParams()

    @property
    def seconds(self) -> float:
        """Wall-clock time left, at least 0.01 s."""
        return max(0.01, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """Claims of a solver; none is trusted until it is verified."""

    status: SolveStatus
    values: Ints | None = None
    """Of all columns, with OPTIMAL and FEASIBLE; with NO_ANSWER a guess that may violate rows."""
    bound: int | None = None
    """Upper bound on the objective."""
    multipliers: Floats | None = None
    """One per row; they give a bound that need not be trusted: see `dual_bound`."""
    cuts: tuple[Cut, ...] = ()
    """Valid inequalities that were added to the formulation, also for the multipliers."""
    detail: str = ""
    """The solver's own status text."""
    is_vertex: bool = False
    """True if `values` is the rounded vertex at which the linear relaxation ended."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Maximum points by which any plan can be better than the one that is being refined."""

    points: int


@dataclass(frozen=True, slots=True)
class PlacedAnswer:
    """An answer of the block model, and the plan that placement made of it."""

    aggregate: Aggregate
    points: int
    """Points of the answer, relative to changing nothing."""
    target: DesiredState


@dataclass(frozen=True, slots=True)
class RepairedAnswer:
    """A better plan for an answer of the block model."""

    target: DesiredState
    lacking: int
    """Jobs of the answer that have no place in it."""


def begins_with_relaxation(solver: str, formulation: Formulation, params: HighsParams) -> bool:
    """True if a solver, named by its entry point, solves the linear relaxation itself and reports it."""
    large = len(formulation.later) > params.many_later or len(formulation.upper) > params.many_columns
    return large and solver == RELAXES_FIRST


def validated_answer(message: object) -> SolverAnswer | None:
    """The message if it is an answer with parts of the right types; its claims may still be wrong."""
    if not isinstance(message, SolverAnswer) or not isinstance(message.status, SolveStatus):
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


Report: TypeAlias = "Callable[[SolverAnswer], None]"
"""Takes the answers of a solver so far, in case it ends without a last one."""


class Solver(Protocol):
    """Maximizes a formulation within a budget; `hint` is a complete feasible assignment."""

    def __call__(self, formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> SolverAnswer:
        """Solve; report better values and bounds on the way."""
        ...


RELATIVE_ERROR: Final = 1e-9
"""Relative error of an objective or bound that was computed in floating point."""


def integer_bound(bound: float, *, relative_error: float = 0.0) -> int:
    """Largest integer objective that a bound allows, the rounding error of floating-point sums included."""
    return math.floor(bound + max(1e-6, relative_error * abs(bound)))
