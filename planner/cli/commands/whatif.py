"""`gpuplan whatif`, `fit`, `capacity`, `sweep`: what would be if snapshot or policy were different."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from gpuplan.planner.cli.options import ANY_PATH, EntityName, Parsed, show_spinner, stray_option
from gpuplan.planner.cli.outputs import PICTURE, NewFile, WritingCommand, layout_options, show
from gpuplan.planner.cli.plan_request import (
    PlanRequest,
    count_progress,
    live_view,
    open_workers,
    planning_options,
    read_undamaged_request,
    with_worker_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.planner.whatif.compare import Comparison
    from gpuplan.planner.whatif.grid import Sweep
    from gpuplan.planner.whatif.runner import Workers
    from gpuplan.planner.whatif.sensitivity import Sensitivity

EXIT_CANNOT: Final = 20


def _steps(text: str) -> tuple[int, ...]:
    """Positive whole numbers of `1,4,16`, each once, ascending."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"expected whole numbers from 1 on such as 1,4,16, found {text!r}")
    return tuple(sorted({int(part) for part in parts}))


@click.command(
    "whatif", cls=WritingCommand, epilog="Example: gpuplan whatif scenarios/quickstart one-more-node.yaml"
)
@click.argument("source", type=ANY_PATH)
@click.argument("scenarios", type=ANY_PATH, metavar="[SCENARIO...]", nargs=-1)
@click.option("--sensitivity", "values_nodes", is_flag=True, help="Compute the value of more nodes instead.")
@click.option(
    "--steps",
    type=Parsed("steps", _steps),
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
    from gpuplan.planner.render.whatif.answers import sensitivity_text
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
    from gpuplan.planner.whatif.patch.scenario import load_scenarios

    with show_spinner("reading scenarios"):
        loaded = load_scenarios(scenarios, question.snapshot, question.policy)
    with count_progress(1 + len(loaded)) as ended:
        return compare(question.snapshot, question.policy, loaded, engine, seed=question.seed, ended=ended)


def _valued(
    question: PlanRequest, engine: Workers, steps: tuple[int, ...], like: tuple[str, ...], source: str
) -> Sensitivity:
    from gpuplan.planner.whatif.sensitivity import equivalent_nodes_of, sensitivity

    kinds = equivalent_nodes_of(like, question.snapshot, source)
    with count_progress(2 + len(kinds) * (1 + len(steps))) as ended:
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


@click.command("fit", epilog="Example: gpuplan fit scenarios/quickstart train-base")
@click.argument("source", type=ANY_PATH)
@click.argument("job", type=EntityName("job"), required=False)
@click.option("--file", "job_file", type=ANY_PATH, help="File with a job that is not in SOURCE.")
@click.option("--most", type=click.IntRange(min=1), help="Most copies to count. [default: 10,000]")
@planning_options
@layout_options
def fit_command(
    source: str,
    job: str | None,
    job_file: str | None,
    most: int | None,
    as_json: bool,
    plain: bool,
    **planning: Any,
) -> None:
    """
    Count how many more jobs like JOB fit, and what limits it.

    No running job is stopped or moved.

    JOB runs or waits in SOURCE. Only running jobs take capacity: other waiting jobs, prices and time rules
    are ignored, quotas and reservations are not. The copies are placed and verified, and a bound proves that
    one more does not fit.
    """
    from gpuplan.planner.epoch import limits_of
    from gpuplan.planner.render.whatif.answers import fit_text
    from gpuplan.planner.whatif.fit import MOST, fit
    from gpuplan.planner.whatif.no_disruption import jobs_named, read_job

    if (job is None) == (job_file is None):
        raise click.UsageError("Give the name of a job, or --file with one.")
    question = read_undamaged_request(source, **planning)
    snapshot, policy, seed = question.snapshot, question.policy, question.seed
    wanted = read_job(job_file, snapshot) if job_file else jobs_named((job or "",), snapshot, source)[0]
    with live_view(f"fitting copies of {wanted.name}", limits_of(policy, seed).seconds) as watch:
        found = fit(snapshot, policy, wanted, seed=seed, most=most or MOST, watch=watch)
    show(found, fit_text, as_json=as_json, plain=plain)


@click.command("capacity", epilog="Example: gpuplan capacity scenarios/burst-scale-up --waiting")
@click.argument("source", type=ANY_PATH)
@click.argument("jobs", type=EntityName("job"), metavar="[JOB...]", nargs=-1)
@click.option("--waiting", is_flag=True, help="All waiting jobs that are not held.")
@click.option(
    "--most",
    type=click.IntRange(min=0),
    help="Most nodes that each pool may get, whatever its maximum; by default up to the maximum.",
)
@planning_options
@layout_options
def capacity_command(
    source: str,
    jobs: tuple[str, ...],
    waiting: bool,
    most: int | None,
    as_json: bool,
    plain: bool,
    **planning: Any,
) -> int:
    """
    Find the cheapest new nodes with which all of the JOBs run.

    New nodes come from the cluster's pools; no running job is stopped or moved.

    Free capacity is used first. Other waiting jobs and time rules are ignored, quotas are not. Ends with 20
    if some of the jobs cannot run with any number of nodes.
    """
    from gpuplan.planner.epoch import limits_of
    from gpuplan.planner.render.whatif.answers import capacity_text
    from gpuplan.planner.whatif.capacity import find_cheapest_nodes
    from gpuplan.planner.whatif.no_disruption import jobs_named

    if bool(jobs) == waiting:
        raise click.UsageError("Give the names of jobs, or --waiting for all waiting jobs.")
    question = read_undamaged_request(source, **planning)
    snapshot, policy, seed = question.snapshot, question.policy, question.seed
    if waiting:
        asked = [job for job in snapshot.jobs if job.running is None and not job.withheld]
    else:
        asked = jobs_named(jobs, snapshot, source)
    with live_view("looking for the cheapest nodes", limits_of(policy, seed).seconds) as watch:
        found = find_cheapest_nodes(snapshot, policy, asked, seed=seed, most=most, watch=watch)
    show(found, capacity_text, as_json=as_json, plain=plain)
    return EXIT_CANNOT if found.cannot else 0


def _two_figures(text: str) -> tuple[str, str]:
    """Names of two different figures of a plan, as in `hourly_cost,jobs_running`."""
    from gpuplan.planner.whatif.measures import WEIGHABLE

    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or names[0] == names[1] or not set(names) <= set(WEIGHABLE):
        raise ValueError(f"expected two of {', '.join(WEIGHABLE)}, found {text!r}")
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
    type=Parsed("figures", _two_figures),
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
    from gpuplan.planner.render.whatif.answers import sweep_text
    from gpuplan.planner.whatif.grid import Grid, sweep

    grid = Grid.read(knobs)
    question = read_undamaged_request(source, **planning)
    points = grid.apply(question.snapshot, question.policy)
    with (
        open_workers(engine, jobs=jobs, scheduler=scheduler) as chosen,
        count_progress(len(points)) as ended,
    ):
        found = sweep(
            question.snapshot,
            question.policy,
            grid.knobs,
            points,
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
    from gpuplan.planner.render.charts import sweep_chart

    write_atomically(out, sweep_chart(found, out.suffix.lower().removeprefix(".")))
