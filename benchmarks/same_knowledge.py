"""
The planner beside rules with the same knowledge: traces and generated mixes, loads, and kinds of estimates.

A policy that stops no job of equal priority (the default) is compared with rules that stop nothing, a policy
with turns with rules that stop jobs. Planner and rules get the same estimates: exact, wrong by up to a factor
of 2, or none, so that both learn from finished jobs. Constants were chosen on seeds below `FIRST_JUDGED`; the
others are for judging. The matrix is sparse: each trace has a few loads and kinds of estimates. Where jobs
have priorities, the rules serve higher ones first, and the mean is weighted by 1 + priority. Quotas hold for
planner and rules alike.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.markdown import table
from benchmarks.records import append
from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import Queue, Quota
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.trace import Estimates, Physics, make_trace
from gpuplan.planner.sources.traces.arrivals import Arrival, read_arrivals
from gpuplan.planner.sources.traces.openb import read_openb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.records import Record
    from gpuplan.planner.simulate.scorecard import JobLife
    from gpuplan.planner.simulate.trace import Trace

NAME: Final = "same knowledge"

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_BEGIN: Final = datetime(2026, 11, 20, tzinfo=UTC)
_CLOCK: Final = EpochClock(15 * _MINUTE, at_events=True, apart=_MINUTE)
_NODE_GPUS: Final = 8

FIRST_JUDGED: Final = 5
"""Seeds below were used to choose constants."""
ESTIMATES: Final[dict[str, float | None]] = {"exact": 1.0, "factor 2": 2.0, "none": None}

POLICIES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "with turns": {"disruption": {"priority_gap": 0, "minimum_runtime": "30m"}},
}
RULES: Final = {"default": ("fifo", "easy", "sjf"), "with turns": ("srsf", "las")}
"""Rules that stop no job, and rules that stop jobs."""


class Cell(NamedTuple):
    """One setting of the matrix."""

    trace: str
    load: float
    estimates: str


@dataclass(frozen=True)
class Source:
    """A cluster, and the jobs of a seed before they are compressed to a load."""

    draw: Callable[[int], tuple[Cluster, list[Arrival]]]
    settings: tuple[tuple[float, str], ...]
    queues: tuple[Queue, ...] = ()
    by_priority: bool = False


# --- the traces ---------------------------------------------------------------------------------------------

PHILLY_DAYS: Final = (
    *("2017-11-11", "2017-11-15", "2017-10-10", "2017-11-23", "2017-12-21"),
    *("2017-10-12", "2017-10-26", "2017-11-08", "2017-11-28", "2017-12-11"),
)
"""By seed; the first five were used to choose constants."""
_TRACE_JOBS: Final = 200
_DRAWN_JOBS: Final = 150
_PRIORITIES: Final = {0: 60, 1: 30, 2: 10}
"""Priorities with their parts of the jobs, in per cent."""
_TEAMS: Final = (
    *(Queue(name=name) for name in ("research", "product")),
    *(
        Queue(name=name, parent=parent, quota=Quota(nominal=16, borrowing_limit=16))
        for name, parent in (
            ("vision", "research"),
            ("language", "research"),
            ("ranking", "product"),
            ("speech", "product"),
        )
    ),
)
"""Four teams of 16 GPUs each, which borrow from the other team of their department."""
_TEAM_PARTS: Final = {"vision": 40, "language": 30, "ranking": 20, "speech": 10}
_MODELS: Final = (("T4", 3, 1.0), ("V100", 3, 2.0), ("A100", 2, 4.0))
"""GPU model, number of nodes, and speed."""


def sources(*, openb: Path | None, philly: Path | None) -> dict[str, Source]:
    """All traces with available data."""
    found = {
        "one GPU model": Source(_generated(gangs=False, mixed=False), ((0.7, "none"), (1.2, "exact"))),
        "large gangs": Source(_generated(gangs=True, mixed=False), ((1.2, "exact"), (1.8, "factor 2"))),
        "mixed GPUs": Source(_generated(gangs=False, mixed=True), ((1.2, "exact"), (1.8, "none"))),
    }
    gangs, mixed = (_generated(gangs=each, mixed=not each) for each in (True, False))
    found |= {
        "priorities, gangs": Source(
            _with_priorities(gangs), ((1.2, "exact"), (1.8, "factor 2")), by_priority=True
        ),
        "priorities, mixed GPUs": Source(_with_priorities(mixed), ((1.2, "exact"),), by_priority=True),
        "priorities and stops": Source(
            _with_priorities(gangs, stops=True), ((1.2, "exact"),), by_priority=True
        ),
        "quotas, gangs": Source(_with_queues(gangs), ((1.2, "exact"), (1.8, "factor 2")), _TEAMS),
        "quotas, mixed GPUs": Source(_with_queues(mixed), ((1.2, "exact"),), _TEAMS),
        "priorities and quotas": Source(
            _with_queues(_with_priorities(gangs)), ((1.2, "exact"),), _TEAMS, by_priority=True
        ),
    }
    if philly is not None:
        every = ((1.2, "factor 2"), (1.8, "exact"), (1.8, "none"))
        found["Philly"] = Source(philly_days(philly, PHILLY_DAYS, _TRACE_JOBS), every)
    if openb is not None:
        found["openb"] = Source(_openb(openb), ((1.8, "exact"),))
    return found


def philly_days(path: Path, days: Sequence[str], jobs: int) -> Callable[[int], tuple[Cluster, list[Arrival]]]:
    """The first jobs from a day on, no longer than 8 hours and no wider than 32 of 64 GPUs."""
    cluster = _cluster(("P100", 8))
    every = read_arrivals(path, cluster, seed=0)

    def draw(seed: int) -> tuple[Cluster, list[Arrival]]:
        day = datetime.fromisoformat(days[seed]).replace(tzinfo=UTC)
        chosen = [
            each
            for each in every
            if each.job.submitted_at >= day and each.duration <= 8 * _HOUR and 0 < _gpus(each.job) <= 32
        ][:jobs]
        return cluster, chosen

    return draw


def _openb(folder: Path) -> Callable[[int], tuple[Cluster, list[Arrival]]]:
    """Every 200th GPU node of openb, and pods with GPUs that may run there, all of one priority."""
    pods = folder / "openb_pod_list_default.csv"
    whole = read_openb(folder / "openb_node_list_gpu_node.csv", pods, at=0)

    def draw(seed: int) -> tuple[Cluster, list[Arrival]]:
        cluster = whole.cluster.model_copy(update={"nodes": whole.cluster.nodes[seed::200]})
        every = [each for each in read_arrivals(pods, cluster, seed=seed) if each.job.request.needs_gpu]
        skip = (100 + 5 * seed) * _DAY
        jobs = [
            replace(each, job=each.job.model_copy(update={"priority": 0}))
            for each in every
            if each.after >= skip
            and each.duration <= 8 * _HOUR
            and any(_has_room(node, each.job) for node in cluster.nodes)
        ]
        return cluster, jobs[:_TRACE_JOBS]

    return draw


def _has_room(node: Node, job: Job) -> bool:
    """True if a pod may run on a node that is empty: some ask for more cores than any of a sample has."""
    asked = job.request
    return (
        (not job.gpu_models or node.gpu_model in job.gpu_models)
        and asked.gpus <= node.gpu_count
        and asked.cpu_milli <= node.cpu_milli
        and asked.memory_mib <= node.memory_mib
    )


def _generated(*, gangs: bool, mixed: bool) -> Callable[[int], tuple[Cluster, list[Arrival]]]:
    """150 jobs of 5 minutes to 12 hours on 64 GPUs, over 24 hours before compression."""

    def draw(seed: int) -> tuple[Cluster, list[Arrival]]:
        dice = random.Random(f"same knowledge {gangs} {mixed} {seed}")
        sizes = {1: 50, 4: 15, 8: 15, 16: 12, 32: 8} if gangs else {1: 60, 2: 20, 4: 15, 8: 5}
        arrivals = []
        for number in range(_DRAWN_JOBS):
            gpus = dice.choices(list(sizes), list(sizes.values()))[0]
            seconds = round(math.exp(dice.uniform(math.log(5 * _MINUTE), math.log(12 * _HOUR))))
            arrivals.append(Arrival(dice.randrange(_DAY), _job(number, gpus, mixed=mixed), seconds))
        cluster = (
            _cluster(*((model, count) for model, count, _ in _MODELS)) if mixed else _cluster(("A100", 8))
        )
        return cluster, sorted(arrivals, key=lambda each: (each.after, each.job.name))

    return draw


def _with_priorities(
    draw: Callable[[int], tuple[Cluster, list[Arrival]]], *, stops: bool = False
) -> Callable[[int], tuple[Cluster, list[Arrival]]]:
    """The same jobs with three priorities; running ones may be stopped for higher ones, or not."""
    return _with_drawn(draw, "priority", _PRIORITIES, name="priorities", stops=stops)


def _with_queues(
    draw: Callable[[int], tuple[Cluster, list[Arrival]]],
) -> Callable[[int], tuple[Cluster, list[Arrival]]]:
    """The same jobs, not to be stopped, in queues of teams of which some ask for more than their part."""
    return _with_drawn(draw, "queue", _TEAM_PARTS, name="queues", stops=False)


def _with_drawn(
    draw: Callable[[int], tuple[Cluster, list[Arrival]]],
    field: str,
    parts: Mapping[Any, int],
    *,
    name: str,
    stops: bool,
) -> Callable[[int], tuple[Cluster, list[Arrival]]]:
    """The same jobs with a field drawn from values with their parts, in per cent."""

    def drawn(seed: int) -> tuple[Cluster, list[Arrival]]:
        dice = random.Random(f"{name} {seed}")
        cluster, arrivals = draw(seed)
        values = dice.choices(list(parts), list(parts.values()), k=len(arrivals))
        return cluster, [
            replace(each, job=each.job.model_copy(update={field: value, "preemptible": stops}))
            for each, value in zip(arrivals, values, strict=True)
        ]

    return drawn


def _cluster(*models: tuple[str, int]) -> Cluster:
    return Cluster(
        nodes=tuple(
            Node(name=f"{model.lower()}-{number}", gpus=NodeGpus(model=model, count=_NODE_GPUS))
            for model, nodes in models
            for number in range(nodes)
        )
    )


def _job(number: int, gpus: int, *, mixed: bool) -> Job:
    replicas = max(1, gpus // _NODE_GPUS)
    speeds = {model: speed for model, _, speed in _MODELS} if mixed else {}
    return Job(
        name=f"job-{number:04d}",
        queue="all",
        request=ResourceRequest(gpus=gpus // replicas),
        gang=Gang(minimum=replicas, maximum=replicas),
        gpu_models=speeds,
        submitted_at=_BEGIN,
    )


def _gpus(job: Job) -> float:
    return job.request.total_gpu_milli * job.gang.maximum / 1000


def trace_of(source: Source, cell: Cell, seed: int) -> Trace:
    """The jobs of a seed, compressed to the load of a cell, with its estimates."""
    cluster, arrivals = source.draw(seed)
    first = min(each.after for each in arrivals)
    span = max(1, max(each.after for each in arrivals) - first)
    gpus = sum(node.gpu_count for node in cluster.nodes)
    demand = sum(_gpus(each.job) * each.duration * _slowness(each.job, cluster) for each in arrivals)
    factor = demand / (gpus * span * cell.load)
    moved = [Arrival(round((each.after - first) * factor), each.job, each.duration) for each in arrivals]
    empty = Snapshot(taken_at=_BEGIN, cluster=cluster, queues=source.queues)
    estimates = Estimates(ESTIMATES[cell.estimates], seed=seed)
    return make_trace(empty, moved, estimates=estimates, physics=Physics())


def _slowness(job: Job, cluster: Cluster) -> float:
    """Time on the mean GPU of a cluster, relative to that on the fastest that the job may use."""
    speeds = [
        (job.speed_milli(node.gpu_model) / 1000, node.gpu_count)
        for node in cluster.nodes
        if node.gpus and (not job.gpu_models or node.gpu_model in job.gpu_models)
    ]
    gpus = sum(count for _, count in speeds)
    return gpus / sum(speed * count for speed, count in speeds) if gpus else 1.0


# --- measuring ----------------------------------------------------------------------------------------------


def cells(known: dict[str, Source]) -> list[Cell]:
    """The cells of the matrix."""
    return [Cell(name, *setting) for name, source in known.items() for setting in source.settings]


def measure(
    known: dict[str, Source], chosen: Iterable[Cell], seeds: Sequence[int], *, log_file: Path | None
) -> list[Record]:
    """Each policy and rule on each seed of each cell, planned by greedy only; append records to the log."""
    records = []
    for cell in chosen:
        for seed in seeds:
            trace = trace_of(known[cell.trace], cell, seed)
            for policy_name, rules in RULES.items():
                if policy_name not in _policies(known[cell.trace]):
                    continue
                policy = Policy.model_validate({**POLICIES[policy_name], "solvers": []})
                for entrant in (policy_name, *rules):
                    baseline = None if entrant == policy_name else entrant
                    if baseline and known[cell.trace].by_priority:
                        baseline = f"priority-{baseline}"
                    found = replay(trace, policy, _CLOCK, seed=seed, baseline=baseline)
                    scores = found.scores
                    record = {
                        **cell._asdict(),
                        "seed": seed,
                        "entrant": entrant,
                        "completion": _weighted_mean(found.lives),
                        "p95": scores.completion.p95.value,
                        "makespan": scores.makespan.value if scores.makespan else 0.0,
                        "restarts": scores.restarts,
                        "lost": scores.lost_gpu_hours + scores.idle_gpu_hours,
                        "stopped": found.stopped,
                    }
                    append(log_file, NAME, record)
                    records.append(record)
    return records


def _policies(source: Source) -> tuple[str, ...]:
    """Rules that stop jobs know neither priorities nor quotas of others."""
    return ("default",) if source.by_priority or source.queues else tuple(POLICIES)


def _weighted_mean(lives: Iterable[JobLife]) -> float:
    """Σ (1 + priority) · completion / Σ (1 + priority), in seconds, of jobs that have all ended."""
    total = weights = 0.0
    for life in lives:
        if life.ended_at is None:
            raise ValueError(f"expected all jobs to end, found that {life.job.name} did not")
        weights += 1 + life.job.priority
        total += (1 + life.job.priority) * (life.ended_at - life.job.submitted_at).total_seconds()
    return total / weights


# --- the tables ---------------------------------------------------------------------------------------------


def tables(records: Iterable[Record]) -> str:
    """For each cell the ratios to each rule and to the best rule of each seed: median, and the worst."""
    last = {
        (Cell(*(each[key] for key in Cell._fields)), each["seed"], each["entrant"]): each for each in records
    }
    found = dict.fromkeys(cell for cell, *_ in last)
    return "\n".join(filter(None, (_table(policy, last, list(found)) for policy in RULES)))


def _table(policy: str, last: dict[tuple[Cell, int, str], Record], found: list[Cell]) -> str:
    rules = RULES[policy]
    head = [
        f"`{policy}` divided by",
        *("load", "estimates", "seeds"),
        *(f"{rule}, mean" for rule in rules),
        "best rule, mean",
        *(f"{rule}, p95" for rule in rules),
    ]
    rows, pooled = [], dict[str, list[float]]()
    for cell in found:
        seeds = sorted(
            seed
            for at, seed, entrant in last
            if at == cell and entrant == policy and (cell, seed, rules[-1]) in last
        )
        if not seeds:
            continue
        ratios = {f"{rule} {key}": [] for key in ("completion", "p95") for rule in rules} | {"best": []}
        for seed in seeds:
            own = last[cell, seed, policy]
            for rule in rules:
                for key in ("completion", "p95"):
                    ratios[f"{rule} {key}"].append(own[key] / last[cell, seed, rule][key])
            best = min(last[cell, seed, rule]["completion"] for rule in rules)
            ratios["best"].append(own["completion"] / best)
        for key, values in ratios.items():
            pooled.setdefault(key, []).extend(values)
        rows.append([cell.trace, f"{cell.load}", cell.estimates, str(len(seeds)), *_shown(ratios, rules)])
    if rows:
        count = len(pooled["best"])
        rows.append(["all", "", "", str(count), *_shown(pooled, rules)])
    return table(head, rows) if rows else ""


def _shown(ratios: dict[str, list[float]], rules: Sequence[str]) -> list[str]:
    keys = [*(f"{rule} completion" for rule in rules), "best", *(f"{rule} p95" for rule in rules)]
    return [f"{median(ratios[key]):.2f} ({max(ratios[key]):.2f})" for key in keys]
