"""Plans made by hand: what to start, the rest plausible; and plan files made from documents."""

from __future__ import annotations

import json

from gpuplan.models.base import fingerprint_of
from gpuplan.models.plan.actions import Keep, Start, Wait
from gpuplan.models.plan.plan import (
    Base,
    JobCounts,
    Metrics,
    NodeState,
    Plan,
    SolutionSummary,
    Waiting,
    plan_content,
)
from gpuplan.models.plan.precondition import Free, JobWaits
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.plan_file.plan_file import with_id
from tests.support.builders.build import NOW

ADMITTED = Reason(code=ReasonCode.ADMITTED, text="fits")


def plan_id_of(document):
    """Of the whole content at once."""
    return fingerprint_of(plan_content(document))[:16]


def start(id_, placement, *, fingerprint="", after=()):
    """Start a job; it must wait and find free what it will hold."""
    return Start(
        id=id_,
        job=placement.job,
        after=placement,
        reason=ADMITTED,
        preconditions=(
            JobWaits(job=placement.job, job_fingerprint=fingerprint),
            *(
                Free(
                    node=replica.node,
                    gpus=replica.gpus,
                    cpus=replica.cpu_milli / 1000,
                    memory_mib=replica.memory_mib,
                    disk_mib=replica.disk_mib,
                    resources=replica.resources,
                )
                for replica in placement.replicas
            ),
        ),
        after_actions=tuple(after),
    )


def plan_of(snapshot, *placements, actions=None, policy=None):
    """A plan that starts the placed jobs, in that order, as actions a1, a2, …; the others stay."""
    policy = policy or Policy()
    starts = tuple(
        start(f"a{number}", placed, fingerprint=snapshot.job_by_name[placed.job].fingerprint())
        for number, placed in enumerate(placements, 1)
    )
    started = {placed.job for placed in placements}
    others = tuple(
        Keep(
            id=f"k-{job.name}",
            job=job.name,
            before=job.placement,
            after=job.placement,
            reason=Reason(code=ReasonCode.UNCHANGED, text="runs on"),
        )
        if job.running
        else Wait(id=f"w-{job.name}", job=job.name, reason=Reason(code=ReasonCode.RESOURCES, text="no room"))
        for job in snapshot.jobs
        if job.name not in started
    )
    running = snapshot.running_placements
    return with_id(
        Plan(
            plan_id="",
            epoch=snapshot.taken_at,
            created_at=NOW,
            base=Base(snapshot=snapshot.fingerprint(), policy=policy.fingerprint()),
            solution=SolutionSummary(
                status="OPTIMAL",
                solver="greedy",
                objective=100,
                bound=110,
                gap=0.1,
                greedy_objective=100,
                terms={"completion": 100},
                seconds=0.25,
                phases={"greedy": 0.25},
            ),
            actions=(*starts, *others) if actions is None else tuple(actions),
            placements=(*running, *placements),
            nodes=tuple(NodeState(name=node.name) for node in snapshot.cluster.nodes),
            waiting=tuple(
                Waiting(job=action.job, reason=action.reason) for action in others if isinstance(action, Wait)
            ),
            metrics=Metrics(
                gpu_allocation_ratio=0.5,
                gpu_allocation_ratio_before=0.25,
                fragmentation_ratio=0.125,
                jain_index=1.0,
                hourly_cost=0.0,
                jobs=JobCounts(
                    running=len(running) + len(placements), started=len(placements), waiting=len(others)
                ),
            ),
            snapshot=snapshot,
            policy=policy,
        )
    )


def save_stamped(path, document):
    """Write a document as a plan file, with the id and checksum that its content gives it."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    content["plan_id"] = plan_id_of(document)
    path.write_text(json.dumps(content | {"checksum": fingerprint_of(content)}))
    return path
