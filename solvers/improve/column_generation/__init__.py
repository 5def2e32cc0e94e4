"""
Repack nodes with plain jobs, by column generation over configurations.

A *configuration* is one node filled with replicas. The block model sums floors over nodes. This is only a
relaxation for GPU shares, for sizes that do not divide each other, and where CPU or memory is scarce. An
answer in configurations can always be placed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.solvers.improve.column_generation.master import Master
from gpuplan.solvers.improve.column_generation.pricing_loop import generate_columns
from gpuplan.solvers.improve.column_generation.rounding import place_solution
from gpuplan.solvers.improve.column_generation.subproblem import extract_repack_problem
from gpuplan.solvers.params.improve import ColumnGenerationParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RepackResult:
    """Result of repacking a plan."""

    before: int
    after: int
    """Objective of the ledger; never less than `before`."""
    bound: int | None = None
    """Upper bound over all repackings of these nodes; None if none was proven in time."""
    configurations: int = 0
    rounds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase: lift, generate, round, place."""


def repack(
    ledger: Ledger,
    *,
    nodes: Ints | None,
    deadline: float,
    seed: int,
    params: ColumnGenerationParams = ColumnGenerationParams(),
) -> RepackResult:
    """
    Fill nodes (None: all) anew with the plain jobs on them and with waiting ones.

    A job is plain if only room and price decide where it goes, and if it starts with a fixed number of
    replicas. All other jobs stay. If the objective does not rise, nothing changes. `deadline` is an instant
    of `time.monotonic`; the result is deterministic if everything ends before it. With several slots nothing
    is done.
    """
    before, clock = ledger.objective, _PhaseTimes()
    if ledger.problem.slots > 1 or clock.now >= deadline:
        return RepackResult(before, before)
    mark = ledger.mark()
    question = extract_repack_problem(ledger, nodes, params)
    base, lifting = ledger.objective, clock.lap("lift")
    if not question.offers:
        return RepackResult(before, before, before, seconds=clock.seconds)
    last = deadline - params.placing_factor * lifting
    master = Master(ledger, question, seed)
    found = generate_columns(
        master,
        question,
        ledger.problem.charges,
        deadline=clock.now + params.share_of_pricing * (last - clock.now),
        seed=seed,
    )
    clock.lap("generate")
    bound = None if found.bound is None else base + found.bound
    if bound is None or bound > before:
        answer = master.maximize(last, inf if found.bound is None else found.bound)
        clock.lap("round")
        if answer is not None:
            place_solution(ledger, question, answer)
            clock.lap("place")
    if ledger.objective <= before:
        ledger.rollback(mark)
    return RepackResult(before, ledger.objective, bound, found.configurations, found.rounds, clock.seconds)


class _PhaseTimes:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.seconds: dict[str, float] = {}

    def lap(self, phase: str) -> float:
        """End a phase; returns its duration."""
        began, self.now = self.now, time.monotonic()
        self.seconds[phase] = self.now - began
        return self.seconds[phase]
