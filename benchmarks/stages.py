"""
Stages of a plan, measured one by one in one process, and the whole search in another.

This is not a test: seconds depend on the machine and its load. Compare ratios.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.progress import gain_missed
from benchmarks.relaxation import relax
from gpuplan.models.formulation import FAMILIES
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.objective import objective
from gpuplan.models.formulation.rows import Formulation
from gpuplan.models.plan.solution import DesiredState, gap_between
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.epoch import limits_of
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import portfolio
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.instances import Instance
    from gpuplan.models.formulation.rows import Row
    from gpuplan.models.plan.solution import Solution
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.snapshot import Snapshot

_RELAXATION_LIMIT = 300.0
_MIB = 1024
"""Linux reports peak memory in KiB."""


def measure_stages(instance: Instance) -> dict[str, Any]:
    """Pose, greedy, verify, formulate and relax: seconds, sizes, and the gap of greedy to the bound."""
    took: dict[str, float] = {}
    snapshot, policy = instance.snapshot().canonical(), instance.policy()
    with _timed(took, "pose"):
        problem = build_problem(snapshot, policy)
    with _timed(took, "greedy"):
        ledger = greedy(problem)
    with _timed(took, "target"):
        target = target_of(ledger, snapshot.running_placements)
    with _timed(took, "verify"):
        verification = verify_target(snapshot, policy, target)
    if verification.violations:
        raise AssertionError(verification.violations[0])
    with _timed(took, "columns"):
        x = Columns(problem)
    families: dict[str, dict[str, Any]] = {}
    rows: list[Row] = []
    for family in FAMILIES:
        began = time.monotonic()
        made = tuple(family(problem, x))
        rows += made
        families[family.__name__] = {
            "rows": len(made),
            "non_zeros": sum(len(row.columns) for row in made),
            "seconds": time.monotonic() - began,
        }
    with _timed(took, "objective"):
        points = objective(problem, x)
    took["formulate"] = (
        sum(each["seconds"] for each in families.values()) + took["columns"] + took["objective"]
    )
    formulation = Formulation(np.array(x.upper, dtype=np.int64), points, tuple(rows))
    relaxed = relax(formulation, time_limit=_RELAXATION_LIMIT)
    took["relax"] = relaxed.seconds
    return {
        "seconds": took,
        "sizes": _sizes(snapshot, problem, formulation, families),
        "families": {name: each for name, each in families.items() if each["rows"]},
        "bound": relaxed.bound,
        "fractional": relaxed.fractional,
        "greedy": verification.objective,
        "greedy_gap": None if relaxed.bound is None else gap_between(verification.objective, relaxed.bound),
        "peak_mib": peak_mib(resource.RUSAGE_SELF),
    }


def measure_plan(instance: Instance) -> dict[str, Any]:
    """Pose and search within the time limit: gap over time, placements, peak memory."""
    snapshot, policy = instance.snapshot().canonical(), instance.policy()
    began = time.monotonic()
    problem = build_problem(snapshot, policy)
    check = partial(verify_target, snapshot, policy)
    limits = limits_of(policy, instance.seed)
    solution = portfolio.solve(problem, snapshot.running_placements, limits, check, began=began)
    whole = time.monotonic() - began
    if solution.bound is None:
        raise AssertionError(solution)
    nothing = verify_target(snapshot, policy, DesiredState(snapshot.running_placements)).objective
    return {
        "seconds": whole,
        "phases": solution.phases,
        "solver": solution.solver,
        "ended": str(solution.ended),
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "nothing": nothing,
        "gain_missed": gain_missed(solution.objective, solution.bound, nothing),
        "missed": solution.not_disaggregated,
        "fallback": solution.fallback.reason if solution.fallback else None,
        "placed": _placed(snapshot, solution),
        "milestones": [
            {
                "seconds": each.seconds,
                "stage": each.stage,
                "objective": each.objective,
                "bound": each.bound,
                "found": each.found,
            }
            for each in solution.milestones
        ],
        "peak_mib": peak_mib(resource.RUSAGE_SELF),
        "solver_peak_mib": peak_mib(resource.RUSAGE_CHILDREN),
    }


def _sizes(
    snapshot: Snapshot, problem: Problem, formulation: Formulation, families: dict[str, dict[str, Any]]
) -> dict[str, int]:
    running = sum(job.running is not None for job in snapshot.jobs)
    return {
        "nodes": len(snapshot.cluster.nodes),
        "gpus": sum(node.gpu_count for node in snapshot.cluster.nodes),
        "running": running,
        "waiting": len(snapshot.jobs) - running,
        "classes": len(problem.classes),
        "incumbents": len(problem.incumbents),
        "columns": len(formulation.upper),
        "rows": len(formulation.rows),
        "non_zeros": sum(each["non_zeros"] for each in families.values()),
    }


def _placed(snapshot: Snapshot, solution: Solution) -> dict[str, Any]:
    """Jobs started and stopped, later starts, and the part of the GPUs that is held afterwards."""
    held = Counter[str]()
    for placement in solution.target.placements:
        held[placement.job] = sum(replica.quota_milli for replica in placement.replicas)
    running = {placement.job for placement in snapshot.running_placements}
    gpus = MILLI * sum(node.gpu_count for node in snapshot.cluster.nodes)
    return {
        "started": len(held.keys() - running),
        "stopped": len(running - held.keys()),
        "later": len(solution.target.planned),
        "gpu_ratio": held.total() / gpus,
    }


def peak_mib(usage: int = resource.RUSAGE_SELF) -> float:
    """Peak resident memory of this process, or of its children."""
    return resource.getrusage(usage).ru_maxrss / _MIB


@contextmanager
def _timed(took: dict[str, float], stage: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    took[stage] = time.monotonic() - began
