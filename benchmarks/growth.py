"""
`python -m benchmarks growth`: plan clusters of 1,000 to 1,000,000 GPUs, and see what bends first.

Each decade has the shapes, queues and load of the other sizes. The stages of a plan by greedy are measured
one by one in a new process, the bound of the linear relaxation in another, since most of its memory is the
model. All processes may use a limited amount of memory, and a stage that runs out of it, or of time, is
reported as such.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fresh import fresh
from benchmarks.markdown import mebibytes, percent, table
from benchmarks.plans import GPUPLAN
from benchmarks.records import append
from benchmarks.sizes import Size, made_up
from benchmarks.stages import peak_mib
from gpuplan.models.base import canonical_json
from gpuplan.models.plan.solution import DesiredState, Solution, SolveStatus
from gpuplan.models.policy.policy import Policy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.sources.files import load_snapshot
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.incumbent import Limits
from gpuplan.solvers.solver_child import relaxed_bound
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.models.snapshot import Snapshot

NAME: Final = "growth"
DECADES: Final = {
    1_000: Size(125, 100, 8),
    10_000: Size(1_250, 1_000, 64),
    100_000: Size(12_500, 10_000, 64),
    1_000_000: Size(125_000, 100_000, 64),
}
"""Sizes by their GPUs."""
_LIMITS: Final = {1_000: 10, 10_000: 10, 100_000: 60, 1_000_000: 600}
"""Seconds of whole commands."""
STAGES: Final = ("read", "build", "greedy", "verify", "draft", "write", "bound")
_JOBS_IN_A_FILE: Final = 50_000
"""So that no file of a snapshot is larger than is read."""
_FOR_BOUND: Final = 600.0
"""Seconds, after which the multipliers of the relaxation so far give the bound."""
_GIB: Final = 2**30
_BETWEEN_SAMPLES: Final = 0.05
"""Seconds between samples of memory."""
SNAPSHOT: Final = "snapshot"

_HEAD: Final = (
    *("GPUs", "nodes", "running / waiting"),
    *(f"{stage}, CPU / wall s" for stage in STAGES),
    *("missed", "peak without the bound", "with it", "snapshot, MB", "plan, MB"),
)
_COMMAND_HEAD: Final = ("GPUs", "limit", "CPU / wall", "plan by", "gap", "peak of all processes")


def measure(
    decades: Iterable[int], seed: int, *, memory_gib: int, largest_command: int, log: Path | None
) -> Iterator[dict[str, Any]]:
    """One record per decade; whole commands up to `largest_command` GPUs."""
    for gpus in decades:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            record = {"gpus": gpus, "seed": seed} | fresh(write_input, gpus, seed, folder / SNAPSHOT)
            stages, bound = (
                _tried(part, folder, memory_gib) for part in (plan_by_stages, bound_by_relaxation)
            )
            record |= stages | bound | {"costs": stages["costs"] | bound["costs"]}
            record["command"] = command(folder, _LIMITS[gpus]) if gpus <= largest_command else None
        append(log, NAME, record)
        yield record


def _tried(part: Callable[[Path, int], dict[str, Any]], folder: Path, memory_gib: int) -> dict[str, Any]:
    """The result of a part in a new process, which a solver ends if it gets no memory."""
    try:
        return fresh(part, folder, memory_gib)
    except BrokenProcessPool:
        return {"costs": {}, "bound": None, "failed": f"ended, perhaps for want of memory ({memory_gib} GiB)"}


def write_input(gpus: int, seed: int, folder: Path) -> dict[str, Any]:
    """The snapshot of a decade, as a folder of files; returns its counts."""
    snapshot = made_up(DECADES[gpus], seed)
    folder.mkdir()
    document = snapshot.document()
    jobs = document.pop("jobs")
    (folder / "cluster.json").write_text(canonical_json(document), encoding="utf-8")
    for first in range(0, len(jobs), _JOBS_IN_A_FILE):
        text = canonical_json({"jobs": jobs[first : first + _JOBS_IN_A_FILE]})
        (folder / f"jobs-{first // _JOBS_IN_A_FILE:03d}.json").write_text(text, encoding="utf-8")
    running = len(snapshot.running_placements)
    return {
        "nodes": len(snapshot.cluster.nodes),
        "running": running,
        "waiting": len(jobs) - running,
        "input_bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def plan_by_stages(folder: Path, memory_gib: int) -> dict[str, Any]:
    """Everything that a command with greedy does, stage by stage, but the bound."""
    costs: dict[str, dict[str, float]] = {}
    out: dict[str, Any] = {"costs": costs}
    with _within(memory_gib, out):
        with _measured(costs, "read"):
            snapshot, policy = _read(folder)
        with _measured(costs, "build"):
            problem = build_problem(snapshot, policy)
        out["classes"] = len(problem.classes)
        with _measured(costs, "greedy"):
            target = target_of(greedy(problem), snapshot.running_placements)
        with _measured(costs, "verify"):
            verified = verify_target(snapshot, policy, target)
        if verified.violations:
            raise AssertionError(verified.violations[0])
        out["objective"] = verified.objective
        solution = Solution(
            status=SolveStatus.FEASIBLE,
            solver="greedy",
            objective=verified.objective,
            greedy_objective=verified.objective,
            bound=None,
            target=target,
            seconds=0.0,
            phases={},
        )
        with _measured(costs, "draft"):
            plan = draft(snapshot, policy, solution, verified.terms, seed=0, created_at=datetime.now(UTC))
        path = folder / "plan.json"
        with _measured(costs, "write"):
            save_plan(plan, path)
        out["plan_bytes"] = path.stat().st_size
    return out


def bound_by_relaxation(folder: Path, memory_gib: int) -> dict[str, Any]:
    """The bound of a command without an exact solver: the block model is formulated and relaxed."""
    costs: dict[str, dict[str, float]] = {}
    out: dict[str, Any] = {"costs": costs, "bound": None}
    with _within(memory_gib, out):
        snapshot, policy = _read(folder)
        problem = build_problem(snapshot, policy)
        out["unchanged"] = verify_target(
            snapshot, policy, DesiredState(snapshot.running_placements)
        ).objective
        limits = Limits(_FOR_BOUND, solvers=())
        with _measured(costs, "bound"):
            out["bound"] = relaxed_bound(problem, None, limits.budget(time.monotonic() + _FOR_BOUND))
    return out


def command(folder: Path, seconds_: int) -> dict[str, Any]:
    """`gpuplan plan` with its defaults: gap, CPU, and the peak memory of all its processes together."""
    out, began = folder / "whole.json", time.monotonic()
    line = [*GPUPLAN, "plan", str(folder / SNAPSHOT), "--time-limit", f"{seconds_}s", "-o", str(out)]
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    most = 0.0
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        most = max(most, _memory_mib(child.pid))
        time.sleep(_BETWEEN_SAMPLES)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(line)} ended with {status}")
    wall = time.monotonic() - began
    return {
        "limit": seconds_,
        "wall": wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_mib": most,
        "solution": load_plan(out).solution.model_dump(mode="json"),
    }


def _memory_mib(pid: int) -> float:
    """Memory of a process and its descendants; what they share counts once. 0 for one that has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    shares = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
    return sum(map(int, shares)) / 1024 + sum(_memory_mib(int(child)) for child in children)


