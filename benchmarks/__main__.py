"""`make bench`: the tables of docs/benchmarks.md, one command each; without a command, the quick ones."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from benchmarks import (
    ablate,
    decisions,
    goals,
    greedy_claim,
    growth,
    house,
    one_more,
    plans,
    presets,
    rebalancer,
    same_knowledge,
    scaled_jobs,
    size_table,
    starvation,
    targets,
)
from benchmarks.limits import exceeded, figures, load, made_of
from benchmarks.plots import plot_gaps
from benchmarks.records import facts_in_words, read
from benchmarks.saturation import inventory

if TYPE_CHECKING:
    from benchmarks.instances import Instance

QUICK_PLANS: Final = ("everything", "production", "openb", "12 slots, M", "12 slots, L", "M", "L5")
QUICK_SIZES: Final = ("S", "M", "L", "L5")
QUICK_ADMISSIONS: Final = ("10K x 1,000", "10K x 5,000")

_AS_IT_IS: Final = {"ignore_unknown_options": True, "help_option_names": []}
"""Pass all arguments on, `--help` included."""

_log_option = click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="Append each measurement to this file, as one JSON object per line.",
)
_only_option = click.option("--only", multiple=True, help="Measure only this case; repeatable.")


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure gpuplan, and print Markdown tables."""
    if context.invoked_subcommand is not None:
        return
    click.echo(facts_in_words() + "\n")
    context.invoke(plans_command, only=QUICK_PLANS, repeats=1)
    context.invoke(sizes_command, only=QUICK_SIZES)
    context.invoke(admission_command, only=QUICK_ADMISSIONS)
    context.invoke(rebalancer_command)


@main.command("plans")
@_log_option
@_only_option
@click.option(
    "--repeats", type=int, default=3, show_default=True, help="Runs per case; the table shows the median."
)
def plans_command(log: Path | None = None, only: tuple[str, ...] = (), repeats: int = 3) -> None:
    """Plan each case with each solver in a whole `gpuplan plan` process."""
    with tempfile.TemporaryDirectory() as folder:
        for line in plans.lines(Path(folder), only=only, repeats=repeats, log=log):
            click.echo(line, nl=False)


@main.command("sizes")
@_log_option
@_only_option
@click.option("--seeds", default="1,2,3", show_default=True, help="Comma-separated seeds of each case.")
@click.option("--check", is_flag=True, help="Exit with 1 if a figure is above its limit in limits.yaml.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the gap over time to this SVG file.")
def sizes_command(
    log: Path | None = None,
    only: tuple[str, ...] = (),
    seeds: str = "1,2,3",
    check: bool = False,
    plot: Path | None = None,
) -> None:
    """
    S to XL in stages: pose, greedy, formulate, bound, gap over time, peak memory; with today's defaults.
    """
    instances = tuple(
        replace(instance, seed=int(seed))
        for instance in size_table.SIZE_INSTANCES
        for seed in seeds.split(",")
    )
    measured = _in_stages("sizes", instances, log, only)
    click.echo(size_table.seed_table(measured))
    if plot is not None:
        plot_gaps([found for _, found in measured], plot)
    if not check:
        return
    limits = load()
    broken = [
        sentence
        for instance, found in measured
        for sentence in exceeded(instance.title, figures(found), limits, instance.seed)
    ]
    for sentence in broken:
        click.echo(sentence, err=True)
    if broken:
        sys.exit(1)


@main.command("admission")
@_log_option
@_only_option
def admission_command(log: Path | None = None, only: tuple[str, ...] = ()) -> None:
    """Admission only, at 10,000 and 100,000 GPUs, in the shape of published evaluations."""
    fleet = size_table.FLEET_INSTANCES if inventory.is_named() else ()
    _in_stages("admission", (*size_table.ADMISSION_INSTANCES, *fleet), log, only)


