"""What commands that plan have in common: the question that is asked, and how hard it is thought about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuplan.planner.cli.arguments import ANY_PATH
from gpuplan.planner.cli.options import Duration, Share, working
from gpuplan.planner.cli.speaking import say

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
        type=Duration(),
        help="Wall clock for each plan, such as 10s; with --deterministic a safety stop at ten times that.",
    ),
    click.option(
        "--solver",
        type=click.Choice(["auto", "milp", "cpsat", "greedy"]),
        default="auto",
        show_default=True,
        help="auto: as the policy says.",
    ),
    click.option("--stop-gap", type=Share(), help="Stop when proven to be so close to the best, such as 1%."),
    click.option("--strict", is_flag=True, help="Refuse a snapshot that counts on what the world has lost."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the solvers."),
    click.option("--deterministic", is_flag=True, help="Stop solvers by work done, not by the clock."),
)


@dataclass(frozen=True)
class Question:
    """What is to be planned."""

    snapshot: Snapshot
    policy: Policy
    policy_file: str | None
    """Where the policy was read from; None for the default one."""
    seed: int


def planning_options(command: _Command) -> _Command:
    """Options of a command that plans a SOURCE; `read_question` takes them."""
    for option in reversed(_OPTIONS):
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
    strict: bool = False,
) -> Question:
    """Read a snapshot and its policy, with what the command line overrides."""
    from gpuplan.planner.search_options import with_options
    from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot

    with working("reading"):
        snapshot = load_snapshot(source, strict=strict)
        policy_file = policy_file or default_policy_path(source)
        policy = load_policy(policy_file)
    policy = with_options(policy, time_limit, solver, stop_gap=stop_gap, deterministic=deterministic)
    return Question(snapshot, policy, policy_file, seed)


def read_sound_question(source: str, **planning: Any) -> Question:
    """As `read_question`, about the snapshot without what is lost."""
    question = read_question(source, **planning)
    return replace(question, snapshot=sound_part(question.snapshot))


def sound_part(snapshot: Snapshot) -> Snapshot:
    """The snapshot without what is lost; how much that is goes to standard error."""
    from gpuplan.models.validation.damage import survey
    from gpuplan.planner.formatting import counted

    found = survey(snapshot)
    if released := sum(loss.released for loss in found.losses.values()):
        jobs = counted(released, "running job")
        say(f"Without lost places of {jobs}; `gpuplan validate` names them.", err=True)
    return found.sound
