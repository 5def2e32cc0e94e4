"""
What a ledger says that a job lacks, against the verifier, everything tried, and the reasons of waiting jobs.

Greedy has planned before. The lists of codes are those that waiting jobs of these worlds have.
"""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from gpuplan.models.placement import Placement
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.violation import Rule
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.text_format import quota_number
from gpuplan.planner.waiting.diagnose import waiting_reasons
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of
from tests.support.oracles import brute_force
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances, time_strategies
from tests.support.strategies.random_targets import judged, sorted_by_job

SEEDS = range(150 if EVERY_SEED else 25)
DOMAINS = () if len(SEEDS) > 40 else (49, 59)
"""Seeds with a gang that finds room in no one domain."""
MOST_TRIED = 300
GROUPS = {
    "everything": instances.everything,
    "everything-mixed": instances.everything_mixed,
    "timed": time_strategies.instance,
}
TRIED = {
    None,
    ReasonCode.WAITING_FOR_QUOTA,
    ReasonCode.RESOURCES,
    ReasonCode.FRAGMENTED,
    ReasonCode.LAYOUT_BLOCKED,
    ReasonCode.DOMAIN,
    ReasonCode.NOT_CHOSEN,
}
"""Codes that the instances must bring about; None where a job fits."""
KNOWS_LESS = {
    # A problem has no sizes of nodes but their GPUs, and no profiles but those that are offered.
    *itertools.product(
        (
            *(ReasonCode.RESOURCES, ReasonCode.FRAGMENTED, ReasonCode.LAYOUT_BLOCKED),
            *(ReasonCode.WAITING_FOR_QUOTA, ReasonCode.DEPENDENCY, ReasonCode.BEGIN_TIME),
        ),
        (ReasonCode.NO_MATCHING_NODE,),
    ),
    # It has one first slot for dates, dependencies, closed nodes, and nodes that are not ready.
    *itertools.product(
        (ReasonCode.BEGIN_TIME, ReasonCode.DEPENDENCY),
        (
            *(ReasonCode.DEPENDENCY, ReasonCode.RESERVED, ReasonCode.RESOURCES),
            *(ReasonCode.WAITING_FOR_QUOTA, ReasonCode.DOMAIN),
        ),
    ),
    # Nodes that a window closes now are not among those that a job may use.
    (ReasonCode.WAITING_FOR_QUOTA, ReasonCode.RESERVED),
    (ReasonCode.RESOURCES, ReasonCode.RESERVED),
    # Of a cap and the free GPUs below it, either may be told; and new nodes draw power, too.
    (ReasonCode.FRAGMENTED, ReasonCode.RESOURCES),
    (ReasonCode.RESOURCES, ReasonCode.FRAGMENTED),
    (ReasonCode.LAYOUT_BLOCKED, ReasonCode.RESOURCES),
    (ReasonCode.RESOURCES, ReasonCode.NOT_CHOSEN),
    (ReasonCode.FRAGMENTED, ReasonCode.NOT_CHOSEN),
    (ReasonCode.DOMAIN, ReasonCode.NOT_CHOSEN),
    # A node that cannot be used now is none at all.
    (ReasonCode.NO_MATCHING_NODE, ReasonCode.RESOURCES),
}
"""(code of the ledger, code of the reason) where the reasons look at more than a problem has."""


def left_over(group, seed):
    """A planned world, and for each class with a job that does not start: such a job, and what it lacks."""
    world = GROUPS[group](seed)
    ledger = greedy(build_problem(world.snapshot, world.policy))
    target = target_of(ledger, world.snapshot.running_placements)
    started = {placement.job for placement in target.placements} | {each.job for each in target.planned}
    waiting = [
        (world.snapshot.job_by_name[job], ledger.shortage(index))
        for index, each in enumerate(ledger.problem.classes)
        if each.role is ClassRole.START and each.co_start is None
        for job in [next((job for job in each.jobs if job not in started), None)]
        if job is not None
    ]
    return world, target, waiting


def can_be_placed(world, target, job):
    """True if the verifier accepts the smallest gang of a job anywhere beside a plan; None if too many."""
    there = [
        node for node in (*world.snapshot.cluster.nodes, *target.added) if node.name not in target.removed
    ]
    spots = [spot for node in there for spot in brute_force._on_node(job, node)]
    gangs = [
        *itertools.islice(itertools.combinations_with_replacement(spots, job.gang.minimum), MOST_TRIED + 1)
    ]
    if len(gangs) > MOST_TRIED:
        return None
    return any(is_legal(world, target, Placement(job=job.name, replicas=gang)) for gang in gangs)


def is_legal(world, target, placement):
    """True if all rules but the one about priorities hold: a ledger starts jobs in their order."""
    after = replace(target, placements=sorted_by_job((*target.placements, placement)))
    return {each.rule for each in judged(world.snapshot, world.policy, after).violations} <= {Rule.PRIORITY}


@pytest.mark.slow
def test_a_job_lacks_nothing_exactly_if_the_verifier_accepts_it_somewhere():
    tried = Counter()

    for group, seed in itertools.product(("everything", "everything-mixed"), (*SEEDS, *DOMAINS)):
        world, target, waiting = left_over(group, seed)
        for job, shortage in waiting:
            if (placeable := can_be_placed(world, target, job)) is not None:
                assert placeable == (shortage is None), (group, seed, job.name, shortage)
                tried[shortage and shortage.code] += 1

    assert tried.keys() >= TRIED, tried


@pytest.mark.slow
def test_what_a_job_lacks_has_the_code_and_the_quota_of_its_reason():
    same = Counter()

    for group, seed in itertools.product(GROUPS, SEEDS):
        world, target, waiting = left_over(group, seed)
        reasons = waiting_reasons(world.snapshot, world.policy, target)
        for job, shortage in waiting:
            code, reason = shortage.code if shortage else ReasonCode.NOT_CHOSEN, reasons[job.name]
            assert code is reason.code or (code, reason.code) in KNOWS_LESS, (seed, job.name, shortage)
            same[code is reason.code] += 1
            if code is reason.code is ReasonCode.WAITING_FOR_QUOTA:
                resource, numbers = shortage.numbers["resource"], shortage.numbers
                told = {key: quota_number(numbers[key], resource) for key in ("used", "limit", "needed")}
                assert told.items() <= reason.numbers.items(), (seed, job.name)

    assert same[True] > 3 * same[False]
