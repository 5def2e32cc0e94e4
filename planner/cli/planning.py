"""What commands that plan have in common: the question that is asked, and how hard it is thought about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from planner.cli.options import Duration, Share, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_OPTIONS = (
    click.option(
        "--policy", "policy_file", help="Policy file; by default policy.yaml in SOURCE, else defaults."
    ),
    click.option("--time-limit", type=Duration(), help="Wall clock for each plan, such as 10s."),
    click.option(
        "--solver",
        type=click.Choice(["auto", "milp", "cpsat", "greedy"]),
        default="auto",
        show_default=True,
        help="auto: as the policy says.",
    ),
    click.option("--stop-gap", type=Share(), help="Stop when so close to the best, such as 1%."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the solvers."),
    click.option("--deterministic", is_flag=True, help="Stop solvers by work done, not by the clock."),
)

_LAYOUT = (
    click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text."),
    click.option("--ascii", "plain", is_flag=True, help="No characters beyond ASCII."),
)


@dataclass(frozen=True)
class Question:
    """What is to be planned."""

    snapshot: Snapshot
    policy: Policy
    seed: int


def planning_options(command: _Command) -> _Command:
    """Options of a command that plans a SOURCE; `read_question` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def layout_options(command: _Command) -> _Command:
    """How what was found is shown."""
    for option in reversed(_LAYOUT):
        command = option(command)
    return command


def read_question(
    source: str,
    *,
    policy_file: str | None,
    time_limit: int | None,
    solver: str,
    stop_gap: float | None,
    seed: int,
    deterministic: bool,
) -> Question:
    """Read a snapshot and its policy, with what the command line overrides."""
    from planner.cli.plan import with_options
    from planner.sources.files import default_policy_path, load_policy, load_snapshot

    with working("reading"):
        snapshot = load_snapshot(source)
        policy = load_policy(policy_file or default_policy_path(source))
    policy = with_options(policy, time_limit, solver, stop_gap=stop_gap, deterministic=deterministic)
    return Question(snapshot, policy, seed)
