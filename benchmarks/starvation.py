"""
Starvation: thirty days with more work than the cluster can do, and the longest waits for a start.

It checks the two bounds that the goal `completion` gives (docs/formulation.md, no starvation). Of two jobs
with equal numbers of GPUs, the later one starts first only if it was submitted less than

    doubling · log2( time of the other / its own time )

after the other. The first figure is the largest excess over this bound, in doublings. And a job that has
waited `starving` and is the first of such jobs starts within the longest duration of any job. The second
figure is the longest further wait of a first job. Policies without ageing and without held nodes show that
both bounds can fail.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from benchmarks.markdown import percent, table
from benchmarks.records import append
from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.job import Gang, Job, ResourceRequest
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.trace import make_trace
from gpuplan.planner.sources.traces.arrivals import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.records import Record
    from gpuplan.planner.simulate.scorecard import JobLife
    from gpuplan.planner.simulate.trace import Trace

NAME: Final = "starvation"
DAYS: Final = 30
LOAD: Final = 1.2

_NEVER: Final[dict[str, Any]] = {"backfill": {"starving": None}}
_SOON: Final[dict[str, Any]] = {"backfill": {"starving": "3d"}}
_TURNS: Final[dict[str, Any]] = {"priority_gap": 0, "minimum_runtime": "30m"}
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "as shipped": {},
    "no nodes held": {"horizon": _NEVER},
    "nor ageing": {"horizon": _NEVER, "objective": {"doubling": "3650d"}},
    "with turns": {"disruption": _TURNS},
    "held after 3 days": {"horizon": _SOON},
    "held after 3 days, with turns": {"horizon": _SOON, "disruption": _TURNS},
}
"""Settings that differ from the defaults."""

_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_NODES: Final = 4
_GPUS: Final = 8
_BEGIN: Final = datetime(2026, 11, 20, tzinfo=UTC)
_SIZES: Final = {1: 50, 2: 20, 4: 15, 8: 10, 16: 5}
"""GPUs of a job, with frequencies in percent."""
_SHORTEST: Final = 300
_LONGEST: Final = 24 * _HOUR
_EPOCH: Final = 1800
_BANDS: Final = {"below 1 h": _HOUR, "1 to 6 h": 6 * _HOUR, "6 to 24 h": _LONGEST + 1}
"""Durations, with the end of each band."""


def trace_of(seed: int, days: int = DAYS) -> Trace:
    """Jobs at random times; their total demand is `LOAD` times the cluster over these days."""
    draw = random.Random(f"starvation {seed}")
    room = _NODES * _GPUS * days * _DAY * LOAD
    shapes = []
    while room > 0:
        gpus = draw.choices(list(_SIZES), list(_SIZES.values()))[0]
        seconds = round(math.exp(draw.uniform(math.log(_SHORTEST), math.log(_LONGEST))))
        shapes.append((gpus, seconds))
        room -= gpus * seconds
    arrivals = [
        Arrival(draw.randrange(days * _DAY), _job(f"job-{number:05d}", gpus), seconds)
        for number, (gpus, seconds) in enumerate(shapes)
    ]
    nodes = tuple(Node(name=f"n{index}", gpus=NodeGpus(model="A100", count=_GPUS)) for index in range(_NODES))
    empty = Snapshot(taken_at=_BEGIN, cluster=Cluster(nodes=nodes), queues=())
    return make_trace(empty, sorted(arrivals, key=lambda each: (each.after, each.job.name)))


def _job(name: str, gpus: int) -> Job:
    replicas = max(1, gpus // _GPUS)
    return Job(
        name=name,
        queue="all",
        request=ResourceRequest(gpus=gpus // replicas),
        gang=Gang(minimum=replicas, maximum=replicas),
        submitted_at=_BEGIN,
    )


@dataclass(frozen=True, slots=True)
class Wait:
    """One job, in seconds from the start of the simulation."""

    gpus: int
    duration: int
    came: float
    started: float
    """The start, or the end of the simulation if the job has not started by then."""
    over: bool
    """True if the job has started."""

    @property
    def seconds(self) -> float:
        """Duration of the wait."""
        return self.started - self.came


def measure(
    names: Iterable[str], seed: int, *, days: int = DAYS, log_file: Path | None = None
) -> list[Record]:
    """The same jobs under each policy, planned by greedy only; append the records to the log."""
    trace, records = trace_of(seed, days), []
    for name in names:
        policy = Policy.model_validate({**POLICIES[name], "solvers": []})
        clock = EpochClock(_EPOCH, days * _DAY, at_events=True, apart=_EPOCH)
        found = replay(trace, policy, clock, seed=seed)
        waits = [_wait(life, days * _DAY) for life in found.lives]
        starving = policy.horizon.backfill.starving
        record = {
            "case": name,
            "seed": seed,
            "utilization": found.scores.gpu_utilization,
            "completion": found.scores.completion.mean.value,
            "longest": {f"{gpus} {band}": _longest(waits, gpus, band) for gpus in _SIZES for band in _BANDS},
            "exceeded": overtaken(waits, Policy().objective.doubling),
            "starved": sum(each.seconds >= (starving or 7 * _DAY) for each in waits),
            "waited_on": waited_on(waits, starving or 7 * _DAY),
            "again": [seconds for life in found.lives for seconds in second_waits(life, days * _DAY)],
        }
        append(log_file, NAME, record)
        records.append(record)
    return records


def _wait(life: JobLife, end: int) -> Wait:
    came = (life.job.submitted_at - _BEGIN).total_seconds()
    started = float(end) if life.started_at is None else (life.started_at - _BEGIN).total_seconds()
    gpus = life.job.request.gpus * life.job.gang.maximum
    return Wait(gpus, life.duration, came, started, life.started_at is not None)


def second_waits(life: JobLife, end: int) -> list[float]:
    """Seconds from each stop of a job until it runs again, or until the end of the simulation."""
    return [((again or _BEGIN + timedelta(seconds=end)) - at).total_seconds() for at, again in life.stops]


def _longest(waits: Iterable[Wait], gpus: int, band: str) -> float:
    return max((each.seconds for each in waits if each.gpus == gpus and _band(each) == band), default=0.0)


def _band(wait: Wait) -> str:
    return next(band for band, end in _BANDS.items() if wait.duration < end)


def overtaken(waits: Iterable[Wait], doubling: int) -> float:
    """Largest excess in doublings by which a job of equal size overtook, within 13 doublings of waiting."""
    alike: dict[int, list[Wait]] = defaultdict(list)
    for each in sorted(waits, key=lambda each: each.came):
        alike[each.gpus].append(each)
    worst = 0.0
    for jobs in alike.values():
        for number, first in enumerate(jobs):
            until = min(first.started, first.came + 13 * doubling)
            for later in jobs[number + 1 :]:
                if later.came >= until:
                    break
                if later.over and later.started < until:
                    allowed = math.log2(first.duration / later.duration)
                    worst = max(worst, (later.came - first.came) / doubling - allowed)
    return worst


def waited_on(waits: Iterable[Wait], starving: int) -> float:
    """Longest further wait of a first starving job until its start."""
    worst = 0.0
    ordered = sorted(waits, key=lambda each: each.came)
    before = 0.0
    for each in ordered:
        turn = max(each.came + starving, before)
        worst = max(worst, each.started - turn)
        before = max(before, each.started)
    return worst


def tables(records: Sequence[Record]) -> str:
    """The longest wait by size and duration, and the two figures."""
    shown: dict[tuple[str, int], Record] = defaultdict(dict)
    for record in records:
        shown[record["case"], record["seed"]] = record
    heads = [f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in _SIZES]
    rows, checks = [], []
    for (name, seed), record in shown.items():
        for band in _BANDS:
            cells = [f"{record['longest'][f'{gpus} {band}'] / _HOUR:.0f} h" for gpus in _SIZES]
            rows.append([name, str(seed), band, *cells])
        checks.append(
            [
                name,
                str(seed),
                f"{record['completion'] / _HOUR:.1f} h",
                percent(record["utilization"], 1),
                f"{max(record['longest'].values()) / _HOUR:.0f} h",
                f"{record['exceeded']:.1f} doublings",
                str(record["starved"]),
                f"{record['waited_on'] / _HOUR:.1f} h",
                str(len(record["again"])),
                _in_hours(record["again"]),
            ]
        )
    asked = ("overtaken too late by", "starved", "the first of them waited on")
    again = ("stops", "second wait: median, p95, longest")
    summary = ["policy", "seed", "completion, mean", "GPUs in use", "longest wait", *asked, *again]
    return table(summary, checks) + "\n" + table(["longest wait", "seed", "takes", *heads], rows)


def _in_hours(waits: Sequence[float]) -> str:
    """Median, 95th percentile and maximum, in hours."""
    if not waits:
        return "–"
    last = len(waits) - 1
    found = (sorted(waits)[round(part * last)] for part in (0.5, 0.95, 1.0))
    return ", ".join(f"{each / _HOUR:.1f} h" for each in found)
