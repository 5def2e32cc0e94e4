"""
The starter policies of `gpuplan init`, each on a load it is made for, beside rules of the literature.

`research` is judged on the usual evaluation load of schedulers for deep learning: 120 jobs of minutes to
hours on 32 GPUs, most of them submitted within the first hour, rounds of two minutes, twenty seconds to
resume. Even seeds were used to choose constants; odd seeds are for judging.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import yaml

from benchmarks.markdown import percent, table
from benchmarks.records import append
from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.scorecard import UNFAIR
from gpuplan.planner.simulate.trace import Physics, make_trace
from gpuplan.planner.sources.files import starter_texts
from gpuplan.planner.sources.traces.arrivals import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from benchmarks.records import Record
    from gpuplan.planner.simulate.replay import Replayed
    from gpuplan.planner.simulate.trace import Trace

NAME: Final = "presets"

_MINUTE: Final = 60
_HOUR: Final = 3600
_BEGIN: Final = datetime(2026, 11, 20, tzinfo=UTC)
_NODE_GPUS: Final = 8
_SERVICE: Final = 10
"""Priority of a service."""


@dataclass(frozen=True)
class Load:
    """The load for a preset."""

    jobs: Callable[[random.Random, int], list[Arrival]]
    nodes: int
    clock: EpochClock
    rules: tuple[str, ...]
    physics: Physics | None = None
    """Resume costs of jobs; by default those of the preset's policy."""

    def trace(self, kind: str, seed: int, policy: Policy) -> Trace:
        """The trace of a seed."""
        draw = random.Random(f"{kind} {seed}")
        arrivals = sorted(self.jobs(draw, seed), key=lambda each: (each.after, each.job.name))
        gpus = NodeGpus(model="A100", count=_NODE_GPUS)
        nodes = tuple(Node(name=f"n{index}", gpus=gpus) for index in range(self.nodes))
        empty = Snapshot(taken_at=_BEGIN, cluster=Cluster(nodes=nodes), queues=())
        return make_trace(empty, arrivals, physics=self.physics or Physics.of(policy, 30 * _MINUTE))


# --- the loads ----------------------------------------------------------------------------------------------

_MIXES: Final = ({1: 60, 2: 20, 4: 15, 8: 5}, {1: 60, 2: 30, 4: 9, 8: 1})
"""GPUs of a job, with frequencies in percent."""
_GAPS: Final = (12, 30, 50)
"""Mean seconds between two jobs."""


