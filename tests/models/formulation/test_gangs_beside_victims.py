"""Racks, gangs that need one, and victims that not all jobs may follow: no row cuts off a legal plan."""

from __future__ import annotations

import random

import pytest

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.cluster import Level
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.policy.policy import PriorityOrder, PriorityPolicy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build

POLICY = build.by_value(priority=PriorityPolicy(order=PriorityOrder.WEIGHTS))
QUEUES = ("q0", "q1", "q2")


def world(seed):
    draw, jobs = random.Random(seed), []
    nodes = [
        build.node(f"r{rack}-{number}", gpus=8, region="eu", zone="a", rack=f"r{rack}")
        for rack in range(draw.randint(2, 3))
        for number in range(draw.randint(1, 4))
    ]
    nominal = [0, 8, 8 * len(nodes) // 3]
    queues = [build.queue("top")]
    queues += [build.queue(name, parent="top", nominal=draw.choice(nominal)) for name in QUEUES]
    for node in nodes:
        start = 0
        while start < 8:
            size = min(draw.choice([1, 2, 4, 8]), 8 - start)
            if draw.random() < 0.55:
                at = [build.replica(node.name, gpus=range(start, start + size))]
                more = {"priority": draw.randint(0, 4), "queue": draw.choice(QUEUES)}
                jobs.append(build.job(f"r{len(jobs)}", gpus=size, at=at, **more))
            start += size
    for number in range(9):
        more = {"priority": draw.randint(0, 6), "weight": draw.randint(1, 5), "queue": draw.choice(QUEUES)}
        if draw.random() < 0.6:
            more["locality"] = LocalityPreference(required=Level.RACK)
            more["replicas"] = draw.randint(2, 3)
        jobs.append(build.job(f"w{number}", gpus=draw.choice([4, 8]), **more))
    return build.snapshot(nodes=nodes, queues=queues, jobs=jobs)


@pytest.mark.slow
def test_legal_plans_satisfy_all_rows():
    narrower = 0
    for seed in range(30):
        snapshot = world(seed)
        problem = build_problem(snapshot, POLICY)
        target = target_of(greedy(problem), snapshot.running_placements)
        assert verify_target(snapshot, POLICY, target).violations == ()
        x = Columns(problem)
        formulation = formulate(problem, x)

        values = encode(x, target)

        assert not formulation.violated_rows(values), seed
        assert (values <= formulation.upper).all(), seed
        for kind in (each for each in x.kinds if not each.ignores_domains):
            cells = range(len(x.cells.all))
            narrower += sum(x.cells.room_for(cell, kind) < x.cells.room(cell, kind.shape) for cell in cells)
    assert narrower > 0
