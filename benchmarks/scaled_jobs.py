"""
Jobs that declare how they scale, beside the same jobs at fixed sizes, on GPUs of three models.

Two clusters. The first has 64 GPUs in the proportions of Sia's evaluation (Jayaram Subramanya et al., SOSP
2023): 24 slow, 24 medium and 16 fast ones, and jobs of three applications, which differ in scaling and in
their gain from fast GPUs. The second has 96 GPUs, mostly fast ones, and four other applications; no constant
was chosen on it. A user would ask for 1, 2, 4 or 8 replicas of one GPU. Even seeds of the first cluster were
used to choose constants; odd seeds are for judging.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.markdown import table
from benchmarks.records import append
from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Goal
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.trace import Physics, make_trace
from gpuplan.planner.sources.traces.arrivals import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.records import Record
    from gpuplan.planner.simulate.trace import Trace

NAME: Final = "scaled-jobs"

_MINUTE: Final = 60
_HOUR: Final = 3600
_BEGIN: Final = datetime(2026, 11, 20, tzinfo=UTC)
_CLOCK: Final = EpochClock(15 * _MINUTE, at_events=True, apart=_MINUTE)


class App(NamedTuple):
    """Speeds of the jobs of one application."""

    speeds: dict[str, float]
    """Speed of one replica, by GPU model."""
    scaling: dict[int, float]


class Shape(NamedTuple):
    """A cluster and the applications of its jobs."""

    nodes: tuple[tuple[str, int, int], ...]
    """GPU model, number of nodes, GPUs per node."""
    apps: tuple[App, ...]

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs by model."""
        return {model: nodes * gpus for model, nodes, gpus in self.nodes}


SHAPES: Final = {
    "first": Shape(
        (("T4", 6, 4), ("RTX-6000", 3, 8), ("A100-80GB", 2, 8)),
        (
            App({"T4": 1, "RTX-6000": 2, "A100-80GB": 4}, {1: 1, 2: 1.9, 4: 3.4, 8: 6}),
            App({"T4": 1, "RTX-6000": 2.5, "A100-80GB": 6}, {1: 1, 2: 1.8, 4: 3, 8: 4.6}),
            App({"T4": 1, "RTX-6000": 1.5, "A100-80GB": 2}, {1: 1, 2: 1.7, 4: 2.5, 8: 3.2}),
        ),
    ),
    "second": Shape(
        (("L40S", 4, 4), ("A100-40GB", 5, 8), ("H100-80GB", 5, 8)),
        (
            App({"L40S": 1, "A100-40GB": 1.3, "H100-80GB": 2.2}, {1: 1, 2: 1.95, 4: 3.7, 8: 6.9, 16: 12}),
            App({"L40S": 1, "A100-40GB": 2, "H100-80GB": 3.5}, {1: 1, 2: 1.6, 4: 2.2}),
            App({"L40S": 1, "A100-40GB": 1.1, "H100-80GB": 1.2}, {1: 1, 2: 1.5, 4: 2, 8: 2.3}),
            App({"L40S": 1, "A100-40GB": 3, "H100-80GB": 8}, {1: 1, 2: 1.85, 4: 3.3, 8: 5.5}),
        ),
    ),
}
_ASKED: Final = {1: 40, 2: 30, 4: 20, 8: 10}
"""Replicas that users ask for, with frequencies in percent."""
LOADS: Final = (0.7, 1.2)
"""Demand relative to the GPUs, if jobs run at the sizes asked for."""
SIZES: Final = ("chosen", "asked", "1", "2", "4", "8")
"""Chosen by the planner, as asked for by the user, or fixed; no job gets more than it can use."""
_HOURS: Final = 8
"""Hours during which jobs arrive."""


def measure(shape: str, seeds: Iterable[int], *, log_file: Path | None) -> list[Record]:
    """Each way to set sizes on the same jobs, planned by greedy only; append the records to the log."""
    records = []
    for load, seed, size in product(LOADS, seeds, SIZES):
        goals = (Goal.COMPLETION, Goal.GOODPUT, Goal.VALUE) if size == "chosen" else (Goal.COMPLETION,)
        for goal in goals:
            policy = Policy.model_validate({"objective": {"goal": goal}, "solvers": []})
            coming = trace(load, seed, size, policy, SHAPES[shape])
            scores = replay(coming, policy, _CLOCK, seed=seed).scores
            record = {
                "shape": shape,
                "load": load,
                "seed": seed,
                "size": size,
                "goal": goal.value,
                "completion": scores.completion.mean.value,
                "p95": scores.completion.p95.value,
                "makespan": scores.makespan.value if scores.makespan else 0.0,
                "restarts": scores.restarts,
                "lost": scores.lost_gpu_hours + scores.idle_gpu_hours,
            }
            append(log_file, NAME, record)
            records.append(record)
    return records


