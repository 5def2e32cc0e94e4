"""Rows about gangs in one domain, found when an answer breaks them: true of every plan, and of use."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gpuplan.models.cluster import Level
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.cuts.gang_cover import GangCover
from gpuplan.models.formulation.encode import encode
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.dual_bound import exact_bound
from gpuplan.solvers.exact import milp
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.params.exact import ExactParams, HighsParams
from gpuplan.solvers.params.search import SearchParams
from tests.support.builders import build
from tests.support.builders.gang_builders import gang, racks
from tests.support.harness.family_rows import model
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import legal_target

FEATURES = ("racks", "pools", "power", "guarantees", "overcommit")

SEEDS = 300 if EVERY_SEED else 100
"""Of random instances."""


def relaxed(formulation, params=SearchParams()):
    """The linear relaxation's last answer, its bound without further rows, and with them."""
    budget, nothing = Budget(time.monotonic() + 20, params=params), np.zeros_like(formulation.upper)
    loose = milp.relax(replace(formulation, gang_covers=()), budget, nothing, lambda _: None)
    answer = milp.relax(formulation, budget, nothing, lambda _: None)
    return answer, loose.bound, answer.bound


def guess(formulation, draw):
    """Fractions at random: many gangs, and few jobs that leave to make way for them."""
    values = 0.3 * draw.random(len(formulation.upper)) * formulation.upper
    gangs = np.concatenate([each.gangs for each in formulation.gang_covers])
    values[gangs] = draw.random(len(gangs)) * formulation.upper[gangs]
    return values


@cache
def cuts_and_plans():
    """(formulation, rows likely or broken, values of a legal plan) of instances with gangs in one domain."""
    found = []
    for seed in range(SEEDS):
        instance = instances.everything(seed, features=FEATURES, share=0.7)
        problem = build_problem(instance.snapshot, instance.policy)
        x = Columns(problem)
        formulation = formulate(problem, x)
        if not formulation.gang_covers:
            continue
        draw = np.random.default_rng(seed)
        target = legal_target(instance.snapshot, instance.policy, problem, random.Random(seed))
        cuts = {cut for _ in range(10) for cut in formulation.broken(guess(formulation, draw))}
        cuts |= set(formulation.likely())
        found.append((formulation, sorted(cuts), encode(x, target)))
    return found


@pytest.mark.slow
def test_no_legal_plan_breaks_a_row_that_was_added():
    tally = Counter()
    for formulation, cuts, values in cuts_and_plans():
        stronger = formulation.strengthened(cuts)
        assert stronger.violated_rows(values) == ()
        tally["rows"] += len(cuts)
        tally["with gangs"] += any(values[each.gangs].any() for each in formulation.gang_covers)

    assert tally["rows"] >= 100, tally
    assert tally["with gangs"] >= 10, tally


@pytest.mark.slow
def test_rows_that_were_added_are_broken_by_what_they_were_added_for():
    for formulation, _, _ in cuts_and_plans():
        answer = guess(formulation, np.random.default_rng(0))
        gangs = formulation.gang_covers
        for number, chosen in formulation.broken(answer):
            if number >= len(gangs):
                continue
            row = gangs[number].row(("cut",), chosen)
            assert row.coefficients @ answer[row.columns] > row.upper


@pytest.mark.parametrize("part", ["likely", "broken"])
def test_gang_is_not_spread_over_the_cheapest_node_of_every_rack(monkeypatch, part):
    """Of each rack one node is free and one is held: a relaxation takes half a gang of each of them."""
    nodes = racks(2, 2)
    held = [
        build.job(f"old{rack}", gpus=8, weight=9, at=[build.replica(f"r{rack}n1", gpus=range(8))])
        for rack in range(2)
    ]
    snapshot = build.snapshot(nodes=nodes, jobs=[*held, gang("g", 2, required=Level.RACK, priority=1)])
    formulation = model(snapshot)[2]
    # Either kind of rows by itself is enough here.
    monkeypatch.setattr(GangCover, part, lambda *_: iter(()))
    # Smaller models do not begin with rows that are only likely to be broken.
    highs = HighsParams(many_columns_for_likely_covers=0)

    answer, loose, tight = relaxed(formulation, SearchParams(exact=ExactParams(highs=highs)))

    assert tight < loose
    assert exact_bound(formulation.strengthened(answer.cuts), answer.multipliers) >= tight - 1


def test_rows_begin_with_the_nodes_that_are_dearest_to_clear():
    """No job is on the first node, one of little weight on the second, one of much on the third."""
    held = [
        build.job(f"old{weight}", gpus=8, weight=weight, at=[build.replica(f"r0n{node}", gpus=range(8))])
        for node, weight in ((1, 1), (2, 9))
    ]
    wants = gang("g", 2, required=Level.RACK, priority=1)
    problem, _, formulation = model(build.snapshot(nodes=racks(3), jobs=[*held, wants]))

    names = [[problem.nodes[node].name for node in chosen] for _, chosen in formulation.likely()]

    # The gang would fit the two nodes beside the dearest: a row about that one would say nothing.
    assert names == [["r0n1", "r0n2"], ["r0n0", "r0n1", "r0n2"]]


@pytest.mark.parametrize("cuts", [((99, (0,)),), ((0, (99,)),), ((-1, (0,)),)])
def test_rows_that_do_not_follow_are_not_known(cuts):
    formulation = model(build.snapshot(nodes=racks(2), jobs=[gang("g", 2, required=Level.RACK)]))[2]

    assert formulation.has_cuts(((0, (0,)),))
    assert not formulation.has_cuts(cuts)
