"""
How many copies of a job fit, and which nodes make jobs run, by trying everything and asking the verifier.

Nothing of what is tested here is used: no problem, no counting, no solver.
"""

from __future__ import annotations

import itertools
from collections import Counter

from gpuplan.models.placement import Placement
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import Disruption
from tests.support.oracles import brute_force
from tests.support.strategies.random_targets import judged, sorted_by_job

MOST_JUDGED = 2_500


class TooLargeError(Exception):
    """There is too much to try."""


class Trying:
    """Placements of waiting jobs beside the running ones, which all stay as they are."""

    def __init__(self, snapshot, policy, added=()):
        self.snapshot, self.added = snapshot, added
        self.policy = policy.model_copy(update={"disruption": Disruption(preempt=False, resize=False)})
        self.judged = 0

    def legal(self, placements):
        self.judged += 1
        if self.judged > MOST_JUDGED:
            raise TooLargeError
        target = DesiredState(sorted_by_job((*self.snapshot.running_placements, *placements)), self.added)
        return not judged(self.snapshot, self.policy, target).violations

    def places(self, job):
        """All that the smallest gang of a job may hold if no other starts."""
        nodes = (*self.snapshot.cluster.nodes, *self.added)
        spots = [each for node in nodes for each in brute_force._on_node(job, node)]
        gangs = itertools.combinations_with_replacement(spots, job.gang.minimum)
        held = (Placement(job=job.name, replicas=replicas) for replicas in gangs)
        return [each for each in held if self.legal([each])]


def most_copies(snapshot, policy, job, limit):
    """The most copies of a waiting job that fit beside what runs, up to a limit."""
    copies = [job.model_copy(update={"name": f"copy-{number}", "held": False}) for number in range(limit)]
    running = [each for each in snapshot.jobs if each.running]
    world = snapshot.model_copy(update={"jobs": (*running, *copies)}).canonical()
    trying = Trying(world, policy)
    places = trying.places(copies[0])
    best = 0

    def extend(placed, first):
        nonlocal best
        best = max(best, len(placed))
        if best == limit:
            return
        for index in range(first, len(places)):
            name = copies[len(placed)].name if len(placed) < limit else ""
            more = [*placed, places[index].model_copy(update={"job": name})]
            if trying.legal(more):
                extend(more, index)

    extend([], 0)
    return best


def cheapest_nodes(snapshot, policy, jobs):
    """Nodes by pool that cost least, fewest first, beside which all jobs run; None if there are none."""
    running = [each for each in snapshot.jobs if each.running]
    world = snapshot.model_copy(update={"jobs": (*running, *jobs)}).canonical()
    mixes = [added for added, removed in brute_force._node_choices(snapshot) if not removed]

    def cost(added):
        return round(sum(node.price_per_hour for node in added), 6), len(added)

    for added in sorted(mixes, key=cost):
        if runs_beside(world, policy, jobs, added):
            return cost(added)[0], Counter(node.pool for node in added)
    return None


def runs_beside(world, policy, jobs, added):
    """True if all of the jobs can run once these nodes are there."""
    trying = Trying(world, policy, added)
    places = [trying.places(job) for job in jobs]

    def extend(placed):
        if len(placed) == len(jobs):
            return True
        return any(
            extend([*placed, place]) for place in places[len(placed)] if trying.legal([*placed, place])
        )

    return extend([])