def trace(load: float, seed: int, size: str, policy: Policy, shape: Shape = SHAPES["first"]) -> Trace:
    """The trace of a seed, with sizes chosen by the planner or fixed."""
    draw = random.Random(f"scaled jobs {load} {seed}")
    gpus_of = shape.gpus
    room = load * _HOURS * _HOUR * sum(gpus_of.values())
    arrivals: list[Arrival] = []
    while room > 0:
        app, asked = draw.choice(shape.apps), draw.choices(list(_ASKED), list(_ASKED.values()))[0]
        after = draw.randrange(_HOURS * _HOUR)
        work = math.exp(draw.uniform(math.log(10 * _MINUTE), math.log(20 * _HOUR)))
        most = max(app.scaling)
        asked = min(asked, most)
        # Demand is measured at the mean speed of a GPU of this cluster.
        mean = sum(app.speeds[model] * gpus for model, gpus in gpus_of.items()) / sum(gpus_of.values())
        room -= asked * work / app.scaling[asked] / mean
        fixed = None if size == "chosen" else asked if size == "asked" else min(int(size), most)
        arrivals.append(Arrival(after, *_job(len(arrivals), app, work, fixed)))
    cluster = Cluster(
        nodes=tuple(
            Node(name=f"{model.lower()}-{number}", gpus=NodeGpus(model=model, count=gpus))
            for model, nodes, gpus in shape.nodes
            for number in range(nodes)
        )
    )
    empty = Snapshot(taken_at=_BEGIN, cluster=cluster, queues=())
    arrivals.sort(key=lambda each: (each.after, each.job.name))
    return make_trace(empty, arrivals, physics=Physics.of(policy, 30 * _MINUTE))


def _job(number: int, app: App, work: float, fixed: int | None) -> tuple[Job, int]:
    """A job with `work` seconds for one replica on the slowest model, and its shortest duration (s)."""
    least, most = (fixed, fixed) if fixed else (1, max(app.scaling))
    job = Job(
        name=f"job-{number:04d}",
        queue="all",
        request=ResourceRequest(gpus=1),
        gang=Gang.model_validate({"min": least, "max": most, "scaling": app.scaling}),
        gpu_models={model: round(1000 * speed) for model, speed in app.speeds.items()},
        submitted_at=_BEGIN,
    )
    return job, max(1, round(work / max(app.speeds.values()) / app.scaling[most]))


def tables(records: Iterable[Record]) -> str:
    """Ratios to the sizes asked for on one cluster: median over the seeds, the largest in parentheses."""
    last = {(each["load"], each["seed"], each["size"], each["goal"]): each for each in records}
    keys = ("completion", "p95", "makespan")
    rows: list[list[str]] = []
    ways = dict.fromkeys((load, size, goal) for load, _, size, goal in last)
    for load, size, goal in ways:
        seeds = sorted({seed for at, seed, *_ in last if at == load})
        pairs = [
            (last[load, seed, size, goal], last[load, seed, "asked", Goal.COMPLETION.value])
            for seed in seeds
            if (load, seed, size, goal) in last and (load, seed, "asked", Goal.COMPLETION.value) in last
        ]
        if pairs:
            rows.append([f"{load}", size, f"`{goal}`", *(_by(pairs, key) for key in keys), _restarts(pairs)])
    return table(["load", "sizes", "goal", "completion, mean", "p95", "makespan", "restarts"], rows)


def _by(pairs: list[tuple[Record, Record]], key: str) -> str:
    ratios = [one[key] / other[key] for one, other in pairs]
    return f"{median(ratios):.2f} ({max(ratios):.2f})"


def _restarts(pairs: list[tuple[Any, Any]]) -> str:
    return f"{median(one['restarts'] for one, _ in pairs):.0f}"
