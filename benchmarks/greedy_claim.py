"""
Does greedy beat optimization? The same jobs over the same hours, planned by greedy and by the exact solvers.

Three traces: openb on every 60th of its nodes, Philly on nodes of eight GPUs, and the shipped day with gangs,
MIG, shares and quotas. The seed says in which part of a trace the jobs begin to come, or draws them. Solvers
stop by work done, not by the clock, so that a busy machine changes nothing but the seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, fsum, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.markdown import percent, table
from benchmarks.records import append
from planner.models.cluster import Cluster, Node, NodeGpus
from planner.models.policy import Policy
from planner.models.snapshot import Snapshot
from planner.models.units import MILLI
from planner.simulation.clock import Clock
from planner.simulation.contest import Case, hold
from planner.simulation.trace import Physics, Window, make_trace
from planner.sources.arrivals import read_arrivals
from planner.sources.files import load_snapshot
from planner.sources.openb import TRACE_START, read_openb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.records import Record
    from planner.simulation.trace import Trace

NAME: Final = "greedy claim"
SCENARIO: Final = Path(__file__).parents[1] / "scenarios" / "arrivals"
SOLVERS: Final = ("greedy", "auto")
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "by GPUs": {"objective": {"goal": "value"}},
    "jobs alike": {"objective": {"goal": "value"}, "weights": {"basis": "job"}},
}
"""By GPUs a job is worth these; alike, each is worth the same whatever it asks for."""

_DAY: Final = 24 * 3600
_HOUR: Final = 3600
_TICKS: Final = 2


@dataclass(frozen=True)
class Contest:
    """One trace at one part of its time."""

    name: str
    seed: int
    trace: Trace
    clock: Clock


def contests(seeds: Iterable[int], *, openb: Path | None, philly: Path | None) -> Iterator[Contest]:
    """All of them whose data is there."""
    for seed in seeds:
        yield _synthetic(seed)
        if openb is not None:
            yield _openb(openb, seed)
        if philly is not None:
            yield _philly(philly, seed)


def _synthetic(seed: int) -> Contest:
    snapshot = load_snapshot(str(SCENARIO))
    arrivals = read_arrivals(SCENARIO / "profile.yaml", snapshot.cluster, seed=seed)
    return Contest("synthetic", seed, make_trace(snapshot, arrivals), Clock(900, 18 * _HOUR))


def _openb(folder: Path, seed: int) -> Contest:
    pods = folder / "openb_pod_list_default.csv"
    whole = read_openb(folder / "openb_node_list_gpu_node.csv", pods, at=0)
    nodes = whole.cluster.nodes[seed::60]
    empty = whole.model_copy(
        update={"cluster": whole.cluster.model_copy(update={"nodes": nodes}), "jobs": ()}
    )
    window = Window(skip=(130 + 4 * seed) * _DAY, seconds=8 * _HOUR, load_milli=12 * MILLI)
    arrivals = read_arrivals(pods, empty.cluster, seed=seed)
    return Contest("openb", seed, make_trace(empty, arrivals, window=window), Clock(900, 12 * _HOUR))


def _philly(path: Path, seed: int) -> Contest:
    nodes = tuple(Node(name=f"n{index:02d}", gpus=NodeGpus(model="P100", count=8)) for index in range(24))
    empty = Snapshot(taken_at=TRACE_START, cluster=Cluster(nodes=nodes), queues=())
    window = Window(skip=(30 + 7 * seed) * _DAY, seconds=8 * _HOUR, load_milli=3 * MILLI // 2)
    arrivals = read_arrivals(path, empty.cluster, seed=seed)
    return Contest("Philly", seed, make_trace(empty, arrivals, window=window), Clock(900, 12 * _HOUR))


def measure(contest: Contest, policy_name: str, *, log_file: Path | None, at_a_time: int) -> list[Record]:
    """Each solver on one trace under one policy, appended to the log."""
    budget = {"mode": "deterministic", "ticks": _TICKS}
    policy = Policy.model_validate({**POLICIES[policy_name], "budget": budget})
    cases = [
        Case(solver, policy_name, solver, policy if solver == "auto" else _greedy(policy))
        for solver in SOLVERS
    ]
    trace = replace(contest.trace, physics=Physics.of(policy, contest.trace.physics.checkpoint_every))
    found = hold(trace, cases, contest.clock, seed=contest.seed, at_a_time=at_a_time)
    records = [
        {
            "case": contest.name,
            "seed": contest.seed,
            "policy": policy_name,
            "solver": case.solver,
            "gpus": sum(node.gpu_count for node in trace.start.cluster.nodes),
            "epochs": len(each.epochs),
            "scores": each.scores.model_dump(mode="json"),
        }
        for case, each in zip(cases, found, strict=True)
    ]
    for record in records:
        append(log_file, NAME, record)
    return records


def _greedy(policy: Policy) -> Policy:
    return policy.model_copy(update={"solvers": ()})


# --- the tables ---------------------------------------------------------------------------------------------

_SHOWN: Final = (
    ("wait, mean", ("wait", "mean", "value")),
    ("wait by worth", ("worth_wait", "value")),
    ("wait, p99", ("wait", "p99", "value")),
    ("completion, mean", ("completion", "mean", "value")),
    ("slowdown, mean", ("slowdown", "mean", "value")),
)


def claim_tables(records: Iterable[Record]) -> str:
    """How greedy compares with the exact solvers, by trace and policy; the last run of each counts."""
    last = {(each["policy"], each["case"], each["seed"], each["solver"]): each for each in records}
    pairs = sorted({key[:3] for key in last if all((*key[:3], solver) in last for solver in SOLVERS)})
    return _ratios(last, pairs) + "\n" + _each(last, pairs)


def _ratios(last: dict[tuple[Any, ...], Record], pairs: list[tuple[Any, ...]]) -> str:
    """Geometric means over the seeds of greedy by the exact solvers: below 1 greedy is better."""
    rows = []
    for policy, case in sorted({pair[:2] for pair in pairs}):
        seeds = [pair for pair in pairs if pair[:2] == (policy, case)]
        cells = []
        for _, path in _SHOWN:
            ratios = [
                max(1.0, _at(last[*pair, "greedy"], path)) / max(1.0, _at(last[*pair, "auto"], path))
                for pair in seeds
            ]
            better = sum(ratio < 1 for ratio in ratios)
            mean = exp(fsum(map(log, ratios)) / len(ratios))
            cells.append(f"{mean:.2f} ({better} of {len(ratios)})")
        rows.append([policy, case, *cells])
    return table(["policy", "trace", *(label for label, _ in _SHOWN)], rows)


def _each(last: dict[tuple[Any, ...], Record], pairs: list[tuple[Any, ...]]) -> str:
    head = ["policy", "trace", "seed", "solver", "finished", "wait", "by worth", "p99", "completion"]
    rows = []
    for pair in pairs:
        for solver in SOLVERS:
            record = last[*pair, solver]
            scores = record["scores"]
            figures = (scores["wait"]["mean"], scores["worth_wait"], scores["wait"]["p99"])
            rows.append(
                [
                    *map(str, pair),
                    solver,
                    f"{scores['finished']:,} of {scores['jobs']:,}",
                    *(_minutes(figure) for figure in (*figures, scores["completion"]["mean"])),
                    percent(scores["gpu_utilization"], 1),
                    f"{scores['preemptions']:,}",
                    f"{scores['lost_gpu_hours']:,.1f}",
                    f"{scores['jain_mean']:.3f}",
                    f"{scores['planning_seconds'] / record['epochs']:.2f} s",
                ]
            )
    return table([*head, "GPUs in use", "preempted", "GPU-hours lost", "Jain", "an epoch"], rows)


def _minutes(figure: dict[str, Any]) -> str:
    return f"{'≥ ' * figure['at_least']}{figure['value'] / 60:,.0f} min"


def _at(record: Record, path: tuple[str, ...]) -> float:
    found: Any = record["scores"]
    for key in path:
        found = found[key]
    return float(found)
