"""
`python -m benchmarks one-more`: a cluster at rest gets one more job, and the same process plans the next
epoch.

The cluster is planned in full, the plan is applied, and an epoch without changes follows. Then one more job
waits, a minute has passed, and the snapshot is read again. The measured time covers that epoch from the
snapshot to the finished plan, without reading the snapshot.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fresh import fresh
from benchmarks.instances import Instance
from benchmarks.markdown import mebibytes, seconds, table
from benchmarks.records import append
from benchmarks.stages import peak_mib
from gpuplan.models.placement import Running
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.epoch_cache import EpochCache

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy

ONE_MORE_INSTANCES: Final = (Instance("M", 0.01), Instance("L", 0.1), Instance("XL", 1))
"""With the time limit of the measured epoch: too short for a search beyond the new job."""

_FIRST_LIMIT_MS: Final = 60_000
_LATER: Final = timedelta(minutes=1)
_GPUS: Final = 2
_PRIORITY: Final = 5


def lines(instances: Iterable[Instance], log: Path | None) -> str:
    """The table; each instance is measured in its own process."""
    head = ("case", "limit", "epoch", "CPU", "verify", "carry on", "started / stopped", "peak")
    found = []
    for instance in instances:
        measured = {"case": instance.title, "seed": instance.seed} | fresh(measure, instance)
        append(log, "one more", measured)
        found.append((instance, measured))
    return table(head, (_cells(instance, measured) for instance, measured in found))


def _cells(instance: Instance, measured: dict[str, Any]) -> list[str]:
    phases = measured["phases"]
    return [
        instance.title,
        f"{instance.seconds:g} s",
        seconds(measured["seconds"]),
        seconds(measured["cpu_seconds"]),
        seconds(phases.get("verify", 0.0)),
        seconds(phases.get("carry on", 0.0)),
        f"{measured['started']:,} / {measured['stopped']:,}",
        mebibytes(measured["peak_mib"]),
    ]


def measure(instance: Instance) -> dict[str, Any]:
    """One epoch with one more job: seconds, changes of the plan, peak memory of all epochs."""
    snapshot, policy = instance.snapshot().canonical(), instance.policy()
    policy = policy.model_copy(update={"solvers": ()})
    cache = EpochCache()
    first = _planned(snapshot, _within(policy, _FIRST_LIMIT_MS), cache)
    at_rest = _planned(_carried_out(first), policy, cache, first)
    live = at_rest.snapshot
    jobs = (*live.jobs, _one_more(live))
    document = live.model_copy(update={"jobs": jobs, "taken_at": live.taken_at + _LATER}).document()
    read = Snapshot.model_validate(document)
    began, cpu_began = time.monotonic(), time.process_time()
    plan = _planned(read, policy, cache, at_rest)
    return {
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu_began,
        "phases": plan.solution.phases,
        "started": plan.metrics.jobs.started,
        "stopped": plan.metrics.jobs.preempted,
        "objective": plan.solution.objective,
        "bound": plan.solution.bound,
        "peak_mib": peak_mib(),
    }


def _planned(snapshot: Snapshot, policy: Policy, cache: EpochCache, last: Plan | None = None) -> Plan:
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at, last=last, cache=cache)


def _within(policy: Policy, milliseconds: int) -> Policy:
    budget = policy.budget.model_copy(update={"time_limit_ms": milliseconds})
    return policy.model_copy(update={"budget": budget})


def _carried_out(plan: Plan) -> Snapshot:
    """The snapshot after all actions of a plan."""
    snapshot = plan.snapshot
    there = {placement.job: placement.replicas for placement in plan.placements}

    def after(job: Job) -> Job:
        if job.running and job.running.replicas == there.get(job.name):
            return job
        replicas = there.get(job.name)
        running = Running(started_at=snapshot.taken_at, replicas=replicas) if replicas else None
        return job.model_copy(update={"running": running})

    cluster = cluster_after(snapshot, plan.target)
    return snapshot.model_copy(update={"jobs": tuple(map(after, snapshot.jobs)), "cluster": cluster})


def _one_more(snapshot: Snapshot) -> Job:
    """A copy of the first running job with `_GPUS` GPUs, with a high priority and just submitted."""
    like = next(job for job in snapshot.jobs if job.running and job.request.gpus == _GPUS)
    return like.model_copy(
        update={
            "name": "one-more",
            "priority": _PRIORITY,
            "running": None,
            "submitted_at": snapshot.taken_at + _LATER,
        }
    )
