"""`gpuplan diff --policy OLD NEW SOURCE`: the jobs that gain or lose by a change of policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.planner.cli.options import working
from gpuplan.planner.cli.planning import sound_part

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
    from gpuplan.planner.whatif.grid.workers import Processes, all_of, processors
    from gpuplan.planner.whatif.policy_review import plan_of, review
    from gpuplan.planner.whatif.trials import PLAN, Case, task_of

    with working("reading"):
        snapshot = sound_part(load_snapshot(source)).canonical()
        policies = [
            with_options(
                load_policy(file), time_limit, solver, stop_gap=stop_gap, deterministic=deterministic
            )
            for file in files
        ]
    names = ("old", "new")
    with working("planning under both policies"):
        tasks = [task_of(Case(snapshot, policy, seed), PLAN) for policy in policies]
        outcomes = all_of(Processes(min(2, processors())), tasks, names, lambda _: None)
    old, new = (plan_of(outcome, name) for outcome, name in zip(outcomes, names, strict=True))
    with working("comparing"):
        return review(old, new)
