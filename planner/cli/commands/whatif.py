"""`gpuplan whatif`: plans hypothetical changes of a snapshot and compares them with its own plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import ANY_PATH, show_spinner, stray_option
from gpuplan.planner.cli.outputs import NewFile, WritingCommand, layout_options, show
from gpuplan.planner.cli.plan_request import (
    count_progress,
    open_workers,
    planning_options,
    read_undamaged_request,
    with_worker_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.planner.cli.plan_request import PlanRequest
    from gpuplan.planner.whatif.answers.comparison import Comparison
    from gpuplan.planner.whatif.answers.sensitivity import Sensitivity
    from gpuplan.planner.whatif.grid.workers import Workers


class Steps(click.ParamType[tuple[int, ...]]):
    """`1,4,16`: positive whole numbers."""

    name = "steps"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, each once, ascending."""
        parts = value.split(",") if isinstance(value, str) else list(map(str, value))
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"expected whole numbers from 1 on such as 1,4,16, found {value!r}", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


@click.command(
    "whatif", cls=WritingCommand, epilog="Example: gpuplan whatif scenarios/quickstart one-more-node.yaml"
)
@click.argument("source", type=ANY_PATH)
@click.argument("scenarios", type=ANY_PATH, metavar="[SCENARIO...]", nargs=-1)
@click.option("--sensitivity", "values_nodes", is_flag=True, help="Compute the value of more nodes instead.")
@click.option(
    "--steps",
    type=Steps(),
    default="1,4,16",
    show_default=True,
    help="sensitivity: plan again with this many more nodes of each kind.",
)
@click.option("--like", multiple=True, help="sensitivity: only the kind of this node; may be repeated.")
@planning_options
@with_worker_options
@click.option("--report", type=NewFile(), help="Write an HTML report of the comparison to this file.")
@layout_options
def whatif_command(
    source: str,
    scenarios: tuple[str, ...],
    values_nodes: bool,
    steps: tuple[int, ...],
    like: tuple[str, ...],
    jobs: int | None,
    engine: str,
    scheduler: str | None,
    report: Path | None,
    as_json: bool,
    plain: bool,
    **planning: Any,
) -> int:
    """
    Compare the plan of SOURCE with that of each SCENARIO.

    A scenario is a file with a name, changes, and expectations of its plan. `gpuplan schema scenario` prints
    its format. Ends with 1 if an expectation is not met or a scenario cannot be planned.
    """
    from gpuplan.planner.render.whatif.capacity import sensitivity_text
    from gpuplan.planner.render.whatif.comparison import comparison_text

    if bool(scenarios) == values_nodes:
        raise click.UsageError("Give at least one scenario, or --sensitivity without any.")
    if report is not None and values_nodes:
        raise click.UsageError("--report is for scenarios.")
    if not values_nodes and (stray := stray_option(("steps", "like"))):
        raise click.UsageError(f"{stray} is for --sensitivity.")
    question = read_undamaged_request(source, **planning)
    with open_workers(engine, jobs=jobs, scheduler=scheduler) as chosen:
        if values_nodes:
            valued = _valued(question, chosen, steps, like, source)
            show(valued, sensitivity_text, as_json=as_json, plain=plain)
            return 0 if valued.sound else 1
        compared = _compared(question, chosen, scenarios)
    try:
        if report is not None:
            _write_report(compared, report)
    finally:
        show(compared, comparison_text, as_json=as_json, plain=plain)
    return 0 if compared.sound else 1


def _compared(question: PlanRequest, engine: Workers, scenarios: tuple[str, ...]) -> Comparison:
    from gpuplan.planner.whatif.compare import compare
    from gpuplan.planner.whatif.patch.apply_changes import load_scenarios

    with show_spinner("reading scenarios"):
        loaded = load_scenarios(scenarios, question.snapshot, question.policy)
    with count_progress("planning", 1 + len(loaded)) as ended:
        return compare(question.snapshot, question.policy, loaded, engine, seed=question.seed, ended=ended)


def _valued(
    question: PlanRequest, engine: Workers, steps: tuple[int, ...], like: tuple[str, ...], source: str
) -> Sensitivity:
    from gpuplan.planner.whatif.grid.sensitivity import sensitivity
    from gpuplan.planner.whatif.lookup import equivalent_nodes_of

    kinds = equivalent_nodes_of(like, question.snapshot, source)
    with count_progress("planning", 2 + len(kinds) * (1 + len(steps))) as ended:
        return sensitivity(
            question.snapshot,
            question.policy,
            kinds,
            engine,
            seed=question.seed,
            steps=steps,
            ended=ended,
        )


def _write_report(comparison: Comparison, path: Path) -> None:
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.render.reports.whatif import whatif_report

    write_atomically(path, whatif_report(comparison))
