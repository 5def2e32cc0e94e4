"""
Trial placement: concrete places from the production planner, for the verifier to check.

The planner gets a few nodes only, on which all other jobs stay where the plan has them. Quotas and time rules
are checked before, and the verifier checks them again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.cluster import rack_of
from gpuplan.models.job import Running
from gpuplan.models.placement import GpuShare, Replica
from gpuplan.models.policy.policy import Disruption, Policy, PoolPolicy
from gpuplan.models.queue import Queue
from gpuplan.models.units import MILLI
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Node, RackPower
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.explain.feasibility import CandidateNodes, PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis

_SPARE_NODES: Final = 8
"""Nodes offered beyond one per replica, so that the planner has a choice."""

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


def place_on_candidates(
    rooms: list[tuple[str, CandidateNodes]], question: Hypothesis, ground: PlanFeasibility
) -> tuple[Placement, ...]:
    """Place all members of the question, each in its own rooms; empty if no placement is found."""
    enough = sum(job.gang.minimum for job in question.members) + _SPARE_NODES
    few = [(name, room.by_room[:enough]) for name, room in rooms]
    everything = [(name, room.by_room) for name, room in rooms]
    return _placed_on(few, question, ground) or (
        _placed_on(everything, question, ground) if few != everything else ()
    )


def _placed_on(
    choice: list[tuple[str, list[str]]], question: Hypothesis, ground: PlanFeasibility
) -> tuple[Placement, ...]:
    """Place the members on the nodes chosen for each of them."""
    snapshot = question.plan.snapshot
    chosen: dict[str, dict[str, str]] = defaultdict(dict)
    for job, names in choice:
        for name in names:
            chosen[name][f"room for {job}"] = ""
    nodes = tuple(
        node.model_copy(update={"labels": node.labels | labels})
        for name, labels in sorted(chosen.items())
        for node in (ground.counting.place(name, question).node,)
    )
    cluster = snapshot.cluster.model_copy(
        update={
            "nodes": nodes,
            "pools": (),
            "reservations": (),
            "rack_power": tuple(_power_here(nodes, question, ground)),
        }
    )
    world = snapshot.model_copy(
        update={
            "cluster": cluster,
            "queues": (Queue(name=_ANY_QUEUE),),
            "jobs": (*_staying(nodes, question, ground), *map(_eager, question.members)),
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
    target = greedy(build_problem(world, policy)).target(world.running_placements)
    found = tuple(each for each in target.placements if each.job in question.names)
    return found if len(found) == len(question.names) else ()


def _eager(job: Job) -> Job:
    """The job with its minimum size, top priority and no time rules: it starts now if it fits at all."""
    gang = job.gang.model_copy(update={"maximum": job.gang.minimum})
    return job.model_copy(
        update={
            **_FREE_OF_TIME,
            "priority": 10_000,
            "weight_milli": 1000 * MILLI,
            "held": False,
            "not_before": None,
            "gang": gang,
            "node_selector": job.node_selector | {f"room for {job.name}": ""},
        }
    )


def _power_here(
    nodes: tuple[Node, ...], question: Hypothesis, ground: PlanFeasibility
) -> Iterator[RackPower]:
    """The rack caps that are left for these nodes, after what other nodes draw."""
    here = {node.name for node in nodes}
    for cap in question.rack_power:
        rack = rack_of(cap)
        if not any(rack_of(node) == rack for node in nodes):
            continue
        away = ground.counting.power.drawn(rack, question.gone, away_from=here)
        yield cap.model_copy(update={"watts": max(1, cap.watts - -(-away // MILLI))})


def _staying(nodes: tuple[Node, ...], question: Hypothesis, ground: PlanFeasibility) -> Iterator[Job]:
    """Residents of the nodes, and stand-ins for promised starts there, as running jobs that cannot move."""
    snapshot = question.plan.snapshot
    held: dict[str, list[Replica]] = defaultdict(list)
    for node in nodes:
        for job, replica in ground.counting.there(node.name, question):
            held[job.name].append(replica)
    for name, replicas in sorted(held.items()):
        yield _steady(snapshot.job_by_name[name], tuple(replicas), snapshot)
    for node in nodes:
        # The member that ends first has the fewest promises to respect; the verifier checks the others.
        by_member = [ground.counting.promised_away(node.name, each) for each in question.by_member()]
        promised = min(by_member, key=lambda each: each.total())
        parts = tuple(GpuShare(index=index, milli=milli) for index, milli in sorted(promised.items()))
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
