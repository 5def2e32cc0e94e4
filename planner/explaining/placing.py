"""
Placing one job in a room: concrete places from the production planner, for the verifier to judge.

The planner is asked about a few nodes only, on which everybody else stays where the plan has them. Quotas and
everything of time were looked at before, and the verifier looks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.models.job import Running
from planner.models.placement import GpuShare, Replica
from planner.models.policy import Disruption, Policy, PoolPolicy
from planner.models.queue import Queue
from planner.models.units import MILLI
from planner.posing import pose
from planner.solvers.greedy import greedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.explaining.ground import Ground, Room
    from planner.explaining.question import Question
    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.snapshot import Snapshot

_SPARE_NODES: Final = 8
"""Beside as many as the job has replicas: among them the planner chooses."""

_ANY_QUEUE: Final = "queue"

_FREE_OF_TIME: Final[dict[str, Any]] = {
    "queue": _ANY_QUEUE,
    "depends_on": (),
    "depends_on_at_least": None,
    "co_start": None,
    "deadline": None,
    "hard_deadline": False,
    "promise": None,
}


def placement_in(room: Room, question: Question, ground: Ground) -> Placement | None:
    """Places for the job on nodes of the room; None if the planner finds none there."""
    ordered = sorted(room.counts, key=lambda name: (-room.counts[name], name))
    few = ordered[: question.job.gang.minimum + _SPARE_NODES]
    found = _placed_on(few, question, ground)
    if found is None and len(few) < len(ordered):
        found = _placed_on(ordered, question, ground)
    return found


def _placed_on(names: list[str], question: Question, ground: Ground) -> Placement | None:
    snapshot, job = question.plan.snapshot, _eager(question.job)
    nodes = tuple(ground.place(name, question).node for name in sorted(names))
    cluster = snapshot.cluster.model_copy(update={"nodes": nodes, "pools": (), "reservations": ()})
    world = snapshot.model_copy(
        update={
            "cluster": cluster,
            "queues": (Queue(name=_ANY_QUEUE),),
            "jobs": (*_staying(nodes, question, ground), job),
            "finished": (),
        }
    ).canonical()
    policy = Policy(
        weights=question.policy.weights,
        prices=question.policy.prices,
        mig=question.policy.mig,
        profiles=question.policy.profiles,
        disruption=Disruption(preempt=False, resize=False),
        pools=PoolPolicy(scale_up=False, scale_down=False),
    )
    target = greedy(pose(world, policy)).target(world.running_placements)
    return next((each for each in target.placements if each.job == job.name), None)


def _eager(job: Job) -> Job:
    """The job as one that starts now if it fits at all, whatever it costs or otherwise waits for."""
    gang = job.gang.model_copy(update={"maximum": job.gang.minimum})
    return job.model_copy(
        update={
            **_FREE_OF_TIME,
            "priority": 10_000,
            "weight_milli": 1000 * MILLI,
            "held": False,
            "not_before": None,
            "gang": gang,
        }
    )


def _staying(nodes: tuple[Node, ...], question: Question, ground: Ground) -> Iterator[Job]:
    """Who is on the nodes, or is promised a part of them, as jobs that run and stay."""
    snapshot = question.plan.snapshot
    here = {node.name for node in nodes}
    names = {owner for name in here for owner, _ in ground.on_node.get(name, ())} - question.gone
    for name in sorted(names):
        replicas = tuple(each for each in ground.placed[name].replicas if each.node in here)
        yield _steady(snapshot.job_by_name[name], replicas, snapshot)
    for node in nodes:
        held = ground.promised_away(node.name, question)
        parts = tuple(GpuShare(index=index, milli=milli) for index, milli in sorted(held.items()))
        if parts:
            name = f"promised-on-{node.name}"
            while name in snapshot.job_by_name:
                name = f"also-{name}"
            stand_in = question.job.model_copy(update={"name": name})
            yield _steady(stand_in, (Replica(node=node.name, gpus=parts),), snapshot)


def _steady(job: Job, replicas: tuple[Replica, ...], snapshot: Snapshot) -> Job:
    return job.model_copy(
        update={
            **_FREE_OF_TIME,
            "running": Running(started_at=snapshot.taken_at, replicas=replicas),
            "preemptible": False,
        }
    )
