"""
`SearchParams`: all parameters of one search, in parts.

`Limits.params` carries them through the portfolio and, pickled, into the processes of solvers. The docstring
of each field gives the unit, the meaning, and the case that set the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuplan.models.formulation.params import FormulationParams
from gpuplan.solvers.params.exact import ExactParams
from gpuplan.solvers.params.improve import (
    AnswerRepairParams,
    ColumnGenerationParams,
    FinerModelParams,
    LnsParams,
    PartitionParams,
)
from gpuplan.solvers.params.placement import PlacementParams


@dataclass(frozen=True, slots=True)
class PortfolioParams:
    """The order of solvers and the time of each."""

    drafts_per_problem: float = 1.8
    """
    Reasons, actions, the plan file and the text on the screen take as long as building the problem this many
    times, also on a slow or busy host, if all jobs run. The search ends that much earlier (decision 0021).
    Sizes M to XL, 200 queues and 50,000 jobs of odd shares: 2.9 to 4.4, the more the more jobs wait (decision
    0043).
    """

    drafts_per_problem_of_waiting: float = 3.5
    """How many times more if all jobs wait. The same cases (decision 0043)."""

    problem_per_later_slot: float = 0.12
    """
    Time to build the problem for each slot but the first, in units of that for one slot. M, L and XL with 12
    slots: 2.4 to 2.7 times as long in all (decision 0043).
    """

    least_drafts: float = 0.2
    """Seconds that they take in any case; sizes S and M (decision 0043)."""

    bounds_per_problem: float = 3.0
    """
    To build and relax the block model takes as long as building the problem this many times (2.5 at 100,000
    GPUs, 3.3 at 10,000). Kept back from the search until a solver's process has reported its multipliers
    (decision 0021).
    """

    most_of_limit_for_bound: float = 0.55
    """
    Where the last bound takes more than this part of the limit, half of the time left is kept back for it. XL
    with 12 slots, 60 s, of which 39 s for the bound: greedy had no time for later starts, and there was no
    bound in the end. L, 10 s, a third of a core: 5 s, and there is a bound (decision 0043).
    """

    least_of_bound: float = 0.33
    """
    This part of what it takes is kept back even then. XL with 12 slots, 60 s: 13 of 39 s, and greedy
    has the 10 s that it needs (decision 0043).
    """

    bound_seconds_in_process: float = 2.0
    """
    Where so much time or more is kept back for the last bound, a process computes it that can be killed: to
    start one takes 0.6 s of CPU. 200 queues, L (decision 0048): 5 to 7 s are kept back, and of 11 s 6 went
    into building the model again.
    """

    reserves_of_last_bound: float = 1.5
    """
    That process is killed after this many times the time kept back for it (`bounds_per_problem`): relaxing
    ends in time if the model is there by then. XL with 12 slots, where it is not (decision 0048): three times
    that was 146 s, for no bound.
    """

    checks_of_no_change_per_plan: float = 3.0
    """
    To check a plan takes about as long as checking this many times that nothing changes: 1.1 and 3.4 s with
    200 queues, L, seed 1 (decision 0048).
    """

    packings_per_problem: float = 3.0
    """
    To pack all nodes takes at most as long as building the problem this many times. 50,000 jobs of odd shares
    on 10,000 GPUs: two to three times, beside greedy, which takes one to two (decision 0047).
    """

    many_nodes: int = 5_000
    """Nodes from which on the first solver begins while greedy plans: both cores are busy (decision 0008)."""

    choices_to_load_ahead: int = 150
    """
    Possible starts (as `SolverChildParams.few_choices`) above which the process of the solver starts before
    greedy plans: it takes 0.6 s of CPU. 61 jobs on 32 GPUs have 58, and are decided in 30 ms without it; S
    has 230 and needs it (decision 0033).
    """

    choices_in_process: int = 350
    """
    Possible starts up to which a stage is first tried in the planner's own process although another one is
    loading. With more HiGHS would only relax its model there, and the other process does so again: M
    (decision 0033).
    """

    choices_to_share: int = 50_000
    """
    Possible starts up to which the worker builds the model of all stages once. It is held beside the memory
    of the solver: with more, as XL with 12 slots, each stage builds its own (decision 0033).
    """

    share_of_next_solver: float = 0.25
    """
    A solver is asked after one that found nothing if there is at least this fraction of the time that took.
    M, seeds 0 to 2: CP-SAT got what HiGHS had left of a stage, built the model again and was stopped at once
    (decision 0033).
    """

    bounds_per_stage: float = 2.0
    """
    A stage but the last is asked of a solver only if it gets this many times as long as to build and relax
    the block model. XL, 60 s, seeds 1, 2 and 4: with 8 to 11 s the second stage found nothing, and left the
    last one 13 to 20 s of the 25 that it needs; plans were 0.4 to 5 % below the bound (decision 0037).
    """

    max_stages: int = 8
    """
    Highest priorities for which exact solvers run, besides the lowest; greedy plans the rest. No record of
    the case that set it.
    """

    verifications_per_greedy: int = 10
    """Greedy takes about as long as this many checks of a plan. No record of the case that set it."""

    verifications_per_report: int = 4
    """
    A reported plan is checked only if there is time for this many checks. No record of the case that set it.
    """


@dataclass(frozen=True, slots=True)
class SearchParams:
    """All parameters of a search."""

    portfolio: PortfolioParams = PortfolioParams()
    placement: PlacementParams = PlacementParams()
    formulation: FormulationParams = FormulationParams()
    exact: ExactParams = ExactParams()
    repair: AnswerRepairParams = AnswerRepairParams()
    finer_model: FinerModelParams = FinerModelParams()
    lns: LnsParams = LnsParams()
    partition: PartitionParams = PartitionParams()
    column_generation: ColumnGenerationParams = ColumnGenerationParams()