def tables(records: list[dict[str, Any]]) -> str:
    """Stages by decade, and whole commands."""
    stages = table(_HEAD, map(_stage_cells, records))
    commands = table(_COMMAND_HEAD, [_command_cells(each) for each in records if each["command"]])
    failed = "".join(f"\n{each['gpus']:,} GPUs: {each['failed']}\n" for each in records if "failed" in each)
    return f"{stages}\n{commands}{failed}"


def _stage_cells(record: dict[str, Any]) -> list[str]:
    costs = record["costs"]
    return [
        f"{record['gpus']:,}",
        f"{record['nodes']:,}",
        f"{record['running']:,} / {record['waiting']:,}",
        *(
            f"{costs[stage]['cpu']:.2f} / {costs[stage]['wall']:.2f}" if stage in costs else "–"
            for stage in STAGES
        ),
        percent(missed(record)),
        *(
            mebibytes(max(costs[stage]["peak_mib"] for stage in some if stage in costs))
            for some in (STAGES[:-1], STAGES)
        ),
        f"{record['input_bytes'] / 1e6:.1f}",
        f"{record['plan_bytes'] / 1e6:.1f}" if "plan_bytes" in record else "–",
    ]


def missed(record: dict[str, Any]) -> float | None:
    """(bound − plan) / (bound − no change): what greedy's plan lacks of the most that could be gained."""
    bound, objective = record["bound"], record.get("objective")
    if bound is None or objective is None or bound <= record["unchanged"]:
        return None
    return float((bound - objective) / (bound - record["unchanged"]))


def _command_cells(record: dict[str, Any]) -> list[str]:
    made = record["command"]
    return [
        f"{record['gpus']:,}",
        f"{made['limit']} s",
        f"{made['cpu']:.1f} s / {made['wall']:.1f} s",
        made["solution"]["solver"],
        percent(made["solution"]["gap"]),
        mebibytes(made["peak_mib"]),
    ]


def _read(folder: Path) -> tuple[Snapshot, Policy]:
    return load_snapshot(str(folder / SNAPSHOT)), Policy()


@contextmanager
def _within(memory_gib: int, out: dict[str, Any]) -> Iterator[None]:
    """Limit the memory of this process; what fails for want of it is noted as `failed`."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_gib * _GIB,) * 2)
    try:
        yield
    except MemoryError:
        out["failed"] = f"more than {memory_gib} GiB"


@contextmanager
def _measured(costs: dict[str, dict[str, float]], stage: str) -> Iterator[None]:
    cpu, wall = time.process_time(), time.monotonic()
    yield
    costs[stage] = {
        "cpu": time.process_time() - cpu,
        "wall": time.monotonic() - wall,
        "peak_mib": peak_mib(),
    }
