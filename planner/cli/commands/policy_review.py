"""`gpuplan diff --policy OLD NEW SOURCE`: the jobs that gain or lose by a change of policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.planner.cli.options import show_spinner
from gpuplan.planner.cli.plan_request import without_damage

if TYPE_CHECKING:
    from gpuplan.planner.whatif.answers.policy_review import PolicyReview


def review_policies(
    files: tuple[str, str],
    source: str,
    *,
    time_limit: int | None,
    solver: str,
    stop_gap: float | None,
    seed: int,
    deterministic: bool,
) -> PolicyReview:
    """Plan a snapshot under the old and the new policy, in parallel if there are two processors."""
    from gpuplan.planner.search_options import with_options
    from gpuplan.planner.sources.files import load_policy, load_snapshot
    from gpuplan.planner.whatif.grid.workers import Processes, processors, run_all_tasks
    from gpuplan.planner.whatif.policy_review import plan_of, review_plans
    from gpuplan.planner.whatif.trials import PLAN, TrialCase, task_of

    with show_spinner("reading"):
        snapshot = without_damage(load_snapshot(source)).canonical()
        policies = [
            with_options(
                load_policy(file), time_limit, solver, stop_gap=stop_gap, deterministic=deterministic
            )
            for file in files
        ]
    names = ("old", "new")
    with show_spinner("planning under both policies"):
        tasks = [task_of(TrialCase(snapshot, policy, seed), PLAN) for policy in policies]
        outcomes = run_all_tasks(Processes(min(2, processors())), tasks, names, lambda _: None)
    old, new = (plan_of(outcome, name) for outcome, name in zip(outcomes, names, strict=True))
    with show_spinner("comparing"):
        return review_plans(old, new)
