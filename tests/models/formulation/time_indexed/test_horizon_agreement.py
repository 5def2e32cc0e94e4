"""
The horizon's rows, the verifier and every schedule there is agree about small random instances.

The schedules come from trying everything; the verifier says which are legal and what they are worth.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import Budget
from tests.support.builders import build
from tests.support.oracles import exhaustive_schedules
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.schedule_instances import FEATURES, limited_by_cores, timely

pytestmark = pytest.mark.slow

SEEDS, OF_EACH = 60 if EVERY_SEED else 40, 40


@cache
def worlds():
    """(seed, snapshot, policy, problem, columns, formulation) of every instance that is small enough."""
    found = []
    for seed in range(SEEDS):
        world = limited_by_cores(timely(seed)) if seed % 2 else timely(seed)
        problem = build_problem(world.snapshot, world.policy)
        x = Columns(problem)
        found.append((seed, world, problem, x, formulate(problem, x)))
    return found


@cache
def legal():
    """(seed, formulation, values, the verifier's answer, target) of legal schedules of all instances."""
    found = []
    for seed, world, problem, x, formulation in worlds():
        offered = [each.job for each in problem.incumbents if each.stop_points is not None]
        resuming = (each for each in _targets(world, offered) if _resumed(world, each))
        for targets in (_targets(world, ()), resuming):
            judged = (
                (target, exhaustive_schedules.judged(world.snapshot, world.policy, target))
                for target in targets
            )
            kept = (each for each in judged if not each[1].violations)
            for target, verification in itertools.islice(kept, OF_EACH):
                found.append((seed, formulation, encode(x, target), verification, target))
    return found


def _targets(world, stopping):
    """As many of all schedules as there may be."""
    with contextlib.suppress(exhaustive_schedules.TooLargeError):
        yield from exhaustive_schedules.every_schedule(world.snapshot, world.policy, stopping=stopping)


def _resumed(world, target):
    """How many jobs that run now start again later."""
    return sum(world.snapshot.job_by_name[each.job].running is not None for each in target.planned)


def optimum(formulation):
    hint = np.zeros_like(formulation.upper)
    return cpsat.solve(formulation, Budget(time.monotonic() + 20), hint, lambda _: None).bound


def test_every_legal_schedule_satisfies_the_rows_and_is_valued_as_the_verifier_does():
    seen = Counter()
    for seed, formulation, values, verification, target in legal():
        assert formulation.violated_rows(values) == (), (seed, target)
        assert (values <= formulation.upper).all(), seed
        assert formulation.points(values) == verification.objective, (seed, target, verification.terms)
        seen.update(verification.terms.keys())
        seen["planned"] += len(target.planned)
        seen["resumed"] += sum(each.job.startswith("run-") for each in target.planned)
    assert (
        min(seen[name] for name in ("completion", "deadlines", "tariffs", "planned", "resumed")) > SEEDS // 3
    ), seen


def test_optimum_of_the_model_is_that_of_all_schedules_or_a_bound():
    equal, tried, features = 0, 0, Counter()
    for seed, world, problem, _, formulation in worlds():
        offered = {each.job for each in problem.incumbents if each.stop_points is not None}
        try:
            best = exhaustive_schedules.best_schedule(world.snapshot, world.policy, stopping=offered)
        except exhaustive_schedules.TooLargeError:
            continue
        bound = optimum(formulation)
        assert bound >= best[1], seed
        equal += bound == best[1]
        tried += 1
        features.update(world.features)
    assert equal >= tried * 8 // 10, (equal, tried)
    assert min(features[feature] for feature in FEATURES) >= 5, features


def test_row_of_the_horizon_that_is_too_tight_is_noticed():
    def tighter(row):
        if row.upper is not None:
            return dataclasses.replace(row, upper=row.upper - 1)
        return dataclasses.replace(row, lower=row.lower + 1)

    names = {str(row.key[0]) for _, _, _, _, formulation in worlds() for row in formulation.rows}
    noticed = {
        str(row.key[0])
        for _, formulation, values, _, _ in legal()
        for row in formulation.rows
        if row.family == "horizon" and not tighter(row).holds(values)
    }

    assert {"once", "there", "after", "together", "queues", "resumed", "blocks of 1"} <= noticed & names


@pytest.mark.parametrize("name", ["once", "blocks of", "after", "together", "queues", "resumed"])
def test_rows_of_the_horizon_that_are_missing_are_noticed(name):
    def without(formulation):
        rows = tuple(row for row in formulation.rows if not str(row.key[0]).startswith(name))
        return dataclasses.replace(formulation, rows=rows)

    assert any(
        optimum(without(formulation)) > optimum(formulation)
        for _, _, _, _, formulation in worlds()
        if any(str(row.key[0]).startswith(name) for row in formulation.rows)
    )


def test_quotas_of_cpu_cores_admit_the_schedules_that_quotas_of_gpus_admit():
    """With a core for each GPU."""
    bound = 0
    for seed in range(SEEDS):
        world = timely(seed, share=0.6)
        if "quota" not in world.features:
            continue
        other = limited_by_cores(world)
        free = dataclasses.replace(
            world, snapshot=world.snapshot.model_copy(update={"queues": (build.queue(),)})
        )
        of_gpus, of_cores, of_none = (
            optimum(formulate(problem, Columns(problem)))
            for problem in (build_problem(each.snapshot, each.policy) for each in (world, other, free))
        )
        assert of_gpus == of_cores, seed
        bound += of_gpus < of_none
    assert bound >= 5
