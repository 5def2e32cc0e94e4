"""
Does greedy beat optimization? The same jobs over the same hours, planned by greedy, by the exact solvers, and
by rules of the literature.

Three traces: openb on every 60th of its nodes, Philly on nodes of eight GPUs, and the shipped day with gangs,
MIG, shares and quotas. The seed selects the part of a trace at which the jobs begin, or draws the jobs.
Solvers stop by work done, not by the clock, so that load on the machine changes only the seconds. The policy
or rule of each kind is chosen by the mean completion on one half of the seeds and judged on the other half,
both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from benchmarks.markdown import percent, table
from benchmarks.records import append
from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI
from gpuplan.planner.simulate.baselines import BASELINES
from gpuplan.planner.simulate.compare_runs import RunCase, run_all_cases
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.trace import TraceWindow, make_trace
from gpuplan.planner.sources.files import load_snapshot
from gpuplan.planner.sources.traces.arrivals import read_arrivals
from gpuplan.planner.sources.traces.openb import TRACE_START, read_openb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.records import Record
    from gpuplan.planner.simulate.trace import Trace

NAME: Final = "greedy claim"
SCENARIO: Final = Path(__file__).parents[1] / "scenarios" / "arrivals"
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "with turns": {"disruption": {"priority_gap": 0, "minimum_runtime": "30m"}},
}
"""In the first, jobs of equal priority run to their end; in the second, they may preempt each other."""

_DAY: Final = 24 * 3600
_HOUR: Final = 3600
_TICKS: Final = 2


@dataclass(frozen=True)
class Kind:
    """Entrants of one kind; one of them is chosen."""

    name: str
    entrants: tuple[str, ...]


KINDS: Final = (
    Kind("greedy", tuple(f"greedy, {policy}" for policy in POLICIES)),
    Kind("exact solvers", tuple(f"auto, {policy}" for policy in POLICIES)),
    Kind("rules that stop nothing", ("fifo-skip", "easy", "sjf")),
    Kind("rules that stop jobs", ("srsf", "las", "least-slack")),
)
ENTRANTS: Final = tuple(entrant for kind in KINDS for entrant in kind.entrants)


@dataclass(frozen=True)
class Contest:
    """One trace from one starting point."""

    name: str
    seed: int
    trace: Trace
    clock: EpochClock


def contests(seeds: Iterable[int], *, openb: Path | None, philly: Path | None) -> Iterator[Contest]:
    """All contests with available data."""
    for seed in seeds:
        yield _synthetic(seed)
        if openb is not None:
            yield _openb(openb, seed)
        if philly is not None:
            yield _philly(philly, seed)


def _synthetic(seed: int) -> Contest:
    snapshot = load_snapshot(str(SCENARIO))
    arrivals = read_arrivals(SCENARIO / "profile.yaml", snapshot.cluster, seed=seed)
    return Contest("synthetic", seed, make_trace(snapshot, arrivals), EpochClock(900, 18 * _HOUR))


def _openb(folder: Path, seed: int) -> Contest:
    pods = folder / "openb_pod_list_default.csv"
    whole = read_openb(folder / "openb_node_list_gpu_node.csv", pods, at=0)
    nodes = whole.cluster.nodes[seed::60]
    empty = whole.model_copy(
        update={"cluster": whole.cluster.model_copy(update={"nodes": nodes}), "jobs": ()}
    )
    window = TraceWindow(skip=(130 + 4 * seed) * _DAY, seconds=8 * _HOUR, load_milli=12 * MILLI)
    arrivals = read_arrivals(pods, empty.cluster, seed=seed)
    return Contest("openb", seed, make_trace(empty, arrivals, window=window), EpochClock(900, 12 * _HOUR))


def _philly(path: Path, seed: int) -> Contest:
    nodes = tuple(Node(name=f"n{index:02d}", gpus=NodeGpus(model="P100", count=8)) for index in range(24))
    empty = Snapshot(taken_at=TRACE_START, cluster=Cluster(nodes=nodes), queues=())
    window = TraceWindow(skip=(30 + 7 * seed) * _DAY, seconds=8 * _HOUR, load_milli=3 * MILLI // 2)
    arrivals = read_arrivals(path, empty.cluster, seed=seed)
    return Contest("Philly", seed, make_trace(empty, arrivals, window=window), EpochClock(900, 12 * _HOUR))


def measure(contest: Contest, *, log_file: Path | None, at_a_time: int) -> list[Record]:
    """All entrants on one trace; append the records to the log."""
    cases = [_case(entrant) for entrant in ENTRANTS]
    found = run_all_cases(contest.trace, cases, contest.clock, seed=contest.seed, at_a_time=at_a_time)
    records = [
        {
            "case": contest.name,
            "seed": contest.seed,
            "entrant": case.name,
            "gpus": sum(node.gpu_count for node in contest.trace.start.cluster.nodes),
            "epochs": len(each.epochs),
            "scores": each.scores.model_dump(mode="json"),
        }
        for case, each in zip(cases, found, strict=True)
    ]
    for record in records:
        append(log_file, NAME, record)
    return records


def _case(entrant: str) -> RunCase:
    if entrant in BASELINES:
        return RunCase(entrant, "default", entrant, Policy(), baseline=entrant)
    solver, policy_name = entrant.split(", ")
    exact = {} if solver == "auto" else {"solvers": ()}
    budget = {"mode": "deterministic", "ticks": _TICKS}
    policy = Policy.model_validate({**POLICIES[policy_name], "budget": budget, **exact})
    return RunCase(entrant, policy_name, solver, policy)


# --- the tables ---------------------------------------------------------------------------------------------

_SHOWN: Final = (
    ("completion, mean", ("completion", "mean", "value")),
    ("wait, mean", ("wait", "mean", "value")),
    ("wait by worth", ("worth_wait", "value")),
    ("wait, p99", ("wait", "p99", "value")),
    ("slowdown, mean", ("slowdown", "mean", "value")),
)
_CHOSEN_BY: Final = _SHOWN[0][1]
_REFERENCE: Final = "exact solvers"

_Last: TypeAlias = "dict[tuple[str, int, str], Record]"


def claim_tables(records: Iterable[Record]) -> str:
    """The kinds compared per trace; uses the last run of each entrant, and only complete contests."""
    last: _Last = {(each["case"], each["seed"], each["entrant"]): each for each in records}
    seeds: dict[str, list[int]] = {}
    for case, seed in sorted({key[:2] for key in last}):
        if all((case, seed, entrant) in last for entrant in ENTRANTS):
            seeds.setdefault(case, []).append(seed)
    return _judged(last, seeds) + "\n" + _each(last, seeds)


def _judged(last: _Last, seeds: dict[str, list[int]]) -> str:
    """
    Ratios to the exact solvers (below 1 is better): median over the seeds, and the worst.

    Each half is judged with the choice from the other.
    """
    rows = []
    for case, known in seeds.items():
        halves = known[: len(known) // 2], known[len(known) // 2 :]
        chosen = {
            (kind.name, seed): min(kind.entrants, key=_badness(last, case, tuned))
            for tuned, judged in (halves, halves[::-1])
            for seed in judged
            for kind in KINDS
        }
        for kind in KINDS:
            cells = []
            for _, path in _SHOWN:
                ratios = [
                    max(1.0, _at(last[case, seed, chosen[kind.name, seed]], path))
                    / max(1.0, _at(last[case, seed, chosen[_REFERENCE, seed]], path))
                    for seed in known
                ]
                spread = "" if kind.name == _REFERENCE else f" ({max(ratios):.2f})"
                cells.append(f"{median(ratios):.2f}{spread}")
            names = dict.fromkeys(chosen[kind.name, seed] for seed in known)
            rows.append([case, kind.name, "; ".join(names), *cells])
    return table(["trace", "kind", "chosen", *(label for label, _ in _SHOWN)], rows)


def _badness(last: _Last, case: str, seeds: list[int]) -> Callable[[str], float]:
    """The measure by which an entrant is chosen: the geometric mean over these seeds."""
    return lambda entrant: _mean([_at(last[case, seed, entrant], _CHOSEN_BY) for seed in seeds])


def _mean(values: list[float]) -> float:
    return exp(fsum(log(max(1e-9, value)) for value in values) / len(values)) if values else 1.0


def _each(last: _Last, seeds: dict[str, list[int]]) -> str:
    """A row per entrant and trace: figures by seed, and the cost of preemptions over all seeds."""
    rows = []
    for case, known in seeds.items():
        for entrant in ENTRANTS:
            records = [last[case, seed, entrant] for seed in known]
            scores = [record["scores"] for record in records]
            rows.append(
                [
                    case,
                    entrant,
                    *(
                        ", ".join(_minutes(figure) for figure in figures)
                        for figures in (
                            [each["completion"]["mean"] for each in scores],
                            [each["wait"]["mean"] for each in scores],
                            [each["worth_wait"] for each in scores],
                        )
                    ),
                    ", ".join(percent(each["gpu_utilization"], 0) for each in scores),
                    f"{sum(each['preemptions'] for each in scores):,}",
                    f"{sum(each['lost_gpu_hours'] for each in scores):,.0f}",
                    f"{sum(_planning(record) for record in records) / len(records):.2f} s",
                ]
            )
    head = ["trace", "entrant", "completion", "wait", "by worth", "GPUs in use"]
    return table([*head, "preempted", "GPU-hours lost", "an epoch"], rows)


def _planning(record: Record) -> float:
    return float(record["scores"]["planning_seconds"]) / int(record["epochs"])


def _minutes(figure: dict[str, Any]) -> str:
    return f"{'≥ ' * figure['at_least']}{figure['value'] / 60:,.0f} min"


def _at(record: Record, path: tuple[str, ...]) -> float:
    found: Any = record["scores"]
    for key in path:
        found = found[key]
    return float(found)
