"""Seeded random worlds of queues that lend to each other: quotas, guarantees, borrowers and priorities."""

from __future__ import annotations

import random

from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.queue import ALL_MODELS, Queue, Quota, queue_limits
from gpuplan.models.verifier.snapshot_facts import SnapshotFacts
from tests.support.builders import build

SIZES = (1, 1, 1, 2, 2, 3)


def world(seed, *, waiting=3):
    """(snapshot, policy) with at most four running jobs and so many waiting ones, on one to three nodes."""
    draw = random.Random(f"reclaiming {seed}")
    nodes = [build.node(f"n{index}", gpus=draw.choice((1, 2, 2, 3))) for index in range(draw.randint(1, 3))]
    queues = _queues(draw)
    running = _running(draw, nodes, queues)
    jobs = [_waiting(draw, f"w{index}", queues) for index in range(draw.randint(1, waiting))]
    policy = Policy(
        disruption=Disruption(
            reclaim=draw.random() < 0.85,
            migrate=draw.random() < 0.15,
            priority_gap=draw.choice((1, 1, 1, 2)),
            max_preemptions=draw.choice((None, None, None, 1)),
        )
    )
    return build.snapshot(nodes=nodes, jobs=[*running, *jobs], queues=queues), policy


def world_of_turns(seed):
    """The same with running jobs most of which are in their turn, and urgent ones that wait."""
    snapshot, policy = world(seed)
    draw = random.Random(f"turns {seed}")
    jobs = [
        job.model_copy(
            update={"preemptions": draw.choice((0, 1, 1))}
            if job.running
            else {"priority": draw.choice((0, 4, 5))}
        )
        for job in snapshot.jobs
    ]
    rules = policy.disruption.model_copy(update={"checkpoint": 7200, "max_preemptions": None})
    again = build.snapshot(nodes=list(snapshot.cluster.nodes), jobs=jobs, queues=list(snapshot.queues))
    return again, policy.model_copy(update={"disruption": rules})


def _queues(draw):
    shape = draw.choice(("flat", "flat", "parent", "two levels"))
    parents = {"flat": {}, "parent": {"a": "root", "b": "root", "c": "root"}}
    parents["two levels"] = {"x": "root", "y": "root", "a": "x", "b": "x", "c": "y"}
    above = parents[shape]
    names = sorted({"a", "b", "c", *above, *above.values()})
    queues = [
        Queue(name=name, parent=above.get(name), quota=_quota(draw, name in above.values())) for name in names
    ]
    if draw.random() < 0.2:
        models = {build.MODEL: Quota(nominal=1000 * draw.randint(0, 3))}
        queues[0] = queues[0].model_copy(update={"gpu_models": models})
    limits = queue_limits(tuple(queues), ALL_MODELS).limit
    return [
        queue.model_copy(update={"quota": queue.quota.model_copy(update={"guarantee": None})})
        if queue.quota and (queue.quota.guarantee or 0) > _most(limits[queue.name])
        else queue
        for queue in queues
    ]


def _most(limit):
    return 10**9 if limit is None else limit


def _quota(draw, parent):
    if draw.random() < (0.6 if parent else 0.3):
        return None
    return Quota(
        nominal=draw.randint(0, 4),
        borrowing_limit=draw.choice((None, None, 0, 1)),
        lending_limit=draw.choice((None, None, None, 0, 1)),
        guarantee=draw.choice((None, None, 1, 2)),
    )


def _running(draw, nodes, queues):
    found = []
    for node in nodes:
        free = list(range(node.gpu_count))
        while free and len(found) < 4 and draw.random() < 0.8:
            gpus = min(draw.choice(SIZES), len(free))
            each = draw.choice((1, gpus))
            places = [build.replica(node.name, gpus=free[at : at + each]) for at in range(0, gpus, each)]
            found.append(
                build.job(
                    f"r{len(found)}",
                    gpus=each,
                    replicas=(draw.randint(1, len(places)), len(places)),
                    at=places[: gpus // each],
                    **_about(draw, queues),
                    preemptible=draw.random() < 0.9,
                    preemptions=draw.choice((0, 0, 1)),
                )
            )
            free = free[gpus:]
    return found


def _waiting(draw, name, queues):
    replicas = draw.choice((1, 1, 1, 2, (1, 2)))
    return build.job(name, gpus=draw.choice(SIZES), replicas=replicas, **_about(draw, queues))


def _about(draw, queues):
    return {
        "queue": draw.choice(queues).name,
        "priority": draw.choice((0, 0, 0, 1, 4)),
        "weight": draw.choice((1, 1, 2, 20)),
    }


def stoppable(snapshot, policy):
    """
    Fates of running jobs that the rules allow: nothing is stopped or shrunk that no job may follow.

    By priority, unless it is in its turn and its queue may reclaim, or since its queue borrows; as the
    verifier states it.
    """
    rules = policy.disruption
    entitlements = SnapshotFacts(snapshot).entitlements(policy.disruption)

    def follows(job, victim):
        adds = job.request.total_gpu_milli * (1 if job.running else job.gang.minimum)
        model = build.MODEL if victim.request.needs_gpu else ""
        # All jobs of these worlds have run for an hour.
        in_turn = (2**victim.preemptions - 1) * (rules.checkpoint + rules.restart) > 3600
        spared = in_turn and entitlements.owns(victim.queue, job.queue)
        above = job.priority >= victim.priority + rules.priority_gap and not spared
        return above or bool(entitlements.quotas(job.queue, adds, victim.queue, model))

    coming = [
        job
        for job in snapshot.jobs
        if job.running is None or len(job.running.replicas) < job.gang.maximum or policy.disruption.migrate
    ]

    def allowed(victim, after):
        less = after is None or len(after.replicas) < len(victim.running.replicas)
        return not less or any(follows(job, victim) for job in coming if job is not victim)

    return allowed
