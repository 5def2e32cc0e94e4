"""
Parameters of the exact solvers: HiGHS on the block model, and how its answers become plans.

The docstring of each field gives the unit, the meaning, and the case that set the default. A field of type
bool switches an improver off.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HighsParams:
    """HiGHS on one formulation."""

    nodes_per_tick: int = 100
    """
    Branch-and-bound nodes per unit of deterministic work. No record of the case that set it; the plans of
    tests/net are made with it.
    """

    many_columns: int = 1_000
    """
    Columns above which the linear relaxation is solved first, and the search begins near it. 20,000 in
    decision 0008, 1,000 since decision 0009: up to it the model is solved to proven optimality.
    """

    many_later: int = 1_000
    """Columns of later starts above which it is solved first too. No record of the case that set it."""

    near_relaxation: bool = True
    """
    Search first among answers near the linear relaxation; without it only the last search, of all columns,
    is run. S with 12 slots and 5 ticks: 4.9 % worse without (docs/benchmarks.md).
    """

    dive: bool = True
    """
    With many later starts, first fix all starts that are integral in the relaxation. S with 12 slots, seed 2,
    5 ticks: 1.1 % worse without (decision 0040).
    """

    shares_of_free_columns: tuple[float, ...] = (0.35, 0.6)
    """
    Fractions of columns that may differ from the relaxation, one search after the other. No record of the
    case that set them; at L5, without gang covers, fixing by reduced cost lost 3.9 % (decision 0007).
    """

    share_of_dive: float = 0.4
    """Fraction of the time left for the dive. No record of the case that set it."""

    share_of_core: float = 0.75
    """Fraction of the time left for each search near the relaxation. No record of the case that set it."""

    share_of_mending: float = 0.15
    """
    Fraction of the time of a search kept to search again where its answer violates rows that were not stated:
    1.6 of 20 s of CPU for 200 queues, seed 1 (decision 0045).
    """

    most_mendings: int = 30
    """
    Searches at most to mend the answers of one search, so that a search that counts work instead of time ends
    too (decision 0045).
    """

    accepted_gap: float = 0.0002
    """
    Relative gap that is not worth more time: placing replicas on nodes loses more. No record of the case that
    set it; plans of size L and more end with it (docs/benchmarks.md).
    """

    many_columns_for_likely_covers: int = 20_000
    """
    Columns above which the relaxation starts with the gang covers that it is likely to violate. XL: 6 rounds
    instead of 27; at L the search took 11.5 s with them, and 9.2 s without (decision 0008).
    """

    share_of_covers: float = 0.6
    """Fraction of the time after which no more gang covers are added. No record of the case that set it."""


@dataclass(frozen=True, slots=True)
class ExactRunParams:
    """One run of an exact solver, and the placement of its answers."""

    place_vertex: bool = True
    """Place the rounded vertex of the relaxation while the solver goes on (decision 0007)."""

    place_intermediate: bool = True
    """Place intermediate answers while the solver goes on, if the clock limits the work (decision 0009)."""

    least_gain: float = 0.001
    """
    Fraction of the objective by which an intermediate answer must be better to be placed. No record of the
    case that set it.
    """

    share_of_time: float = 0.65
    """
    Fraction of the time (without that for placing) for the search, before placing and refining … No record of
    the case that set it.
    """

    share_of_time_if_large: float = 1.0
    """
    The same for clusters of `PortfolioParams.many_nodes`. XL, 60 s, seeds 1 and 2: with 0.65 the search was
    stopped seconds before its answer, 0.6 and 0.4 % below the bound, and refining gained nothing (decision
    0037).
    """

    least_seconds: float = 10.0
    """
    … but at least this many seconds, if available: a solver that has not begun to search is of little use. No
    record of the case that set it.
    """

    share_before_finer_model: float = 0.3
    """
    Fraction of the time for the search if the finer model follows … M, seed 1: the block model takes 24 s of
    CPU to its optimum; the finer one has as good an answer after 6 s, of which placing loses 0.5 % (decision
    0036).
    """

    least_before_finer_model: float = 3.0
    """
    … but at least this many seconds, if available: to start a process takes a second on a busy host. No
    record of the case that set it.
    """

    seconds_for_bound: float = 2.0
    """Seconds to improve the bound of a plan that stays as it is. No record of the case that set it."""

    verifications_per_placing: float = 2.5
    """
    Placing an answer takes about as long as this many checks of the plan: 1.2 at XL, 2.5 at L (decision
    0037).
    """

    placing_factor_of_slots: int = 4
    """Placing a plan with later slots takes this many times as long. No record of the case that set it."""


@dataclass(frozen=True, slots=True)
class SolverChildParams:
    """The child process of a solver, and small problems, which are solved without one."""

    share_of_relaxation: float = 0.6
    """
    Maximum fraction of the time for the relaxation, before a solver that does not solve it itself. No record
    of the case that set it.
    """

    share_of_reporting: float = 0.25
    """
    Time to report an answer, as a fraction of the time to build the model. No record of the case that set it.
    """

    few_choices: int = 1_000
    """
    Limit of a small problem on possible starts (class, group, slot) plus running jobs that may leave … To
    start a process takes a hundred times as long as the relaxation of 61 jobs on 32 GPUs (decision 0007).
    """

    few_nodes: int = 5_000
    """… on nodes … (decision 0007; no record of the case.)"""

    few_columns: int = 2_000
    """… and on columns of its model; (decision 0007; no record of the case.)"""

    very_few_columns: int = 600
    """
    with more columns than this only its linear relaxation is solved in this process. (Decision 0007; no
    record of the case.)
    """

    seconds: float = 0.5
    """Limit on the clock of a solver in this process. (Decision 0007; no record of the case.)"""

    iterations: int = 5_000
    """Simplex iterations of a linear program in this process. (Decision 0007; no record of the case.)"""

    ticks: int = 1
    """
    Deterministic work of a solver in this process: 100 nodes of the search. (Decision 0007; no record of the
    case.)
    """


@dataclass(frozen=True, slots=True)
class ExactParams:
    """Exact solvers."""

    highs: HighsParams = HighsParams()
    run: ExactRunParams = ExactRunParams()
    child: SolverChildParams = SolverChildParams()
