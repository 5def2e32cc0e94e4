"""On instances small enough to try everything, the exact optimum is what the verifier's own search finds."""

from __future__ import annotations

import itertools
import random
from functools import partial

import build
import pytest

from planner.models.placement import GpuShare, Placement, Replica
from planner.models.policy import Policy
from planner.models.solution import SolveStatus
from planner.models.verifier import verify
from planner.posing import pose
from planner.solvers.portfolio import Limits, solve

POLICY = Policy()
CORES = 4


def tiny(seed):
    """Up to three jobs for one or two nodes of two GPUs."""
    draw = random.Random(seed)
    nodes = [build.node(f"n{index}", gpus=2, cpus=CORES * 2) for index in range(draw.randint(1, 2))]
    jobs = []
    for name in "abc":
        gpus, milli = draw.choice(((1, 0), (2, 0), (0, 500), (0, 500), (0, 250)))
        jobs.append(
            build.job(
                name,
                gpus=gpus,
                milli=milli,
                cpus=CORES * (gpus or milli / 1000),
                replicas=draw.choice((1, 1, 2, (1, 2))),
                priority=draw.choice((0, 1, 3)),
            )
        )
    quota = draw.choice((None, 1, 2, 3))
    return build.snapshot(nodes=nodes, jobs=jobs, queues=[build.queue("q", nominal=quota)])


def everywhere(snapshot, job):
    """All ways to place one job, and not to."""
    request = job.request
    spots = []
    for node in snapshot.cluster.nodes:
        for gpus in itertools.combinations(range(node.gpu_count), request.gpus or 1):
            held = tuple(GpuShare(index=gpu, milli=request.gpu_milli or 1000) for gpu in gpus)
            spots.append(
                Replica(node=node.name, gpus=held).model_copy(update={"cpu_milli": request.cpu_milli})
            )
    yield None
    for count in range(job.gang.minimum, job.gang.maximum + 1):
        for replicas in itertools.combinations_with_replacement(spots, count):
            yield Placement(job=job.name, replicas=replicas)


def best_of_all(snapshot):
    check = partial(verify, snapshot, POLICY)
    best = 0
    for choice in itertools.product(*(tuple(everywhere(snapshot, job)) for job in snapshot.jobs)):
        verification = check(tuple(placement for placement in choice if placement))
        if not verification.violations:
            best = max(best, verification.objective)
    return best


@pytest.mark.parametrize("seed", range(24))
def test_portfolio_reaches_the_best_of_all_placements(seed):
    snapshot = tiny(seed)

    solution = solve(pose(snapshot, POLICY), (), Limits(30.0, ("milp",)), partial(verify, snapshot, POLICY))

    assert solution.objective == best_of_all(snapshot)
    assert solution.status is SolveStatus.OPTIMAL
