"""
draft(snapshot, policy, solution) → Plan: derive the actions from before and after, and say why.

The only place where actions are made. Every job of the snapshot gets exactly one, an unchanged one its
explicit `Keep`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

from planner.metrics import measure
from planner.models.base import fingerprint_of
from planner.models.occupancy import free_capacity
from planner.models.plan import (
    Base,
    FallbackSummary,
    Free,
    JobWaits,
    Keep,
    NodeState,
    Plan,
    Reason,
    ReasonCode,
    SolutionSummary,
    Start,
    Wait,
    Waiting,
)
from planner.models.policy import completion_points, job_points
from planner.models.solution import SolveStatus
from planner.models.units import print_milli
from planner.planfile import with_id
from planner.waiting import waiting_reasons
from planner.wording import duration

if TYPE_CHECKING:
    from datetime import datetime

    from planner.models.job import Job
    from planner.models.placement import Placement, Replica
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot
    from planner.models.solution import Solution

_UNCHANGED = Reason(code=ReasonCode.UNCHANGED, text="runs on as it is")


def draft(
    snapshot: Snapshot,
    policy: Policy,
    solution: Solution,
    verification_terms: dict[str, int],
    *,
    seed: int,
    created_at: datetime,
) -> Plan:
    """
    Turn a verified solution into the plan that people review and `apply` carries out.

    `verification_terms` are the parts of the objective as the verifier counted them. The plan does not
    depend on the order of anything in the snapshot.
    """
    snapshot = snapshot.canonical()
    placements = tuple(sorted(solution.placements, key=lambda placement: placement.job))
    _require_running_jobs_to_stay(snapshot, placements)
    started = [placement for placement in placements if snapshot.job_by_name[placement.job].running is None]
    # A job's document is the same inside the snapshot's: thousands of them are not made again.
    document = snapshot.document()
    documents = dict(zip(snapshot.job_by_name, document.get("jobs", ()), strict=True))
    reasons = waiting_reasons(snapshot, placements)
    waiting = sorted(reasons)
    plan = Plan(
        plan_id="",
        epoch=snapshot.taken_at,
        created_at=created_at,
        base=Base(snapshot=fingerprint_of(document), policy=policy.fingerprint()),
        solution=_summary(solution, verification_terms),
        actions=(
            *_starts(snapshot, policy, started, documents=documents),
            *_keeps(snapshot),
            *(Wait(id=f"wait/{name}", job=name, reason=reasons[name]) for name in waiting),
        ),
        placements=placements,
        nodes=_node_states(snapshot, placements),
        waiting=tuple(Waiting(job=name, reason=reasons[name]) for name in waiting),
        metrics=measure(snapshot, placements),
        seed=seed,
        snapshot=snapshot,
        policy=policy,
    )
    return with_id(plan)


def _require_running_jobs_to_stay(snapshot: Snapshot, placements: tuple[Placement, ...]) -> None:
    """The verifier has seen to it; without it the plan would contradict itself."""
    placed = {placement.job: placement for placement in placements}
    for placement in snapshot.running_placements:
        if placed.get(placement.job) != placement:
            raise ValueError(
                f"expected running job {placement.job!r} to stay as it is, found it stopped or moved"
            )


def _summary(solution: Solution, terms: dict[str, int]) -> SolutionSummary:
    fallback = solution.fallback
    return SolutionSummary(
        status=_proven_or_found(solution.status),
        solver=solution.solver,
        objective=solution.objective,
        bound=solution.bound,
        gap=solution.gap,
        greedy_objective=solution.greedy_objective,
        terms=dict(sorted(terms.items())),
        seconds=round(solution.seconds, 3),
        phases={phase: round(seconds, 3) for phase, seconds in solution.phases.items()},
        fallback=FallbackSummary(tried=fallback.tried, used=fallback.used, reason=fallback.reason)
        if fallback
        else None,
        rejected=tuple(f"{rejected.solver}: {rejected.violations[0]}" for rejected in solution.rejected),
        not_disaggregated=solution.not_disaggregated,
    )


def _proven_or_found(status: SolveStatus) -> Literal["OPTIMAL", "FEASIBLE"]:
    match status:
        case SolveStatus.OPTIMAL:
            return "OPTIMAL"
        case SolveStatus.FEASIBLE:
            return "FEASIBLE"
        case SolveStatus.INFEASIBLE | SolveStatus.NO_ANSWER | SolveStatus.FAILED:
            raise ValueError(f"expected an answer to draft a plan from, found status {status}")


def _starts(
    snapshot: Snapshot, policy: Policy, started: list[Placement], *, documents: dict[str, Any]
) -> list[Start]:
    """
    One start for each new placement, the most valuable first.

    Starts only use what is free already, so any order can be carried out; in this one, an apply that is
    interrupted has done the most good.
    """
    jobs = snapshot.job_by_name
    points = {
        placement.job: _points(snapshot, policy, jobs[placement.job], placement) for placement in started
    }
    ordered = sorted(
        started,
        key=lambda placement: (-points[placement.job], jobs[placement.job].submitted_at, placement.job),
    )
    return [
        Start(
            id=f"start/{placement.job}",
            job=placement.job,
            after=placement,
            reason=_admitted(snapshot, jobs[placement.job], placement, points=points[placement.job]),
            preconditions=(
                JobWaits(job=placement.job, job_fingerprint=fingerprint_of(documents[placement.job])),
                *_frees(placement),
            ),
        )
        for placement in ordered
    ]


def _points(snapshot: Snapshot, policy: Policy, job: Job, placement: Placement) -> int:
    """What the start adds to the objective."""
    gpu_model = _gpu_model(snapshot, job, placement)
    full = job_points(policy, job, snapshot.taken_at)
    return completion_points(full, job, gpu_model, len(placement.replicas))


def _gpu_model(snapshot: Snapshot, job: Job, placement: Placement) -> str | None:
    node = snapshot.cluster.node_by_name[placement.replicas[0].node]
    return node.gpu_model if job.request.needs_gpu else None


def _frees(placement: Placement) -> list[Free]:
    """What the job counts on, node by node."""
    by_node: dict[str, list[Replica]] = defaultdict(list)
    for replica in placement.replicas:
        by_node[replica.node].append(replica)
    return [_free(node, replicas) for node, replicas in sorted(by_node.items())]


def _free(node: str, replicas: list[Replica]) -> Free:
    """What all replicas on one node count on together."""
    resources: dict[str, int] = defaultdict(int)
    for replica in replicas:
        for name, amount in replica.resources.items():
            resources[name] += amount
    return Free(
        node=node,
        gpus=tuple(held for replica in replicas for held in replica.gpus),
        cpu_milli=print_milli(sum(replica.cpu_milli for replica in replicas)),
        memory_mib=sum(replica.memory_mib for replica in replicas),
        disk_mib=sum(replica.disk_mib for replica in replicas),
        resources=dict(sorted(resources.items())),
    )


def _admitted(snapshot: Snapshot, job: Job, placement: Placement, *, points: int) -> Reason:
    """What the reviewer cannot see from size, nodes and queue."""
    replicas = len(placement.replicas)
    waited = max(0, int((snapshot.taken_at - job.submitted_at).total_seconds()))
    nodes = [snapshot.cluster.node_by_name[replica.node] for replica in placement.replicas]
    racks = {(node.region, node.zone, node.rack) for node in nodes}
    parts = []
    if replicas < job.gang.maximum:
        parts.append(f"{replicas:,} of at most {job.gang.maximum:,} replicas")
    if len({node.name for node in nodes}) > 1 and nodes[0].rack and len(racks) == 1:
        parts.append(f"one rack ({nodes[0].rack})")
    if len(job.gpu_models) > 1 and (model := _gpu_model(snapshot, job, placement)):
        parts.append(f"on {model}")
    parts.append(f"waited {duration(waited)}" if waited else "just submitted")
    return Reason(
        code=ReasonCode.ADMITTED,
        text="; ".join(parts),
        numbers={"points": points, "waited_seconds": waited},
    )


def _keeps(snapshot: Snapshot) -> list[Keep]:
    return [
        Keep(
            id=f"keep/{placement.job}",
            job=placement.job,
            before=placement,
            after=placement,
            reason=_UNCHANGED,
        )
        for placement in snapshot.running_placements
    ]


def _node_states(snapshot: Snapshot, placements: tuple[Placement, ...]) -> tuple[NodeState, ...]:
    free = free_capacity(snapshot.cluster.nodes, placements)
    return tuple(
        NodeState(
            name=node.name,
            pool=node.pool,
            free_gpus=tuple(max(0, milli) for milli in free[node.name].gpu_milli),
            free_cpu_milli=print_milli(max(0, free[node.name].cpu_milli)),
            free_memory_mib=max(0, free[node.name].memory_mib),
            mig=tuple(gpu for gpu in node.gpus.by_index.values() if gpu.mig is not None) if node.gpus else (),
        )
        for node in snapshot.cluster.nodes
    )
