"""
`python -m benchmarks decisions`: one whole decision on a small cluster, as simulators ask for in each round.

It is `gpuplan.plan` on nouns, to the verified plan with its id and reasons, under the default policy. Nouns
are new in each repetition, so that nothing is cached. The least of the repetitions counts.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

import gpuplan
from benchmarks.markdown import table
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot

_NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
_NODE_GPUS: Final = 8
_CORES, _MIB = 4, 16 * 1024
"""Of each GPU that a job asks for; nodes have more."""

_SIZES: Final = {1: 50, 2: 20, 4: 15, 8: 12, 16: 3}
"""GPUs of a job, with the percentage of the jobs."""

_RUNNING: Final = 0.8
"""Part of the GPUs that running jobs hold at most."""

_REPETITIONS: Final = 7


@dataclass(frozen=True)
class Decision:
    """A cluster of one GPU model with a queue of jobs."""

    jobs: int
    gpus: int
    tiers: int
    """Number of priorities."""

    @property
    def title(self) -> str:
        """Size, and priorities if there are several."""
        size = f"{self.jobs:,} jobs, {self.gpus:,} GPUs"
        return size if self.tiers == 1 else f"{size}, {self.tiers} priorities"

    def document(self, seed: int) -> dict[str, Any]:
        """The snapshot as a document: jobs of 10 minutes to 10 hours in three queues without quotas."""
        draw = random.Random(seed)
        nodes = [f"n{number:04}" for number in range(self.gpus // _NODE_GPUS)]
        free = {node: list(range(_NODE_GPUS)) for node in nodes}
        left = int(_RUNNING * self.gpus)
        jobs = []
        for number in range(self.jobs):
            size = draw.choices(list(_SIZES), list(_SIZES.values()))[0]
            job, each = self._job(draw, f"j{number:05}", size), min(size, _NODE_GPUS)
            node = next((node for node in nodes if len(free[node]) >= each), None)
            if node is not None and size == each <= left and draw.random() < _RUNNING:
                left -= each
                held = [{"index": free[node].pop(0), "milli": MILLI} for _ in range(each)]
                place = {"node": node, "gpus": held, "cpus": _CORES * each, "memory_mib": _MIB * each}
                job |= {"submitted_at": _ago(301), "running": {"started_at": _ago(draw.randint(1, 200))}}
                job["running"]["replicas"] = [place]
            jobs.append(job)
        machine = {"gpus": {"model": "H100-80GB", "count": _NODE_GPUS}, "cpus": 96, "memory_mib": "1Ti"}
        return {
            "taken_at": _NOW.isoformat(),
            "cluster": {"nodes": [{"name": name, **machine} for name in nodes]},
            "queues": [{"name": f"q{number}"} for number in range(3)],
            "jobs": jobs,
        }

    def _job(self, draw: random.Random, name: str, size: int) -> dict[str, Any]:
        each = min(size, _NODE_GPUS)
        return {
            "name": name,
            "queue": f"q{draw.randrange(3)}",
            "replicas": size // each,
            "request": {"gpus": each, "cpus": _CORES * each, "memory_mib": _MIB * each},
            "priority": draw.randrange(self.tiers),
            "expected_duration": f"{draw.randint(10, 600)}m",
            "submitted_at": _ago(draw.randint(1, 300)),
        }


DECISIONS: Final = (Decision(61, 32, 1), Decision(61, 32, 3), Decision(1_000, 1_000, 1))

Solver = Literal["greedy", "auto"]
SOLVERS: Final[tuple[Solver, ...]] = ("greedy", "auto")


def lines(decisions: Iterable[Decision], seeds: Iterable[int]) -> str:
    """The table: CPU milliseconds of each decision, median and worst of the seeds."""
    head = ("decision", "solver", "median", "worst", "proven optimal")
    seeds = tuple(seeds)
    rows = (_row(decision, solver, seeds) for decision in decisions for solver in SOLVERS)
    return table(head, rows)


def _row(decision: Decision, solver: Solver, seeds: tuple[int, ...]) -> list[str]:
    measured = [measure(decision, solver, seed) for seed in seeds]
    took = [seconds for seconds, _ in measured]
    proven = sum(plan.solution.status == "OPTIMAL" for _, plan in measured)
    cells = [f"{1000 * seconds:.0f} ms" for seconds in (median(took), max(took))]
    return [decision.title, solver, *cells, f"{proven} of {len(seeds)}"]


def measure(
    decision: Decision, solver: Solver, seed: int, repetitions: int = _REPETITIONS
) -> tuple[float, Plan]:
    """CPU seconds of this process for one decision, and the plan; the first repetition does not count."""
    took, plan = [], _decided(gpuplan.load_snapshot(decision.document(seed)), solver)
    for _ in range(repetitions):
        snapshot = gpuplan.load_snapshot(decision.document(seed))
        began = time.process_time()
        plan = _decided(snapshot, solver)
        took.append(time.process_time() - began)
    return min(took), plan


def _decided(snapshot: Snapshot, solver: Solver) -> Plan:
    return gpuplan.plan(snapshot, solver=solver)


def _ago(minutes: int) -> str:
    return (_NOW - timedelta(minutes=minutes)).isoformat()
