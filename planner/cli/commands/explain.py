"""`gpuplan explain`: why a job starts, runs or waits, and the state of a queue or a node."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import EntityName, PlanFile, is_saved_plan, show_spinner, stray_option
from gpuplan.planner.cli.outputs import layout_options, show
from gpuplan.planner.cli.plan_request import plan_with_live_view, planning_options, read_plan_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.explain.answer import Kind


@click.command("explain", epilog="Example: gpuplan explain scenarios/quickstart train-ranker")
@click.argument("source", type=PlanFile())
@click.argument("name", type=EntityName("job", "queue", "node", prefixed=True))
@planning_options
@layout_options
def explain_command(source: str, name: str, as_json: bool, plain: bool, **planning: Any) -> None:
    """
    Explain a job, a queue or a node, and what would help.

    SOURCE is a saved plan, or a snapshot that is planned first; the planning options apply to a snapshot. Use
    job/NAME, queue/NAME or node/NAME if a name is ambiguous.
    """
    from gpuplan.planner.explain.answer import answer, resolve_name

    if not is_saved_plan(source):
        question = read_plan_request(source, **planning)
        plan = plan_with_live_view(
            question.snapshot, question.policy, seed=question.seed, began=question.began
        )
    elif stray := stray_option(planning):
        raise click.UsageError(f"{stray} is for a snapshot; a saved plan is not planned again.")
    else:
        plan = _part_or_whole(source, name)
    kind, meant = resolve_name(plan, name, source=source)
    with show_spinner(f"explaining {kind} {meant}"):
        found = answer(plan, kind, meant, source=source)
    show(found, _text(kind), as_json=as_json, plain=plain)


def _part_or_whole(source: str, name: str) -> Plan:
    """Read of a large plan only what is about a job, if its explanation depends on nothing else."""
    from gpuplan.models.errors import BadInputError
    from gpuplan.planner.explain.answer import resolve_name
    from gpuplan.planner.plan_file.excerpt import read_excerpt
    from gpuplan.planner.plan_file.plan_file import load_plan

    part = read_excerpt(source, name)
    if part is not None and part.suffices_to_explain:
        with suppress(BadInputError):
            if resolve_name(part.plan, name, source=source) == ("job", part.job):
                return part.plan
    return load_plan(source)


def _text(kind: Kind) -> Callable[..., str]:
    """Return the text renderer of an explanation."""
    match kind:
        case "job":
            from gpuplan.planner.render.explain_job import explanation_text

            return explanation_text
        case "queue":
            from gpuplan.planner.render.explain_node_queue import queue_text

            return queue_text
        case "node":
            from gpuplan.planner.render.explain_node_queue import node_text

            return node_text
