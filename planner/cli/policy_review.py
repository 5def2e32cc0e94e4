"""`gpuplan diff --policy OLD NEW SOURCE`: who gains and who loses by a change of policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from planner.cli.options import ascii_only, terminal_width, wants_colour, working

if TYPE_CHECKING:
    from planner.models.policy_review import PolicyReview


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
    """Plan a snapshot under the old and the new policy, beside each other where there are processors."""
    from planner.cli.plan import with_options
    from planner.policy_review import plan_of, review, task_of
    from planner.sources.files import load_policy, load_snapshot
    from planner.whatif.engines import Processes, all_of, processors

    with working("reading"):
        snapshot = load_snapshot(source).canonical()
        policies = [
            with_options(
                load_policy(file), time_limit, solver, stop_gap=stop_gap, deterministic=deterministic
            )
            for file in files
        ]
    names = ("old", "new")
    with working("planning under both policies"):
        tasks = [task_of(snapshot, policy, seed) for policy in policies]
        outcomes = all_of(Processes(min(2, processors())), tasks, names, lambda _: None)
    old, new = (plan_of(outcome, name) for outcome, name in zip(outcomes, names, strict=True))
    with working("comparing"):
        return review(old, new)


def show_review(found: PolicyReview, *, as_json: bool, plain: bool, everything: bool) -> None:
    """Print a review."""
    if as_json:
        click.echo(found.model_dump_json(indent=2))
        return
    from planner.rendering.policy_review import review_text

    text = review_text(
        found,
        width=terminal_width(),
        colour=wants_colour(),
        ascii_only=plain or ascii_only(),
        verbose=everything,
    )
    click.echo(text, nl=False)