@main.command("odd-cases")
@_log_option
@_only_option
@click.option("--seeds", default="1,2,3", show_default=True, help="Comma-separated seeds.")
def odd_cases_command(log: Path | None, only: tuple[str, ...], seeds: str) -> None:
    """Shares of odd sizes, MIG instances and a deep tree of quotas, which no rule was tuned for."""
    chosen = [
        replace(instance, seed=int(seed))
        for instance in size_table.ODD_INSTANCES
        for seed in seeds.split(",")
        if not only or instance.title in only
    ]
    click.echo(size_table.seed_table(size_table.measure("odd-cases", chosen, log)))


@main.command("growth")
@_log_option
@click.option(
    "--gpus",
    type=click.Choice([str(gpus) for gpus in growth.DECADES]),
    multiple=True,
    help="Only this decade; repeatable.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--memory", type=click.IntRange(1), default=8, show_default=True, help="GiB of a process.")
@click.option("--largest-command", type=int, default=100_000, show_default=True, help="GPUs.")
def growth_command(
    log: Path | None, gpus: tuple[str, ...], seed: int, memory: int, largest_command: int
) -> None:
    """What each stage takes from 1,000 to 1,000,000 GPUs."""
    chosen = [int(each) for each in gpus] or list(growth.DECADES)
    records = growth.measure(chosen, seed, memory_gib=memory, largest_command=largest_command, log=log)
    click.echo(growth.tables(list(records)), nl=False)


@main.command("one-more")
@_log_option
@_only_option
def one_more_command(log: Path | None = None, only: tuple[str, ...] = ()) -> None:
    """The next epoch of a cluster at rest after one more job is submitted."""
    chosen = [each for each in one_more.ONE_MORE_INSTANCES if not only or each.title in only]
    click.echo(one_more.lines(chosen, log))


@main.command("decisions")
@click.option("--seeds", default=5, help="Measure the seeds from 1 to this one.")
def decisions_command(seeds: int) -> None:
    """Whole decisions on small clusters, as CPU milliseconds."""
    click.echo(decisions.lines(decisions.DECISIONS, range(1, seeds + 1)))


@main.command("rebalancer")
@_log_option
def rebalancer_command(log: Path | None = None) -> None:
    """Meta's Rebalancer on the same instance, from the same start, within the same time."""
    click.echo(rebalancer.main(log))


@main.command("greedy-claim")
@_log_option
@click.option("--openb", type=click.Path(path_type=Path, exists=True), help="Folder with the openb trace.")
@click.option("--philly", type=click.Path(path_type=Path, exists=True), help="Job list of the Philly trace.")
@click.option(
    "--seeds",
    type=click.IntRange(2),
    default=5,
    show_default=True,
    help="Parts of each trace; half of them choose the policy.",
)
@click.option("--at-a-time", type=click.IntRange(1), default=1, show_default=True, help="Simulations.")
def greedy_claim_command(
    log: Path | None, openb: Path | None, philly: Path | None, seeds: int, at_a_time: int
) -> None:
    """Greedy, exact solvers and rules over time, on the same jobs; the traces are optional."""
    records = [
        record
        for contest in greedy_claim.contests(range(seeds), openb=openb, philly=philly)
        for record in greedy_claim.measure(contest, log_file=log, at_a_time=at_a_time)
    ]
    click.echo(greedy_claim.claim_tables(records), nl=False)


@main.command("same-knowledge")
@_log_option
@click.option("--openb", type=click.Path(path_type=Path, exists=True), help="Folder with the openb trace.")
@click.option("--philly", type=click.Path(path_type=Path, exists=True), help="Job list of the Philly trace.")
@click.option("--only", multiple=True, help="Only this trace; repeatable.")
@click.option("--seeds", default="5,6,7,8,9", show_default=True, help="Comma-separated seeds.")
def same_knowledge_command(
    log: Path | None, openb: Path | None, philly: Path | None, only: tuple[str, ...], seeds: str
) -> None:
    """Default and turns beside rules with the same estimates; the traces are optional."""
    known = same_knowledge.sources(openb=openb, philly=philly)
    chosen = [cell for cell in same_knowledge.cells(known) if not only or cell.trace in only]
    numbers = [int(seed) for seed in seeds.split(",")]
    records = same_knowledge.measure(known, chosen, numbers, log_file=log)
    click.echo(same_knowledge.tables(records), nl=False)


