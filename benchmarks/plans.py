"""
`python -m benchmarks plans`: plan each case with each solver as a user would, and print a Markdown table.

Every run is a whole `gpuplan plan` process: reading, planning, verifying, writing. The openb trace is not
part of the project; its case runs if GPUPLAN_OPENB_DIR names the folder with its CSV files.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fresh import fresh
from benchmarks.instances import Instance
from benchmarks.markdown import line_of, table
from benchmarks.records import append
from gpuplan.models.base import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPUPLAN = (sys.executable, "-m", "gpuplan")
ROOT = Path(__file__).parents[1]
PROFILES = Path(__file__).parent / "profiles"
SOLVERS = ("greedy", "milp", "cpsat")

HEAD: Final = (
    "case", "asked for", "plan by", "status", "gap", "GPUs allocated", "greedy",
    "pose / solve / place / refine / verify, s", "whole command", "peak memory",
)  # fmt: skip

_PHASES: Final = ("pose", "solve", "disaggregate", "refine", "verify")
"""Phases by their names in the plan."""

_SIZES: Final = {"M": 10, "L": 30, "L5": 15, "XL": 60}
"""Synthetic sizes with their time limits in seconds."""


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    time_limit: str = "10s"
    policy: str | None = None


@dataclass(frozen=True)
class Run:
    wall: float
    peak_mib: float
    plan: dict[str, Any]


def cases(folder: Path, only: tuple[str, ...]) -> Iterator[Case]:
    """The selected cases, or all; their input files are created in the folder when needed."""
    made: dict[str, Callable[[], Case]] = {
        name: partial(_scenario, name) for name in ("everything", "production")
    }
    made |= {f"12 slots, {size}": partial(_ahead, folder, size) for size in ("M", "L")}
    made |= {size: partial(_size, folder, size) for size in _SIZES}
    if openb := os.environ.get("GPUPLAN_OPENB_DIR"):
        made["openb"] = partial(_openb, folder, openb)
    elif not only or "openb" in only:
        print("openb is left out: GPUPLAN_OPENB_DIR is not set", file=sys.stderr)
    for name, make in made.items():
        if not only or name in only:
            yield make()


def _scenario(name: str) -> Case:
    return Case(name, str(ROOT / "scenarios" / name))


def _size(folder: Path, size: str) -> Case:
    """A synthetic cluster of benchmarks/sizes.py."""
    seconds = _SIZES[size]
    snapshot = folder / f"{size}.json"
    snapshot.write_text(canonical_json(Instance(size, seconds).snapshot().document()), encoding="utf-8")
    return Case(size, str(snapshot), f"{seconds}s")


def _openb(folder: Path, openb: str) -> Case:
    snapshot = folder / "openb.json"
    files = ("openb_node_list_all_node.csv", "openb_pod_list_default.csv")
    nodes, pods = (str(Path(openb) / name) for name in files)
    read = ("snapshot", "--from", "openb", "--nodes", nodes, "--pods", pods, "-o", str(snapshot))
    subprocess.run([*GPUPLAN, *read], check=True, capture_output=True)
    return Case("openb", str(snapshot))


def _ahead(folder: Path, size: str) -> Case:
    """A synthetic cluster, planned twelve hours ahead."""
    snapshot = folder / f"horizon-{size}.json"
    profile = str(PROFILES / f"horizon-{size.lower()}.yaml")
    read = ("snapshot", "--from", "synthetic", "--profile", profile, "-o", str(snapshot))
    subprocess.run([*GPUPLAN, *read], check=True, capture_output=True)
    time_limit = {"M": "10s", "L": "30s"}[size]
    return Case(f"12 slots, {size}", str(snapshot), time_limit, str(PROFILES / "horizon.yaml"))


def run(case: Case, solver: str, folder: Path) -> Run:
    out = folder / "plan.json"
    began = time.monotonic()
    command = [*GPUPLAN, "plan", case.source, "--solver", solver, "--time-limit", case.time_limit]
    command += ["-o", str(out), *(("--policy", case.policy) if case.policy else ())]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    # The solver is a child of this child; wait4 reports the larger peak of the two.
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with {status}")
    wall = time.monotonic() - began
    plan = json.loads(out.read_text())
    return Run(wall, usage.ru_maxrss / 1024, {"solution": plan["solution"], "metrics": plan["metrics"]})


def cells(case: Case, solver: str, runs: list[Run]) -> tuple[str, ...]:
    """Medians of the runs, and the largest peak."""
    plan = runs[0].plan
    solution = plan["solution"]

    def median(values: list[float]) -> float:
        return statistics.median(values)

    phases = {
        name: median([each.plan["solution"]["phases"].get(name, 0.0) for each in runs])
        for name in ("greedy", *_PHASES)
    }
    return (
        case.name,
        solver,
        solution["solver"],
        solution["status"],
        f"{100 * median([each.plan['solution']['gap'] for each in runs]):.3f} %",
        f"{100 * plan['metrics']['gpu_allocation_ratio']:.2f} %",
        f"{1000 * phases['greedy']:.0f} ms",
        " / ".join(f"{phases[name]:.1f}" for name in _PHASES),
        f"{median([each.wall for each in runs]):.1f} s",
        f"{max(each.peak_mib for each in runs):.0f} MiB",
    )


def lines(folder: Path, *, only: tuple[str, ...], repeats: int, log: Path | None) -> Iterator[str]:
    """The table, line by line as the cases are measured."""
    yield table(HEAD, ())
    for case in cases(folder, only):
        for solver in SOLVERS:
            runs = [fresh(run, case, solver, folder) for _ in range(repeats)]
            for each in runs:
                append(log, "plans", {"case": case.name, "asked_for": solver} | asdict(each))
            yield line_of(cells(case, solver, runs))
