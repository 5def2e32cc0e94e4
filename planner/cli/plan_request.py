"""Options and input that all planning commands share: snapshot, policy, solver and search limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuplan.planner.cli.console_log import say
from gpuplan.planner.cli.options import ANY_PATH, DurationType, FractionType, show_spinner

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


_Command = TypeVar("_Command", bound="Callable[..., Any]")

_OPTIONS = (
    click.option(
        "--policy",
        "policy_file",
        type=ANY_PATH,
        help="Policy file; by default policy.yaml in SOURCE, else defaults.",
    ),
    click.option(
        "--time-limit",
        type=DurationType(),
        help="Wall clock for each plan, such as 10s; with --deterministic a safety stop at ten times that.",
    ),
    click.option(
        "--solver",
        type=click.Choice(["auto", "milp", "cpsat", "greedy"]),
        default="auto",
        show_default=True,
        help="auto: as the policy says.",
    ),
    click.option(
        "--stop-gap", type=FractionType(), help="Stop at this proven gap to the best plan, such as 1%."
    ),
    click.option("--strict", is_flag=True, help="Refuse a snapshot that refers to lost nodes or GPUs."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the solvers."),
    click.option("--deterministic", is_flag=True, help="Stop solvers by work done, not by the clock."),
)


@dataclass(frozen=True)
class PlanRequest:
    """A snapshot to plan, with its policy and seed."""

    snapshot: Snapshot
    policy: Policy
    policy_file: str | None
    """File of the policy; None for the default policy."""
    seed: int


def planning_options(command: _Command) -> _Command:
    """Add the planning options to a command; `read_plan_request` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_plan_request(
    source: str,
    *,
    policy_file: str | None,
    time_limit: int | None,
    solver: str,
    stop_gap: float | None,
    seed: int,
    deterministic: bool,
    strict: bool = False,
) -> PlanRequest:
    """Read a snapshot and its policy, with the overrides of the command line."""
    from gpuplan.planner.search_options import with_options
    from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot

    with show_spinner("reading"):
        snapshot = load_snapshot(source, strict=strict)
        policy_file = policy_file or default_policy_path(source)
        policy = load_policy(policy_file)
    policy = with_options(policy, time_limit, solver, stop_gap=stop_gap, deterministic=deterministic)
    return PlanRequest(snapshot, policy, policy_file, seed)


def read_undamaged_request(source: str, **planning: Any) -> PlanRequest:
    """Same as `read_plan_request`, for the snapshot without lost places."""
    question = read_plan_request(source, **planning)
    return replace(question, snapshot=without_damage(question.snapshot))


def without_damage(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without lost places; prints to standard error how many jobs that concerns."""
    from gpuplan.models.validation.damage import survey_damage
    from gpuplan.planner.text_format import format_count

    found = survey_damage(snapshot)
    if released := sum(loss.released for loss in found.losses.values()):
        jobs = format_count(released, "running job")
        say(f"Without lost places of {jobs}; `gpuplan validate` names them.", err=True)
    return found.sound