@main.command("goals")
@_log_option
@click.option("--philly", type=click.Path(path_type=Path, exists=True), required=True, help="Its job list.")
@click.option("--only", type=click.Choice(list(goals.GROUPS)), multiple=True, help="Only these days.")
def goals_command(log: Path | None, philly: Path, only: tuple[str, ...]) -> None:
    """Goals beside rules on days of the Philly trace, with exact, wrong and no estimates."""
    click.echo(goals.tables(goals.measure(only or goals.GROUPS, philly, log_file=log)), nl=False)


@main.command("presets")
@_log_option
@click.option("--only", type=click.Choice(list(presets.LOADS)), multiple=True, help="Only this preset.")
@click.option("--seeds", default="1,3,5,7,9", show_default=True, help="Comma-separated seeds.")
def presets_command(log: Path | None, only: tuple[str, ...], seeds: str) -> None:
    """The starter policies on the loads they are made for, beside rules of the literature."""
    numbers = [int(seed) for seed in seeds.split(",")]
    records = [
        record for kind in only or presets.LOADS for record in presets.measure(kind, numbers, log_file=log)
    ]
    click.echo(presets.tables(records), nl=False)


@main.command("scaled-jobs")
@_log_option
@click.option("--seeds", default="1,3,5,7,9", show_default=True, help="Comma-separated seeds.")
@click.option("--only", type=click.Choice(list(scaled_jobs.SHAPES)), multiple=True, help="Only this cluster.")
def scaled_jobs_command(log: Path | None, seeds: str, only: tuple[str, ...]) -> None:
    """Jobs that declare how they scale, beside the same jobs at fixed sizes, on three GPU models."""
    numbers = [int(seed) for seed in seeds.split(",")]
    for shape in only or scaled_jobs.SHAPES:
        click.echo(scaled_jobs.tables(scaled_jobs.measure(shape, numbers, log_file=log)))


@main.command("starvation")
@_log_option
@click.option("--only", type=click.Choice(list(starvation.POLICIES)), multiple=True, help="Only this policy.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the jobs.")
@click.option("--days", type=click.IntRange(1), default=starvation.DAYS, show_default=True)
def starvation_command(log: Path | None, only: tuple[str, ...], seed: int, days: int) -> None:
    """The longest waits in thirty days at a load of 1.2."""
    click.echo(
        starvation.tables(starvation.measure(only or starvation.POLICIES, seed, days=days, log_file=log))
    )


