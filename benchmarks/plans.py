"""
`make bench`: plan each case with each solver as a user would, and print a Markdown table.

Every run is a whole `gpuplan plan` process: reading, planning, verifying, writing. The openb trace is not
part of the project; its case runs where GPUPLAN_OPENB_DIR names the folder with its CSV files.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

GPUPLAN = (sys.executable, "-m", "planner")
ROOT = Path(__file__).parents[1]
PROFILES = Path(__file__).parent / "profiles"
SOLVERS = ("greedy", "milp", "cpsat")
REPEATS = 3


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
    plan: dict


def cases(folder: Path) -> list[Case]:
    found = [Case(name, str(ROOT / "scenarios" / name)) for name in ("everything", "production")]
    found += [_ahead(folder, size, limit) for size, limit in (("m", "10s"), ("l", "30s"))]
    if not (openb := os.environ.get("GPUPLAN_OPENB_DIR")):
        print("openb: skipped, GPUPLAN_OPENB_DIR is not set\n")
        return found
    snapshot = folder / "openb.json"
    files = ("openb_node_list_all_node.csv", "openb_pod_list_default.csv")
    nodes, pods = (str(Path(openb) / name) for name in files)
    read = ("snapshot", "--from", "openb", "--nodes", nodes, "--pods", pods, "-o", str(snapshot))
    subprocess.run([*GPUPLAN, *read], check=True, capture_output=True)
    return [*found, Case("openb", str(snapshot))]


def _ahead(folder: Path, size: str, time_limit: str) -> Case:
    """A made-up cluster, planned twelve hours ahead."""
    snapshot = folder / f"horizon-{size}.json"
    profile = str(PROFILES / f"horizon-{size}.yaml")
    read = ("snapshot", "--from", "synthetic", "--profile", profile, "-o", str(snapshot))
    subprocess.run([*GPUPLAN, *read], check=True, capture_output=True)
    name = f"12 slots, {size.upper()}"
    return Case(name, str(snapshot), time_limit, str(PROFILES / "horizon.yaml"))


def run(case: Case, solver: str, folder: Path) -> Run:
    out = folder / "plan.json"
    began = time.monotonic()
    command = [*GPUPLAN, "plan", case.source, "--solver", solver, "--time-limit", case.time_limit]
    command += ["-o", str(out), *(("--policy", case.policy) if case.policy else ())]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    # The solver is a child of this child; wait4 reports the larger of the two.
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with {status}")
    wall = time.monotonic() - began
    plan = json.loads(out.read_text())
    return Run(wall, usage.ru_maxrss / 1024, {"solution": plan["solution"], "metrics": plan["metrics"]})


def fresh(case: Case, solver: str, folder: Path) -> Run:
    """Run from a process that is small: a child's peak memory starts at its parent's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, case, solver, folder).result()


def line(case: Case, solver: str, runs: list[Run]) -> str:
    plan = runs[0].plan
    solution = plan["solution"]

    def median(values: list[float]) -> float:
        return statistics.median(values)

    phases = {
        name: median([each.plan["solution"]["phases"].get(name, 0.0) for each in runs])
        for name in ("greedy", "formulate", "solve", "disaggregate", "verify")
    }
    cells = (
        case.name,
        solver,
        solution["solver"],
        solution["status"],
        f"{100 * median([each.plan['solution']['gap'] for each in runs]):.3f} %",
        f"{100 * plan['metrics']['gpu_allocation_ratio']:.2f} %",
        f"{1000 * phases['greedy']:.0f} ms",
        " / ".join(f"{phases[name]:.1f}" for name in ("formulate", "solve", "disaggregate", "verify")),
        f"{median([each.wall for each in runs]):.1f} s",
        f"{max(each.peak_mib for each in runs):.0f} MiB",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    head = (
        "case", "asked for", "plan by", "status", "gap", "GPUs allocated", "greedy",
        "formulate / solve / place / verify, s", "whole command", "peak memory",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = cases(folder)
        print("| " + " | ".join(head) + " |")
        print("|" + "---|" * len(head))
        for case in found:
            for solver in SOLVERS:
                runs = [fresh(case, solver, folder) for _ in range(REPEATS)]
                print(line(case, solver, runs), flush=True)
