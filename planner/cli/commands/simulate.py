"""`gpuplan simulate`: replays a trace over time, under one policy or several side by side."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import (
    ANY_PATH,
    DURATION,
    Parsed,
    milliseconds,
    progress_label,
    show_spinner,
    shows_progress,
    spinner,
)
from gpuplan.planner.cli.outputs import NewFile, WritingCommand, layout_options, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.compare_runs import RunCase
    from gpuplan.planner.simulate.outcome import Simulation
    from gpuplan.planner.simulate.replay import ReplayProgress
    from gpuplan.planner.simulate.run_options import EpochClock
    from gpuplan.planner.simulate.trace import Trace

_MILLISECONDS = 1000
_WRONGEST = 1000.0


def _estimates(text: str) -> float:
    """The largest factor by which estimated durations are wrong: `exact` is 1, `none` infinity."""
    known = {"exact": 1.0, "none": float("inf")}
    try:
        factor = known[text] if text in known else float(text)
    except ValueError:
        factor = 0.0
    if text not in known and not 1 <= factor <= _WRONGEST:
        raise ValueError(
            f"expected exact, none, or a factor from 1 to {_WRONGEST:g} such as 3, found {text!r}"
        )
    return factor


def _known_solvers(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of solvers and baselines, each once."""
    from gpuplan.planner.simulate.run_options import known_names

    try:
        return known_names(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _every(text: str) -> int:
    """Milliseconds from one epoch to the next; 0, written as `event`, means epochs at events."""
    found = 0 if text == "event" else milliseconds(text)
    if text != "event" and found < _MILLISECONDS:
        raise ValueError(f"expected event, or a second or more, found {text!r}")
    return found


@click.command(
    "simulate", cls=WritingCommand, epilog="Example: gpuplan simulate scenarios/quickstart --for 30m"
)
@click.argument("source", type=ANY_PATH)
@click.option(
    "--arrivals",
    type=click.Path(path_type=Path),
    help="Arriving jobs: an openb pod list or a Philly job list (CSV), or a workload profile (YAML).",
)
@click.option("--skip", type=DURATION, default="0s", help="Skip this much from the start of the trace.")
@click.option("--submit-for", type=DURATION, help="Time span in which jobs arrive.")
@click.option(
    "--load",
    type=click.FloatRange(0.001, 1000),
    default=1.0,
    show_default=True,
    help="Factor on the rate at which jobs arrive.",
)
@click.option(
    "--estimates",
    type=Parsed("exact|none|FACTOR", _estimates),
    default="exact",
    show_default=True,
    help="Estimated durations for planning: exact, none, or wrong by up to a factor.",
)
@click.option("--outages", type=click.Path(path_type=Path), help="Nodes that fail and return (CSV).")
@click.option(
    "--checkpoint-every",
    type=DURATION,
    default="30m",
    show_default=True,
    help="Time between checkpoints of running jobs; 0s is never.",
)
@click.option(
    "--mean-to-failure",
    type=DURATION,
    default="0s",
    show_default=True,
    help="Mean time until a replica fails, and with it its job; the job's retry rule says what then. 0s is "
    "never.",
)
@click.option(
    "--policy",
    "policy_files",
    multiple=True,
    help="Policy file; by default policy.yaml in SOURCE, else defaults. May be repeated.",
)
@click.option(
    "--solver",
    "solvers",
    metavar="NAME",
    multiple=True,
    default=("auto",),
    show_default=True,
    callback=_known_solvers,
    help="auto (as the policy says), milp, cpsat, greedy, or a baseline such as fifo, easy, srpt, max-min; "
    "`all-baselines` is all baselines. May be repeated: each policy runs with each solver, a baseline runs "
    "once.",
)
@click.option(
    "--every",
    type=Parsed("duration|event", _every),
    default="5m",
    show_default=True,
    help="Time from one epoch to the next; `event`: an epoch when jobs arrive or end, or nodes change.",
)
@click.option("--min-interval", type=DURATION, help="With `--every event`: shortest time between epochs.")
@click.option(
    "--max-interval",
    type=DURATION,
    help="With `--every event`: longest time between epochs; default 1h.",
)
@click.option("--epochs", type=click.IntRange(1), help="End after this number of epochs.")
@click.option("--for", "length", type=DURATION, help="Simulated time; by default until all jobs end.")
@click.option("--time-limit", type=DURATION, help="Wall clock for each epoch, such as 2s.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of solvers, drawn jobs and wrong estimates."
)
@click.option("--deterministic", is_flag=True, help="Stop solvers by work done, not by the clock.")
@click.option("--jobs", type=click.IntRange(1), help="Parallel runs; by default one per processor.")
@click.option("--csv", "csv_file", type=NewFile(), help="Write a line for each epoch to this file.")
@click.option("--scores", "scores_file", type=NewFile(), help="Write a line for each score (CSV).")
@click.option("--report", type=NewFile(), help="Write an HTML report to this file.")
@layout_options
def simulate_command(
    source: str,
    report: Path | None,
    csv_file: Path | None,
    scores_file: Path | None,
    jobs: int | None,
    as_json: bool,
    plain: bool,
    **given: Any,
) -> None:
    """
    Replay jobs over time on SOURCE, epoch by epoch.

    Each policy runs with each solver over the same jobs. Waiting times, utilization, fairness and cost are
    shown side by side. SOURCE is a snapshot; its jobs run for the durations that they declare.
    """
    from gpuplan.planner.cli.plan_request import without_damage
    from gpuplan.planner.render.simulation import simulation_text
    from gpuplan.planner.simulate.compare_runs import build_simulation, run_all_cases
    from gpuplan.planner.sources.files import load_snapshot
    from gpuplan.planner.whatif.runner import processors

    seed, clock = given["seed"], _clock(given)
    with show_spinner("reading"):
        snapshot = without_damage(load_snapshot(source))
        cases = _cases(source, given)
        trace = _trace(snapshot, cases, given)
    with _watching(cases) as watch:
        found = run_all_cases(trace, cases, clock, seed=seed, at_a_time=jobs or processors(), watch=watch)
    arrivals = None if given["arrivals"] is None else str(given["arrivals"])
    simulation = build_simulation(trace, cases, found, clock, source=source, arrivals=arrivals, seed=seed)
    # A simulation can take hours: show its result before an error with a file can lose it.
    show(simulation, simulation_text, as_json=as_json, plain=plain)
    _write_tables(simulation, csv_file, scores_file)
    if report is not None:
        _write_report(simulation, report)


def _clock(given: dict[str, Any]) -> EpochClock:
    """Build the schedule of epochs from the options."""
    from gpuplan.planner.simulate.run_options import LONGEST_WAIT, EpochClock

    every, epochs, length = _seconds(given["every"]), given["epochs"], given["length"]
    if length is not None and epochs is not None:
        raise click.UsageError("--for and --epochs both set the end; give one of them.")
    seconds = None if length is None else _seconds(length)
    if every:
        for name in ("min_interval", "max_interval"):
            if given[name] is not None:
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is for epochs at events; give --every event with it.")
        return EpochClock.regular(every, seconds=seconds, epochs=epochs)
    apart = _seconds(given["min_interval"] or 0)
    most = LONGEST_WAIT if given["max_interval"] is None else _seconds(given["max_interval"])
    if most < max(1, apart):
        raise click.UsageError(
            f"expected --max-interval of at least --min-interval and a second, found {most} s and {apart} s."
        )
    return EpochClock.of_events(least=apart, most=most, seconds=seconds, epochs=epochs)


def _cases(source: str, given: dict[str, Any]) -> list[RunCase]:
    """Build each combination of policy and solver, with a short unique name."""
    from gpuplan.planner.simulate.compare_runs import cases_of
    from gpuplan.planner.sources.files import default_policy_path, load_policy

    files = list(dict.fromkeys(given["policy_files"])) or [default_policy_path(source)]
    policies = [(file or "defaults", load_policy(file)) for file in files]
    return cases_of(
        policies, given["solvers"], time_limit=given["time_limit"], deterministic=given["deterministic"]
    )


def _trace(snapshot: Snapshot, cases: Sequence[RunCase], given: dict[str, Any]) -> Trace:
    """Build the events common to all runs; delays are those of the first policy."""
    from gpuplan.planner.simulate.compare_runs import trace_of
    from gpuplan.planner.simulate.trace import Estimates, TraceWindow

    seed, factor = given["seed"], given["estimates"]
    coming_for = given["submit_for"]
    return trace_of(
        snapshot,
        cases[0].policy,
        arrivals=given["arrivals"],
        outages=given["outages"],
        window=TraceWindow(
            skip=_seconds(given["skip"]),
            seconds=None if coming_for is None else _seconds(coming_for),
            load_milli=round(given["load"] * _MILLISECONDS),
        ),
        estimates=Estimates(None if factor > _WRONGEST else factor, seed),
        checkpoint_every=_seconds(given["checkpoint_every"]),
        mean_to_failure=_seconds(given["mean_to_failure"]),
        seed=seed,
    )


def _seconds(milliseconds: int) -> int:
    """Whole seconds of an option, rounded down."""
    return milliseconds // _MILLISECONDS


def _write_tables(simulation: Simulation, csv_file: Path | None, scores_file: Path | None) -> None:
    if csv_file is None and scores_file is None:
        return
    from gpuplan.planner.io.atomic_write import write_atomically

    for path, frame in ((csv_file, simulation.epoch_frame), (scores_file, simulation.score_frame)):
        if path is not None:
            write_atomically(path, frame().to_csv(index=False))


def _write_report(simulation: Simulation, path: Path) -> None:
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.render.reports.simulation import simulation_report

    with show_spinner("writing"):
        write_atomically(path, simulation_report(simulation))


@contextmanager
def _watching(cases: Sequence[RunCase]) -> Iterator[Callable[[int, ReplayProgress], None]]:
    """Show a progress bar per run on a terminal; nothing elsewhere."""
    if not shows_progress():
        yield lambda _number, _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(spinner()), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    after = (TextColumn("{task.fields[now]}"), TimeElapsedColumn())
    with Bars(*columns, *after, console=Console(stderr=True), transient=True) as bars:
        rows = [bars.add_task(progress_label(case.name), total=1.0, now="") for case in cases]

        def watch(number: int, progress: ReplayProgress) -> None:
            now = f"{progress.at:%m-%d %H:%M} {progress.waiting:,} waiting"
            bars.update(rows[number], completed=progress.part, now=now)

        yield watch