def _research(draw: random.Random, seed: int) -> list[Arrival]:
    """120 jobs of 5 minutes to 5 hours, with work for 5.5 to 7.5 hours; the seed also selects the shape."""
    mix, gap = _MIXES[seed // 9 % len(_MIXES)], _GAPS[seed // 3 % len(_GAPS)]
    shapes, after = [], 0.0
    for _ in range(120):
        shapes.append((int(after), _drawn(draw, mix), _hours(draw, seed % 3) * _HOUR))
        after += draw.expovariate(1 / gap)
    whole = draw.uniform(5.5, 7.5) * _HOUR * 4 * _NODE_GPUS
    longer = whole / sum(gpus * seconds for _, gpus, seconds in shapes)
    return [
        Arrival(after, _job(number, gpus), round(min(5 * _HOUR, max(300, seconds * longer))))
        for number, (after, gpus, seconds) in enumerate(shapes)
    ]


def _hours(draw: random.Random, kind: int) -> float:
    """Hours of a job: log-uniform, log-normal, or a mix of short and long jobs."""
    if kind == 0:
        return _log_uniform(draw, 0.2, 5)
    if kind == 1:
        return min(5.0, max(0.2, math.exp(draw.gauss(math.log(2 / 3), 1))))
    return draw.uniform(0.2, 1) if draw.random() < 0.75 else draw.uniform(1, 5)


def _training(draw: random.Random, _seed: int) -> list[Arrival]:
    """Two days of gangs of 6 to 24 hours and short evaluations; demand is 1.1 times 64 GPUs."""
    found: list[Arrival] = []
    room = 1.1 * 48 * _HOUR * 8 * _NODE_GPUS
    while room > 0:
        large = draw.random() < 0.3
        gpus = _drawn(draw, {8: 50, 16: 35, 32: 15} if large else {1: 70, 2: 20, 4: 10})
        seconds = round((_log_uniform(draw, 6, 24) if large else _log_uniform(draw, 0.2, 4)) * _HOUR)
        found.append(Arrival(draw.randrange(48 * _HOUR), _job(len(found), gpus), seconds))
        room -= gpus * seconds
    return found


def _batch(draw: random.Random, _seed: int) -> list[Arrival]:
    """Eight hours of jobs of 1 to 60 minutes; demand is 1.2 times 32 GPUs."""
    found: list[Arrival] = []
    room = 1.2 * 8 * _HOUR * 4 * _NODE_GPUS
    while room > 0:
        gpus = _drawn(draw, {1: 70, 2: 15, 4: 10, 8: 5})
        seconds = round(_log_uniform(draw, 1, 60) * _MINUTE)
        found.append(Arrival(draw.randrange(8 * _HOUR), _job(len(found), gpus), seconds))
        room -= gpus * seconds
    return found


def _inference(draw: random.Random, _seed: int) -> list[Arrival]:
    """A day of services on shares of GPUs, beside training jobs that ask for more than the remaining GPUs."""
    services = [
        Arrival(
            draw.randrange(24 * _HOUR),
            _job(number, 0, name="service").model_copy(
                update={
                    "request": ResourceRequest(gpu_milli=draw.choice((250, 500))),
                    "priority": _SERVICE,
                    "preemptible": False,
                    "workload_class": "inference",
                }
            ),
            round(_log_uniform(draw, 2, 12) * _HOUR),
        )
        for number in range(60)
    ]
    training = [
        Arrival(
            draw.randrange(24 * _HOUR),
            _job(number, _drawn(draw, {1: 50, 2: 20, 4: 20, 8: 10})),
            round(_log_uniform(draw, 0.5, 12) * _HOUR),
        )
        for number in range(90)
    ]
    return [*services, *training]


def _drawn(draw: random.Random, mix: dict[int, int]) -> int:
    return draw.choices(list(mix), list(mix.values()))[0]


def _log_uniform(draw: random.Random, shortest: float, longest: float) -> float:
    return math.exp(draw.uniform(math.log(shortest), math.log(longest)))


def _job(number: int, gpus: int, *, name: str = "job") -> Job:
    """A gang of whole nodes, or a job on a part of a node."""
    replicas = max(1, gpus // _NODE_GPUS)
    return Job(
        name=f"{name}-{number:04d}",
        queue="all",
        request=ResourceRequest(gpus=gpus // replicas),
        gang=Gang(minimum=replicas, maximum=replicas),
        submitted_at=_BEGIN,
    )


_ROUND: Final = EpochClock(120)
_EVENTS: Final = EpochClock(15 * _MINUTE, at_events=True, apart=2 * _MINUTE)
_QUICK: Final = Physics(checkpoint_every=10, checkpoint=0, restart=20)
"""Costs if jobs save their state when they are stopped: almost no work is lost at the end of a round."""

LOADS: Final[dict[str, Load]] = {
    "research": Load(_research, 4, _ROUND, ("lrpt", "srsf", "srpt", "least-slack"), _QUICK),
    "training": Load(_training, 8, _EVENTS, ("fifo", "easy", "sjf", "srpt")),
    "batch": Load(_batch, 4, _EVENTS, ("fifo-skip", "easy", "sjf", "srpt")),
    "inference": Load(_inference, 4, _EVENTS, ("fifo-skip", "easy", "sjf", "srpt")),
}


# --- measuring ----------------------------------------------------------------------------------------------


def measure(kind: str, seeds: Iterable[int], *, log_file: Path | None) -> list[Record]:
    """The preset and each rule on the jobs of each seed; append the records to the log."""
    load, policy = LOADS[kind], preset(kind)
    records = []
    for seed in seeds:
        trace = load.trace(kind, seed, policy)
        for entrant in (kind, *load.rules):
            given = policy if load.physics is None else _as_quick(policy, load.physics)
            baseline = None if entrant == kind else entrant
            found = replay(trace, given, load.clock, seed=seed, baseline=baseline)
            figures = _figures(found, load.nodes * _NODE_GPUS)
            record = {"case": kind, "seed": seed, "entrant": entrant, **figures}
            append(log_file, NAME, record)
            records.append(record)
    return records


def preset(kind: str) -> Policy:
    """The policy of a starter, planned by greedy only."""
    document = yaml.safe_load(starter_texts(kind)["policy.yaml"])
    return Policy.model_validate({**document, "solvers": []})


def _as_quick(policy: Policy, physics: Physics) -> Policy:
    """The policy with the resume costs of the load."""
    quick = {"checkpoint": physics.checkpoint, "restart": physics.restart}
    return policy.model_copy(update={"disruption": policy.disruption.model_copy(update=quick)})


def _figures(found: Replayed, gpus: int) -> dict[str, Any]:
    """
    Scores, and fairness as published for traces.

    There the contention is the number of all jobs of the trace per GPU, not the contention during a job's
    stay.
    """
    scores = found.scores
    whole = [(life, life.ended_at) for life in found.lives if life.ended_at is not None]
    crowd = max(1.0, len(found.lives) / gpus)
    rhos = [(end - life.job.submitted_at).total_seconds() / life.duration / crowd for life, end in whole]
    services = [
        (life.started_at - life.job.submitted_at).total_seconds()
        for life in found.lives
        if life.job.priority == _SERVICE and life.started_at is not None
    ]
    return {
        "makespan": scores.makespan.value if scores.makespan else 0.0,
        "completion": scores.completion.mean.value,
        "p95": scores.completion.p95.value,
        "worst": scores.finish_time_fairness_max.value if scores.finish_time_fairness_max else 0.0,
        "unfair": scores.unfair_share.value if scores.unfair_share else 0.0,
        "worst_by_trace": max(rhos, default=0.0),
        "unfair_by_trace": sum(rho > UNFAIR for rho in rhos) / max(1, len(rhos)),
        "services": sum(services) / len(services) if services else None,
        "restarts": scores.restarts,
        "lost": scores.lost_gpu_hours + scores.idle_gpu_hours,
    }


# --- tables -------------------------------------------------------------------------------------------------


def tables(records: Iterable[Record]) -> str:
    """Figures of each preset and of the rules: median over the seeds, and the largest in parentheses."""
    last = {(each["case"], each["seed"], each["entrant"]): each for each in records}
    return "\n".join(
        _table(kind, last, sorted({seed for case, seed, _ in last if case == kind}))
        for kind in LOADS
        if any(case == kind for case, *_ in last)
    )


def _table(kind: str, last: dict[tuple[str, int, str], Record], seeds: list[int]) -> str:
    served = any(each["services"] is not None for (case, *_), each in last.items() if case == kind)
    head = [
        f"{kind}, {len(seeds)} seeds",
        *("makespan", "completion, mean", "p95", "ρ worst", "unfair", "by trace: ρ worst", "unfair"),
        *(["services wait"] if served else []),
        *("restarts", "GPU-hours lost"),
    ]
    rows = []
    for entrant in (kind, *LOADS[kind].rules):
        found = [record for seed in seeds if (record := last.get((kind, seed, entrant)))]
        if not found:
            continue

        def shown(key: str, say: Callable[[float], str], found: list[Record] = found) -> str:
            values = [each[key] for each in found if each[key] is not None]
            return f"{say(median(values))} ({say(max(values))})" if values else "–"

        rows.append(
            [
                f"`{entrant}`",
                *(shown(key, _in_hours) for key in ("makespan", "completion", "p95")),
                *(shown("worst", "{:.2f}".format), shown("unfair", _whole_percent)),
                *(shown("worst_by_trace", "{:.2f}".format), shown("unfair_by_trace", _whole_percent)),
                *([shown("services", "{:.0f} s".format)] if served else []),
                *(shown("restarts", "{:.0f}".format), shown("lost", "{:.1f}".format)),
            ]
        )
    return table(head, rows)


def _in_hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.2f} h"


def _whole_percent(ratio: float) -> str:
    return percent(ratio, 0)
