"""
Meta's Rebalancer and gpuplan on the same instance, from the same start, within the same time.

The instance has only what both can express exactly: jobs on one node, whole GPUs of sizes that do not all
divide, CPU, memory, allowed GPU models and weights; no gangs, shares, MIG or quotas. Rebalancer starts from
the plan of gpuplan's greedy, and each of several of its solvers gets the whole time: the best one counts.
gpuplan's verifier judges its answer.

It runs if GPUPLAN_REBALANCER_PYTHON names an interpreter that has the package `rebalancer` (wheels for
Python 3.12 and newer), or if this interpreter has it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fresh import fresh
from benchmarks.markdown import percent, seconds, table
from benchmarks.records import append
from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.plan.solution import gap_between
from gpuplan.models.policy.policy import Policy
from gpuplan.models.units import MILLI
from gpuplan.models.value.job_value import job_points
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import limits_of
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.sources.synthetic import generate_snapshot
from gpuplan.planner.sources.workload_profile import WorkloadProfile
from gpuplan.solvers import portfolio
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.verify import Verification

PYTHON: Final = "GPUPLAN_REBALANCER_PYTHON"
CHILD: Final = Path(__file__).with_name("rebalancer_child.py")
SEARCHES: Final = ("single, swap", "single, swap, loop", "single, swap, KL", "MIP of subsets", "MIP")
"""Names of Rebalancer's solvers in the child: moves of its local search, and HiGHS."""

_SECONDS: Final = 30
_SEEDS: Final = (1, 2, 3)
_RESOURCES: Final = ("gpus", "cpus", "memory")
_MODELS: Final = ("A100-80GB", "H100-80GB", "L40S-48GB")


def main(log: Path | None = None, *, time_limit: int = _SECONDS, seeds: tuple[int, ...] = _SEEDS) -> str:
    """A Markdown table, or a sentence that says why there is none."""
    python = interpreter()
    if python is None:
        return f"Rebalancer is skipped: {PYTHON} names no interpreter with the package `rebalancer`.\n"
    rows = []
    for seed in seeds:
        ours = fresh(plan_of, seed, time_limit)
        theirs = {search: rival(python, seed, time_limit, search) for search in SEARCHES}
        append(log, "rebalancer", {"case": f"seed {seed}", "gpuplan": ours, "rebalancer": theirs})
        rows += _rows(seed, ours, theirs)
    head = ("instance", "planner", "took", "objective", "below gpuplan's bound", "broken rules")
    return table(head, rows)


