"""`gpuplan explain`: why a job starts, runs or waits, and how a queue or a node stands."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import Duration, ascii_only, terminal_width, wants_colour, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.explaining.naming import Kind
    from planner.models.base import Noun
    from planner.models.plan import Plan


@click.command("explain")
@click.argument("source")
@click.argument("name")
@click.option("--policy", "policy_file", help="Policy file; by default policy.yaml in SOURCE, else defaults.")
@click.option("--time-limit", type=Duration(), help="Wall clock for the epoch, such as 10s.")
@click.option(
    "--solver",
    type=click.Choice(["auto", "milp", "cpsat", "greedy"]),
    default="auto",
    show_default=True,
    help="auto: as the policy says.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the solvers.")
@click.option("--deterministic", is_flag=True, help="Stop solvers by work done, not by the clock.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.option("--ascii", "plain", is_flag=True, help="No characters beyond ASCII.")
def explain_command(
    source: str,
    name: str,
    policy_file: str | None,
    time_limit: int | None,
    solver: str,
    seed: int,
    deterministic: bool,
    as_json: bool,
    plain: bool,
) -> None:
    """
    Explain a job, a queue or a node: why it is as it is, and what would make a waiting job start.

    SOURCE is a saved plan, or a snapshot that is planned for this, to which the options of planning apply.
    job/NAME, queue/NAME and node/NAME tell apart what has the same name.
    """
    from planner.explaining.naming import meaning
    from planner.planfile import load_plan

    if _is_plan(source):
        plan = load_plan(source)
    else:
        plan = _planned(
            source, policy_file, time_limit=time_limit, solver=solver, seed=seed, deterministic=deterministic
        )
    kind, meant = meaning(plan, name, source=source)
    with working(f"explaining {kind} {meant}"):
        found, text = _explained(plan, kind, meant, source)
    if as_json:
        click.echo(found.model_dump_json(indent=2))
        return
    told = text(width=terminal_width(), colour=wants_colour(), ascii_only=plain or ascii_only())
    click.echo(told, nl=False)


def _explained(plan: Plan, kind: Kind, name: str, source: str) -> tuple[Noun, Callable[..., str]]:
    """What there is to say, and how it is said."""
    match kind:
        case "job":
            from planner.explaining import explain
            from planner.rendering.explanation import explanation_text

            job = explain(plan, name, source=source)
            return job, partial(explanation_text, job)
        case "queue":
            from planner.explaining.queue import explain_queue
            from planner.rendering.explanation_queue import queue_text

            queue = explain_queue(plan, name)
            return queue, partial(queue_text, queue)
        case "node":
            from planner.explaining.node import explain_node
            from planner.rendering.explanation_node import node_text

            node = explain_node(plan, name)
            return node, partial(node_text, node)


def _is_plan(source: str) -> bool:
    """True of a file that holds a JSON object with an id and actions; what it lacks is told by reading it."""
    path = Path(source)
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"plan_id", "actions"} <= document.keys()


def _planned(
    source: str,
    policy_file: str | None,
    *,
    time_limit: int | None,
    solver: str,
    seed: int,
    deterministic: bool,
) -> Plan:
    """The plan of a snapshot."""
    from planner.cli.plan import with_options
    from planner.cli.searching import searched
    from planner.sources.files import default_policy_path, load_policy, load_snapshot

    with working("reading"):
        snapshot = load_snapshot(source)
        policy = load_policy(policy_file or default_policy_path(source))
    policy = with_options(policy, time_limit, solver, deterministic=deterministic)
    return searched(snapshot, policy, seed=seed)
