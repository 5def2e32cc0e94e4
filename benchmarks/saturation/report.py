"""Tables of published policies, of orders within a batch, and of gpuplan, on the same arrivals."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from benchmarks.saturation import epochs
from benchmarks.saturation.mixes import JUDGE, NAMING_VARIANT, TUNE, mixed
from benchmarks.saturation.online import ORDERS, fill, in_batches
from benchmarks.saturation.policies import OWN, PUBLISHED
from benchmarks.saturation.published import CEILING
from benchmarks.saturation.published import PUBLISHED as PUBLISHED_MEANS
from benchmarks.saturation.trace import VARIANTS, read_trace, shuffled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.saturation.epochs import Epoch, World
    from benchmarks.saturation.trace import Trace

ONE_BY_ONE: Final = 1
ALL_AT_ONCE: Final = 10**6
TIES: Final = "FGD, ties at random"


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of the benchmark."""

    folder: Path
    variants: tuple[str, ...] = VARIANTS
    seeds: tuple[int, ...] = (42, 43, 44)
    batches: tuple[int, ...] = (100, 500, 2000, ALL_AT_ONCE)
    solvers: tuple[str, ...] = ()
    """Exact solvers of gpuplan; if empty, only greedy runs."""
    seconds: float = 10.0
    """Time limit of an epoch of gpuplan."""
    migrate: bool = False
    workers: int = 2
    """Parallel runs of online policies; gpuplan runs alone."""


@dataclass(frozen=True, slots=True)
class Online:
    """One run of an online policy."""

    variant: str
    seed: int
    policy: str
    batch: int = ONE_BY_ONE
    order: str = "as arrived"


def trace_for(folder: Path, variant: str, seed: int) -> Trace:
    """A variant of the trace, or a mix, of which the pods are drawn by the seed."""
    mix = (TUNE | JUDGE).get(variant)
    if mix is None:
        return read_trace(folder, variant)
    return mixed(read_trace(folder, NAMING_VARIANT), variant, mix, seed)


def online(folder: Path, run: Online) -> float:
    """GPUs allocated in % when the demand reaches the number of GPUs."""
    trace = trace_for(folder, run.variant, run.seed)
    arrivals = shuffled(trace, run.seed)
    pods = arrivals.shapes[: arrivals.until(trace.gpu_milli)]
    placed = in_batches(trace, pods, run.batch, ORDERS[run.order])
    return 100 * float(fill(trace, arrivals, placed, run.policy, run.seed)[-1]) / trace.gpu_milli


def planned(settings: Settings, variant: str, seed: int, batch: int) -> tuple[list[Epoch], int]:
    """Epochs of gpuplan on the same arrivals, and the number of GPUs in thousandths."""
    trace = trace_for(settings.folder, variant, seed)
    arrivals = shuffled(trace, seed)
    policy = epochs.policy_of(solvers=settings.solvers, seconds=settings.seconds, migrate=settings.migrate)

    def tell(epoch: Epoch, _world: World) -> None:
        part = 100 * epoch.allocated_milli / trace.gpu_milli
        _tell(f"gpuplan {variant} seed {seed} batch {batch}: {epoch.arrived} pods, {part:.2f} %")

    pods = arrivals.until(trace.gpu_milli)
    found = epochs.fill(trace, arrivals, pods=pods, batch=batch, policy=policy, seed=seed, progress=tell)
    return found, trace.gpu_milli


def report(settings: Settings) -> str:
    """All tables in Markdown."""
    orders = [
        Online(settings.variants[0], seed, policy, batch, order)
        for policy in ("BestFit", "FGD", "Stranding")
        for order in ORDERS
        for batch in settings.batches
        for seed in settings.seeds
    ]
    policies = (*PUBLISHED, *OWN)
    singles = [
        Online(variant, seed, policy)
        for policy in policies
        for variant in settings.variants
        for seed in settings.seeds
    ]
    ties = [Online(settings.variants[0], seed, TIES) for seed in settings.seeds]
    results = _run_all(settings, [*singles, *orders, *ties])
    return "\n\n".join(
        (
            "Online policies, one pod at a time (published mean of ten seeds); GPUs allocated, %:",
            _policy_table(settings, policies, results),
            f"FGD with ties decided at random: {_mean(results, ties):.2f} %.",
            f"The order in which a batch is placed, {settings.variants[0]}; GPUs allocated, %:",
            _order_table(settings, results),
            f"gpuplan in epochs of B arriving pods ({_of(settings)}):",
            gpuplan_table(settings),
        )
    )