@main.command("saturation", context_settings=_AS_IT_IS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def saturation_command(arguments: tuple[str, ...]) -> None:
    """Fill the openb trace, beside the published policies; ARGUMENTS are passed to the benchmark."""
    _of_its_own("saturation", arguments)


@main.command("solver-choice", context_settings=_AS_IT_IS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def solver_choice_command(arguments: tuple[str, ...]) -> None:
    """Solvers on the block model of each size; ARGUMENTS are passed to the benchmark."""
    _of_its_own("solver_choice", arguments)


@main.command("ablate")
@_log_option
@click.option(
    "--only",
    type=click.Choice([each.title for each in ablate.INSTANCES]),
    multiple=True,
    help="Measure only this case; repeatable.",
)
@click.option(
    "--improver",
    type=click.Choice(list(ablate.IMPROVERS)),
    multiple=True,
    help="Leave out only this improver; repeatable.",
)
@click.option("--seeds", default="1,2,3", show_default=True, help="Comma-separated seeds.")
@click.option(
    "--ticks",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Work of each solver, in the units of the policy's `budget.ticks`.",
)
def ablate_command(
    log: Path | None, only: tuple[str, ...], improver: tuple[str, ...], seeds: str, ticks: int
) -> None:
    """The loss of objective without each improver of the search."""
    chosen = [each for each in ablate.INSTANCES if not only or each.title in only]
    numbers = [int(seed) for seed in seeds.split(",")]
    records = ablate.measure(chosen, improver or ablate.IMPROVERS, numbers, ticks=ticks, log=log)
    click.echo(ablate.tables(records), nl=False)


@main.command("faults")
@_log_option
@click.option("--runs", type=click.IntRange(1), default=1000, show_default=True)
@click.option(
    "--executor", type=click.Choice(["simulated", "local", "slurm"]), multiple=True, help="Only this."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the first run of each executor."
)
@click.option(
    "--at-a-time", type=click.IntRange(1), default=2, show_default=True, help="Runs of an executor."
)
def faults_command(log: Path | None, runs: int, executor: tuple[str, ...], seed: int, at_a_time: int) -> None:
    """Random faults while plans are carried out; exits with 1 if anything is wrong after the recovery."""
    from benchmarks.faults import campaign  # noqa: PLC0415 - it needs what the tests need

    chosen = campaign.runs_of(runs, executor or campaign.EXECUTORS, seed)
    records = [run.record() for run in campaign.measure(chosen, log=log, at_a_time=at_a_time)]
    click.echo(campaign.tables(records), nl=False)
    sys.exit(any(record["bad"] for record in records))


@main.command("house")
def house_command() -> None:
    """The structure of the product in figures, beside their goals."""
    click.echo(house.house_table(), nl=False)


@main.command("report")
@click.argument("log", type=click.Path(path_type=Path, exists=True))
def report_command(log: Path) -> None:
    """The targets beside the last measurements in LOG, and the tables of sizes and admission."""
    records = read(log)
    if claims := [record for record in records if record["benchmark"] == greedy_claim.NAME]:
        click.echo(f"{greedy_claim.NAME}\n\n{greedy_claim.claim_tables(claims)}")
    if struck := [record for record in records if record["benchmark"] == "faults"]:
        from benchmarks.faults import campaign  # noqa: PLC0415 - the same

        click.echo(campaign.tables(struck))
    if compared := [record for record in records if record["benchmark"] == goals.NAME]:
        click.echo(f"{goals.NAME}\n\n{goals.tables(compared)}")
    if starters := [record for record in records if record["benchmark"] == presets.NAME]:
        click.echo(f"{presets.NAME}\n\n{presets.tables(starters)}")
    if losses := [record for record in records if record["benchmark"] == ablate.NAME]:
        click.echo(f"{ablate.NAME}\n\n{ablate.tables(losses)}")
    click.echo(targets.targets_table(records))
    for benchmark, instances in (
        ("sizes", size_table.SIZE_INSTANCES),
        ("admission", (*size_table.ADMISSION_INSTANCES, *size_table.FLEET_INSTANCES)),
    ):
        last = {
            (record["case"], record["seed"]): record for record in records if record["benchmark"] == benchmark
        }
        known = [
            (replace(instance, seed=seed), record)
            for instance in instances
            for (case, seed), record in sorted(last.items())
            if case == instance.title
        ]
        if known:
            click.echo(f"{benchmark}\n\n{size_table.tables(known)}\n{size_table.seed_table(known)}")


@main.command("limits")
@click.argument("log", type=click.Path(path_type=Path, exists=True))
def limits_command(log: Path) -> None:
    """Make a new limits.yaml from the sizes in LOG, which has several measurements per size."""
    click.echo(f"# {facts_in_words()}\n{made_of(read(log, 'sizes'))}", nl=False)


@main.command("plot")
@click.argument("log", type=click.Path(path_type=Path, exists=True))
@click.argument("svg", type=click.Path(path_type=Path))
@_only_option
def plot_command(log: Path, svg: Path, only: tuple[str, ...]) -> None:
    """Draw the gap over time of each size in LOG to the file SVG."""
    last = {record["case"]: record for record in read(log, "sizes")}
    chosen = [record for case, record in last.items() if not only or case in only]
    plot_gaps(chosen, svg)


def _in_stages(
    benchmark: str, instances: tuple[Instance, ...], log: Path | None, only: tuple[str, ...]
) -> size_table.Measured:
    chosen = [instance for instance in instances if not only or instance.title in only]
    measured = size_table.measure(benchmark, chosen, log)
    click.echo(size_table.tables(measured))
    return measured


def _of_its_own(benchmark: str, arguments: tuple[str, ...]) -> None:
    """Run a benchmark that has its own command line."""
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{benchmark}", *arguments], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
