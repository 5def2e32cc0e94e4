"""The plan that is best for the highest priority, then for the next, …, found by trying everything."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.value.disruption_cost import resize_points
from gpuplan.models.value.job_value import job_points
from tests.oracle.completion import completion_points
from tests.support.builders import build
from tests.support.oracles.brute_force import everything_legal


@dataclass(frozen=True)
class Tried:
    """A legal target, its objective, and the points of what starts or grows by priority."""

    target: object
    objective: int
    points: dict
    owed: dict
    """Of them, those of jobs that a guarantee may lack, by priority."""


def best_in_order(snapshot, policy, problem, fates):
    """Objectives of the plans that come of planning one priority after the other; and all that was tried."""
    tried = [
        _tried(snapshot, policy, problem, target, objective)
        for target, objective in everything_legal(snapshot, policy, fates=fates)
    ]
    priorities = problem.priorities
    return _objectives(tried, priorities, {}), tried


def _objectives(tried, priorities, floors):
    tried = [each for each in tried if all(each.points[u] >= floor for u, floor in floors.items())]
    if not priorities[1:]:
        return {max(each.objective for each in tried)}
    first = priorities[0]
    asked = []
    for each in tried:
        lower = {u: points for u, points in each.points.items() if u < first and points}
        if all(each.owed[u] == points for u, points in lower.items()):
            asked.append((each.objective - sum(lower.values()), each))
    most = max(objective for objective, _ in asked)
    best = [each for objective, each in asked if objective == most]
    known = {first, *floors}
    outcomes = {tuple(sorted((u, each.points[u]) for u in known)) for each in best}
    return {objective for found in outcomes for objective in _objectives(tried, priorities[1:], dict(found))}


def _tried(snapshot, policy, problem, target, objective):
    short = {
        problem.queues[queue] for each in problem.guarantees if each.owed > each.own for queue in each.queues
    }
    level = {
        name: one.priority for one in problem.classes if one.role is not ClassRole.MOVE for name in one.jobs
    }
    points, owed = defaultdict(int), defaultdict(int)
    for placement in target.placements:
        job = snapshot.job_by_name[placement.job]
        before = len(job.running.replicas) if job.running else 0
        more = len(placement.replicas) - before
        if more <= 0:
            continue
        nodes = snapshot.cluster.node_by_name | {node.name: node for node in target.added}
        model = nodes[placement.replicas[0].node].gpu_model
        full = job_points(policy, job, snapshot.taken_at)
        earned = completion_points(full, job, model if job.request.needs_gpu else None, more)
        if job.running:
            earned -= resize_points(policy, job, snapshot.taken_at)
        points[level[job.name]] += earned
        if job.running is None and job.queue in short and job.request.needs_gpu:
            owed[level[job.name]] += earned
    return Tried(target, objective, points, owed)


def world(seed):
    """A crowded cluster of up to three nodes: jobs of three priorities, quotas, guarantees, running jobs."""
    draw = random.Random(f"priorities {seed}")
    nodes = [
        build.node(f"n{index}", gpus=draw.choice((2, 3, 4)), cpus=64, rack=draw.choice("xy"))
        for index in range(draw.choice((1, 1, 2)))
    ]
    limit = draw.choice((None, None, 2, 3))
    queues = [
        build.queue("root"),
        build.queue("a", parent="root", nominal=limit, borrowing=0 if limit else None),
        build.queue("b", parent="root", nominal=1, guarantee=1) if draw.random() < 0.3 else build.queue("b"),
    ]
    jobs = []
    for node in nodes:
        if draw.random() < 0.4:
            held = tuple(range(draw.randint(1, 2)))
            at = [build.replica(node.name, gpus=held)]
            priority = draw.choice((0, 0, 1, 2))
            jobs.append(_running(f"r{node.name}", len(held), at, draw.choice("ab"), priority, draw))
    for index in range(draw.randint(3, 4)):
        kind = draw.choice(("one", "one", "two", "four", "four", "share", "gang", "elastic"))
        size = {"one": 1, "two": 2, "four": 4, "gang": 1, "elastic": 1}.get(kind, 0)
        replicas = {"gang": 2, "elastic": (1, 3)}.get(kind, 1)
        more = {"locality": {"required": "rack"}} if kind == "gang" and draw.random() < 0.5 else {}
        job = build.job(
            f"w{index}",
            gpus=size,
            milli=500 if kind == "share" else 0,
            replicas=replicas,
            queue=draw.choice("ab"),
            priority=draw.choice((0, 1, 2)),
            waited=timedelta(hours=draw.choice((0, 0, 7, 40))),
            **more,
        )
        jobs.append(job)
    return build.snapshot(nodes=nodes, jobs=jobs, queues=queues)


def _running(name, gpus, at, queue, priority, draw):
    return build.job(name, gpus=gpus, at=at, queue=queue, priority=priority, preemptible=draw.random() < 0.8)


def could_have_come_first(snapshot, tried, each):
    """
    Names of the waiting jobs that those of lower priority that start, or grow, keep from starting.

    Among all plans there is one that has the job and lacks some of those, and is else the same. None for
    plans that disturb running jobs.
    """
    before = {placement.job: placement for placement in snapshot.running_placements}
    here = {placement.job: placement for placement in each.target.placements}
    if any(name not in here or len(here[name].replicas) < len(before[name].replicas) for name in before):
        return None
    found = set()
    for other in tried:
        there = {placement.job: placement for placement in other.target.placements}
        new = there.keys() - here.keys()
        if len(new) != 1 or other.target.added != each.target.added:
            continue
        (name,) = new
        priority = snapshot.job_by_name[name].priority
        changed = [
            job
            for job in here
            if there.get(job) != here[job]
            and not (snapshot.job_by_name[job].priority < priority and there.get(job) == before.get(job))
        ]
        if not changed and any(there.get(job) != here[job] for job in here):
            found.add(name)
    return found