def _rows(seed: int, ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> list[list[str]]:
    bound, name = ours["bound"], f"seed {seed}"

    def row(planner: str, took: float, objective: int, broken: int) -> list[str]:
        gap = percent(gap_between(objective, bound), 3)
        return [name, planner, seconds(took), f"{objective:,}", gap, str(broken)]

    return [
        row("gpuplan, greedy (the start)", ours["greedy_seconds"], ours["greedy"], 0),
        *(
            row(f"Rebalancer: {search}", found["seconds"], found["objective"], found["broken"])
            for search, found in theirs.items()
        ),
        row("gpuplan", ours["seconds"], ours["objective"], 0),
    ]


def interpreter() -> str | None:
    """A Python interpreter with the package; None if there is none."""
    if named := os.environ.get(PYTHON):
        return named
    return sys.executable if importlib.util.find_spec("rebalancer") else None


def plan_of(seed: int, time_limit: int) -> dict[str, Any]:
    """gpuplan's plan, and greedy's plan."""
    snapshot, policy = snapshot_of(seed), _policy(time_limit)
    problem = build_problem(snapshot, policy)

    def check(target: DesiredState) -> Verification:
        return verify(snapshot, policy, target.placements)

    solution = portfolio.solve(problem, (), limits_of(policy, seed), check)
    return {
        "seconds": solution.seconds,
        "objective": solution.objective,
        "bound": solution.bound,
        "greedy": solution.greedy_objective,
        "greedy_seconds": solution.phases["greedy"],
    }


def rival(python: str, seed: int, time_limit: int, search: str) -> dict[str, Any]:
    """The plan of one of Rebalancer's solvers, judged by the verifier."""
    snapshot, policy = snapshot_of(seed), _policy(time_limit)
    asked = json.dumps(question(snapshot, policy) | {"seconds": time_limit, "search": search})
    # -I: neither this folder, which has a module with the package's name, nor our packages are importable.
    child = [python, "-I", str(CHILD)]
    done = subprocess.run(child, input=asked, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    verification = verify(snapshot, policy, placements(snapshot, found["assignment"]))
    return {
        "seconds": found["seconds"],
        "objective": verification.objective,
        "broken": len(verification.violations),
    }


def question(snapshot: Snapshot, policy: Policy) -> dict[str, Any]:
    """Jobs with their weights in points, nodes, and greedy's plan as the start."""
    start = target_of(greedy(build_problem(snapshot, policy)), ()).placements
    jobs = {
        job.name: {
            "weight": job_points(policy, job, snapshot.taken_at),
            "gpus": job.request.gpus,
            "cpus": job.request.cpu_milli,
            "memory": job.request.memory_mib,
            "barred": [model for model in _MODELS if job.gpu_models and model not in job.gpu_models],
        }
        for job in snapshot.jobs
    }
    nodes = {
        node.name: {
            "gpus": node.gpu_count,
            "cpus": node.cpu_milli,
            "memory": node.memory_mib,
            "model": node.gpu_model,
        }
        for node in snapshot.cluster.nodes
    }
    return {
        "resources": _RESOURCES,
        "jobs": jobs,
        "nodes": nodes,
        "start": {placement.job: placement.replicas[0].node for placement in start},
    }


def placements(snapshot: Snapshot, assignment: dict[str, str]) -> tuple[Placement, ...]:
    """Placements from the nodes of jobs: each job takes the next GPUs of its node."""
    taken: dict[str, int] = defaultdict(int)
    found = []
    for job, node in sorted(assignment.items()):
        request = snapshot.job_by_name[job].request
        first = taken[node]
        taken[node] += request.gpus
        replica = Replica(
            node=node, gpus=tuple(GpuShare(index=first + each, milli=MILLI) for each in range(request.gpus))
        )
        # model_copy, because the constructor reads document units (cores, not thousandths).
        held = {"cpu_milli": request.cpu_milli, "memory_mib": request.memory_mib}
        found.append(Placement(job=job, replicas=(replica.model_copy(update=held),)))
    return tuple(found)


def snapshot_of(seed: int) -> Snapshot:
    """An empty cluster of 157 nodes and a queue of 1,000 jobs that asks for twice its GPUs."""
    gpus: dict[str, Any] = {"count": 8, "memory_mib": "80Gi"}
    room = {"cpus": 96, "memory_mib": "960Gi"}
    nodes = [
        {"count": count, "node": {"name": name, "gpus": gpus | {"model": model}} | room}
        for name, model, count in zip(("a", "h", "l"), _MODELS, (52, 79, 26), strict=True)
    ]
    shapes = (
        (1, 20, 8),
        (2, 16, 8),
        (3, 10, 8),
        (4, 16, 8),
        (5, 6, 8),
        (6, 8, 8),
        (8, 12, 8),
        (1, 6, 24),
        (2, 6, 20),
    )
    jobs = [
        {"count": 10 * part, "request": {"gpus": size, "cpus": cores * size, "memory_mib": f"{64 * size}Gi"}}
        for size, part, cores in shapes
    ]
    either = {_MODELS[1]: 1, _MODELS[0]: 1}
    profile = WorkloadProfile.model_validate(
        {
            "name": "one-node-jobs",
            "taken_at": "2026-11-20T12:00:00Z",
            "nodes": nodes,
            "queues": [
                {
                    "queue": {"name": "all"},
                    "share": 1,
                    "priorities": [
                        {"share": 60, "priority": 0},
                        {"share": 30, "priority": 2},
                        {"share": 10, "priority": 5},
                    ],
                }
            ],
            "jobs": jobs,
            "model_choices": [{"share": 60}, {"share": 40, "gpu_models": either}],
            "durations": [{"share": 1, "shortest": "20m", "longest": "12h"}],
            "backlog": "48h",
        }
    )
    return generate_snapshot(profile, seed=seed)


def _policy(time_limit: int) -> Policy:
    return Policy.model_validate({"objective": {"goal": "value"}, "budget": {"time_limit": f"{time_limit}s"}})
