"""What a caller may set for one call, in place of a policy's own budget and solvers."""

from __future__ import annotations

from gpuplan.models.policy.policy import BudgetMode, Policy, SolverName


def with_options(
    policy: Policy,
    time_limit: int | None,
    solver: str,
    *,
    deterministic: bool,
    stop_gap: float | None = None,
) -> Policy:
    """
    The policy with what the caller overrides.

    `time_limit` is in milliseconds, `stop_gap` a fraction; None leaves what the policy says, as the solver
    `auto` does.
    """
    budget = policy.budget
    if time_limit is not None:
        budget = budget.model_copy(update={"time_limit_ms": time_limit})
    if stop_gap is not None:
        budget = budget.model_copy(update={"stop_gap": stop_gap})
    if deterministic:
        budget = budget.model_copy(update={"mode": BudgetMode.DETERMINISTIC})
    solvers = policy.solvers
    if solver != "auto":
        solvers = () if solver == "greedy" else (SolverName(solver),)
    return policy.model_copy(update={"budget": budget, "solvers": solvers})
