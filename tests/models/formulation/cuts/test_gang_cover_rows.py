"""Each row about gangs in one domain is as its formula says, true of every plan, and found if it counts."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import combinations
from math import gcd

import numpy as np
import pytest

from gpuplan.models.cluster import Level
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.policy.policy import Policy, Prices
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.builders.gang_builders import racks
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.random_targets import legal_target

pytestmark = pytest.mark.slow

SEEDS = 60 if EVERY_SEED else 20
PRICES = Prices(scaling=0, currency=0)
"""New nodes cost nothing, so that plans have some."""


def world(seed):
    """
    Racks that are full of jobs of several priorities, and gangs of equal replicas that each need one rack.

    Some racks have nodes that might be added.
    """
    draw = random.Random(f"gathering {seed}")
    nodes = racks(*draw.choices((1, 2, 3, 3), k=2))
    size = draw.choice((2, 4, 4, 8))
    jobs = [job for node in nodes for job in _running(draw, node.name)]
    jobs += [
        build.job(
            f"gang{number}",
            gpus=size,
            replicas=draw.choice((2, 3, 4, (2, 4))),
            locality={"required": Level.RACK},
            priority=draw.choice((2, 5, 9)),
        )
        for number in range(3)
    ]
    template = build.node("new", rack="r0", zone="z", region="e")
    pools = (build.pool("more", template=template, most=2),) if draw.random() < 0.5 else ()
    return build.snapshot(nodes=nodes, jobs=jobs, pools=pools)


def _running(draw, node):
    """Jobs on the first GPUs of a node, some of which could do with fewer replicas."""
    first, found = 0, []
    while (gpus := draw.choice((0, 1, 2, 4))) and first + gpus <= 8:
        halves = gpus > 1 and draw.random() < 0.3
        size = gpus // 2 if halves else gpus
        found.append(
            build.job(
                f"{node}-{first}",
                gpus=size,
                replicas=(1, 2) if halves else 1,
                priority=draw.choice((0, 0, 3)),
                preemptible=draw.random() < 0.9,
                at=[
                    build.replica(node, gpus=range(at, at + size)) for at in range(first, first + gpus, size)
                ],
            )
        )
        first += gpus
    return found


CROWDED = {
    "none": FormulationParams(),
    "some": FormulationParams(max_patterns_per_node=2),
    "all": FormulationParams(max_patterns=0, max_average_patterns=0),
}
"""Which nodes are, of those that a job may leave: limits of eviction patterns."""


@cache
def cases(crowded="none"):
    """(snapshot, problem, columns, formulation, legal targets) of random worlds with such gangs."""
    found = []
    for seed in range(SEEDS):
        snapshot, policy = world(seed), Policy(prices=PRICES, priority=build.BY_WEIGHT)
        problem = build_problem(snapshot, policy)
        x = Columns(problem, CROWDED[crowded])
        assert not x.eviction_patterns.crowded or crowded != "none"
        formulation = formulate(problem, x)
        if formulation.gang_covers:
            draw = random.Random(seed)
            targets = [legal_target(snapshot, policy, problem, draw) for _ in range(8)]
            found.append((snapshot, problem, x, formulation, targets))
    return found


@pytest.fixture(params=CROWDED)
def found(request):
    return cases(request.param)


def sets_of(gathering):
    """All sets of nodes that may be T."""
    nodes = range(len(gathering.fixed))
    return [chosen for size in nodes for chosen in combinations(nodes, size + 1)]


def formula(gathering, chosen):
    """The row of a set of nodes as it is written: coefficients by column, and what they may come to."""
    outside = sum(most for node, most in enumerate(gathering.most.tolist()) if node not in chosen)
    found = Counter()
    for gang, least in zip(gathering.gangs.tolist(), gathering.least.tolist(), strict=True):
        found[gang] += max(0, least - outside)
    changes = zip(gathering.columns.tolist(), gathering.node.tolist(), gathering.gained.tolist(), strict=True)
    for column, node, gained in changes:
        found[column] -= gained * (node in chosen)
    return {column: each for column, each in found.items() if each}, int(gathering.fixed[list(chosen)].sum())


def excess(gathering, chosen, values):
    """By how much values break the row of a set of nodes."""
    coefficients, upper = formula(gathering, chosen)
    return sum(each * values[column] for column, each in coefficients.items()) - upper


def guesses(formulation, seed):
    """Fractions at random, most of which break something."""
    draw = np.random.default_rng(seed)
    for _ in range(3):
        values = draw.random(len(formulation.upper)) * formulation.upper
        leaving = np.concatenate([each.columns for each in formulation.gang_covers])
        values[leaving] *= draw.random() * 0.3
        yield values


def test_random_worlds_have_what_rows_depend_on():
    seen = Counter()
    for *_, formulation, _ in cases():
        for each in formulation.gang_covers:
            seen["gangs of several sizes"] += len(set(each.least.tolist())) > 1
            seen["nodes not known"] += len(each.most) > len(each.fixed)
            seen["several nodes"] += len(each.fixed) > 1
            seen["departures let others in"] += bool((each.gained > 0).any())

    assert min(seen.values()) >= 10, seen
    assert len(seen) == 4, seen


def test_no_legal_plan_breaks_the_row_of_any_set_of_nodes(found):
    tight = whole = 0
    for _, _, x, formulation, targets in found:
        for values in (encode(x, target) for target in targets):
            for each in formulation.gang_covers:
                whole += bool(values[each.gangs].any())
                for chosen in sets_of(each):
                    row = each.row(("cut",), chosen)
                    assert row.holds(values)
                    used = row.coefficients @ values[row.columns]
                    tight += bool(values[each.gangs].any()) and used == row.upper

    assert whole >= 40
    assert tight >= SEEDS // 6


def test_each_row_is_what_its_formula_says(found):
    for *_, formulation, _ in found:
        for each in formulation.gang_covers:
            for chosen in sets_of(each):
                coefficients, upper = formula(each, chosen)
                divisor = gcd(*coefficients.values()) or 1

                row = each.row(("cut",), chosen)

                stated = dict(zip(row.columns.tolist(), (row.coefficients * divisor).tolist(), strict=True))
                assert stated == coefficients
                assert row.upper == upper // divisor


def test_rows_are_found_the_worst_first_and_among_equal_nodes_the_worst_of_all():
    several = equal = 0
    for seed, (*_, formulation, _) in enumerate(cases()):
        for values in guesses(formulation, seed):
            for each in formulation.gang_covers:
                over = [excess(each, chosen, values) for chosen in each.broken(values)]
                assert over == sorted(over, reverse=True)
                assert all(one > 0 for one in over)
                several += len(over) > 1
                if len(set(each.most.tolist())) == 1:
                    worst = max(excess(each, chosen, values) for chosen in sets_of(each))
                    assert worst == pytest.approx(over[0]) if over else worst < 0.01
                    equal += bool(over)

    assert several >= 10
    assert equal >= 10


def test_room_is_what_the_jobs_that_stay_leave():
    for snapshot, problem, x, formulation, targets in cases():
        domains = problem.domain_of(Level.RACK)
        where = {column: domain for (_, _, domain), column in x.whole.items()}
        new = {node for pool in problem.pools for node in (each.name for each in pool.nodes)}
        for target in targets:
            values = encode(x, target)
            held = _held_by_staying_jobs(snapshot, target)
            for each in formulation.gang_covers:
                (domain,) = {where[gang] for gang in each.gangs.tolist()}
                nodes = [
                    node.name
                    for number, node in enumerate(problem.nodes)
                    if domains[number] == domain and node.name not in new
                ]
                size = {
                    x.kinds[index].shape.gpus for (index, _, _), at in x.whole.items() if at in each.gangs
                }
                assert (each.fixed <= each.most[: len(each.fixed)]).all()
                room = each.fixed.sum() + each.gained @ values[each.columns]
                assert room == sum((8 - held[name]) // next(iter(size)) for name in nodes)


def _held_by_staying_jobs(snapshot, target):
    """GPUs by node that jobs go on holding which ran before."""
    running = {each.job for each in snapshot.running_placements}
    return Counter(
        replica.node
        for placement in target.placements
        if placement.job in running
        for replica in placement.replicas
        for _ in replica.gpus
    )
