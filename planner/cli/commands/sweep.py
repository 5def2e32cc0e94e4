"""`gpuplan sweep`: plans for each combination of values of one or two settings (knobs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import ANY_PATH
from gpuplan.planner.cli.outputs import PICTURE, WritingCommand, layout_options, show
from gpuplan.planner.cli.plan_request import (
    count_progress,
    open_workers,
    planning_options,
    read_undamaged_request,
    with_worker_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.planner.whatif.answers.sweep import Sweep


class TwoFigures(click.ParamType[tuple[str, str]]):
    """`hourly_cost,jobs_running`: two different figures of a plan."""

    name = "figures"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the names of the two figures."""
        from gpuplan.planner.render.whatif.sweep import WEIGHABLE

        names = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        if len(names) != 2 or names[0] == names[1] or not set(names) <= set(WEIGHABLE):
            self.fail(f"expected two of {', '.join(WEIGHABLE)}, found {value!r}", param, ctx)
        return names[0], names[1]


@click.command(
    "sweep",
    cls=WritingCommand,
    epilog="Example: gpuplan sweep scenarios/quickstart prices.disruption=50,100,200",
)
@click.argument("source", type=ANY_PATH)
@click.argument("knobs", metavar="KNOB=VALUE,...", nargs=-1, required=True)
@click.option(
    "--pareto",
    "weighed",
    type=TwoFigures(),
    default="hourly_cost,gpu_allocation_ratio",
    show_default=True,
    help="Two figures; combinations on their Pareto front are marked.",
)
@click.option("-o", "--out", type=PICTURE, help="Draw the two figures to this file: .svg or .png.")
@planning_options
@with_worker_options
@layout_options
def sweep_command(
    source: str,
    knobs: tuple[str, ...],
    weighed: tuple[str, str],
    out: Path | None,
    jobs: int | None,
    engine: str,
    scheduler: str | None,
    as_json: bool,
    plain: bool,
    **planning: Any,
) -> int:
    """
    Plan SOURCE for each combination of values of KNOBs.

    \b
    prices.guarantee=0,100  a setting of the policy, by its path
    quota:QUEUE=8,16        nominal quota of a queue
    demand=1,2,10           multiple of the waiting jobs (demand:QUEUE for one queue)
    pool:POOL=0,4           number of nodes added to a pool
    like:NODE=0,1           number of nodes added like an existing one
    price:POOL=1,2.5        price of a pool's new nodes
    solver=milp,greedy
    """  # noqa: D301 - \b is click's
    from gpuplan.planner.render.whatif.sweep import sweep_text
    from gpuplan.planner.whatif.grid.sweep import build_sweep_worlds, read_knobs, sweep

    read = read_knobs(knobs)
    question = read_undamaged_request(source, **planning)
    worlds = build_sweep_worlds(read, question.snapshot, question.policy)
    with (
        open_workers(engine, jobs=jobs, scheduler=scheduler) as chosen,
        count_progress("planning", len(worlds)) as ended,
    ):
        found = sweep(
            question.snapshot,
            question.policy,
            read,
            worlds,
            chosen,
            seed=question.seed,
            weighed=weighed,
            ended=ended,
        )
    try:
        if out is not None:
            _draw(found, out)
    finally:
        show(found, sweep_text, as_json=as_json, plain=plain)
    return 0 if found.sound else 1


def _draw(found: Sweep, out: Path) -> None:
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.render.charts.sweep import sweep_chart

    write_atomically(out, sweep_chart(found, out.suffix.lower().removeprefix(".")))