def main(folder: Path) -> str:
    """The tables with the usual settings; `folder` has the CSV files of the trace."""
    return report(Settings(folder))


def mix_table(settings: Settings) -> str:
    """GPUs allocated in %, median (worst) of the seeds: policies pod by pod, and gpuplan in epochs."""
    policies = ("FGD", "BestFit")
    runs = [
        Online(mix, seed, one) for mix in settings.variants for seed in settings.seeds for one in policies
    ]
    results = _run_all(settings, runs)
    rows = []
    for mix in settings.variants:
        parts = [[results[Online(mix, seed, one)] for seed in settings.seeds] for one in policies]
        for batch in settings.batches:
            plans = (planned(settings, mix, seed, batch) for seed in settings.seeds)
            parts.append([100 * found[-1].allocated_milli / gpus for found, gpus in plans])
        rows.append((mix, *(f"{median(each):.2f} ({min(each):.2f})" for each in parts)))
    sizes = (f"gpuplan, epochs of {_size(batch)}" for batch in settings.batches)
    return _table(("mix", "fragmentation gradient descent", "best fit", *sizes), rows)


def gpuplan_table(settings: Settings) -> str:
    """Rows of gpuplan, each the mean over the seeds."""
    rows = []
    for variant in settings.variants:
        for batch in settings.batches:
            runs = [planned(settings, variant, seed, batch) for seed in settings.seeds]
            parts = [100 * found[-1].allocated_milli / gpus for found, gpus in runs]
            rows.append(
                (
                    variant,
                    _size(batch),
                    f"{fmean(parts):.2f}",
                    f"{fmean(found[-1].waiting for found, _ in runs):.0f}",
                    f"{fmean(sum(epoch.moved for epoch in found) for found, _ in runs):.0f}",
                    f"{fmean(epoch.seconds for found, _ in runs for epoch in found):.1f}",
                    f"{PUBLISHED_MEANS[variant][-1]:.2f}",
                    f"{CEILING[variant]:.2f}",
                )
            )
    head = ("variant", "B", "GPUs allocated, %", "waiting", "moved", "s/epoch", "FGD, published", "ceiling")
    return _table(head, rows)


def _policy_table(settings: Settings, policies: Sequence[str], results: dict[Online, float]) -> str:
    rows = []
    for policy in policies:
        cells = []
        for variant in settings.variants:
            ours = _mean(results, [Online(variant, seed, policy) for seed in settings.seeds])
            theirs = ""
            if policy in PUBLISHED:
                theirs = f" ({PUBLISHED_MEANS[variant][PUBLISHED.index(policy)]:.2f})"
            cells.append(f"{ours:.2f}{theirs}")
        rows.append((policy, *cells))
    rows.append(("ceiling, all pods known", *(f"{CEILING[variant]:.2f}" for variant in settings.variants)))
    return _table(("policy", *settings.variants), rows)


def _order_table(settings: Settings, results: dict[Online, float]) -> str:
    rows = []
    for policy in ("BestFit", "FGD", "Stranding"):
        for order in ORDERS:
            means = (
                _mean(
                    results,
                    [Online(settings.variants[0], seed, policy, batch, order) for seed in settings.seeds],
                )
                for batch in settings.batches
            )
            rows.append((policy, order, *(f"{mean:.2f}" for mean in means)))
    return _table(("policy", "order", *(f"B = {_size(batch)}" for batch in settings.batches)), rows)


def _run_all(settings: Settings, runs: Sequence[Online]) -> dict[Online, float]:
    results: dict[Online, float] = {}

    def keep(run: Online, part: float) -> None:
        results[run] = part
        _tell(f"{len(results)} of {len(runs)}: {run.policy} {run.variant} {part:.2f} %")

    if settings.workers == 1:
        for run in runs:
            keep(run, online(settings.folder, run))
        return results
    with ProcessPoolExecutor(settings.workers, mp_context=get_context("spawn")) as pool:
        for run, part in zip(runs, pool.map(online, [settings.folder] * len(runs), runs), strict=True):
            keep(run, part)
    return results


def _mean(results: dict[Online, float], runs: Iterable[Online]) -> float:
    return fmean(results[run] for run in runs)


def _of(settings: Settings) -> str:
    solvers = ", ".join(("greedy", *settings.solvers))
    moving = "with migration" if settings.migrate else "no migration"
    return f"{solvers}, {settings.seconds:g} s an epoch, {moving}"


def _size(batch: int) -> str:
    return "all" if batch == ALL_AT_ONCE else str(batch)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _tell(line: str) -> None:
    """Print progress if standard error is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
