"""
Every bound there is, against the best of all plans: none may be below it.

The best plan comes from trying everything and asking the verifier, so that no bound is judged by what it is
made of. Bounds of the formulation are valued with the verifier's objective of doing nothing in them; the
problem's ceiling is a difference to it.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections import Counter

import numpy as np
import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.dual_bound import exact_bound
from gpuplan.solvers.exact import cpsat, milp
from gpuplan.solvers.interface import Budget
from tests.support.builders import build
from tests.support.oracles import exhaustive_schedules
from tests.support.oracles.brute_force import TooLargeError, best_of_all, offered
from tests.support.oracles.relaxation_duals import duals
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged, nothing_changed
from tests.support.strategies.schedule_instances import timely

pytestmark = pytest.mark.slow

CHUNKS, SEEDS = (4, 250) if EVERY_SEED else (1, 8)
"""Instances a chunk of each sort: of this instant alone, and of several slots."""


def proven(solver, formulation, **limits):
    """The bound that an exact solver claims."""
    nothing = np.zeros_like(formulation.upper)
    return solver.solve(formulation, Budget(time.monotonic() + 60, **limits), nothing, lambda _: None).bound


def noisy(formulation):
    draw = random.Random(len(formulation.upper))
    _, multipliers = duals(formulation)
    return exact_bound(formulation, multipliers * [draw.uniform(0.5, 1.5) for _ in multipliers])


BOUNDS = {
    "certificate": lambda formulation: exact_bound(formulation, duals(formulation)[1]),
    "certificate, stopped": lambda formulation: exact_bound(formulation, duals(formulation, iterations=3)[1]),
    "certificate, noisy": noisy,
    "certificate, no multipliers": lambda formulation: exact_bound(
        formulation, np.zeros(len(formulation.rows))
    ),
    "milp": lambda formulation: proven(milp, formulation),
    "milp, stopped": lambda formulation: proven(milp, formulation, ticks=0.01),  # one node
    "cpsat": lambda formulation: proven(cpsat, formulation),
}


def instant_world(seed, make=instances.tiny):
    """(best objective, objective of doing nothing, ceiling, formulation) of an instance of one slot."""
    instance = make(seed)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    best = best_of_all(snapshot, policy, fates=offered(problem)).objective
    nothing = judged(snapshot, policy, nothing_changed(snapshot)).objective
    return best, nothing, problem.ceiling, formulate(problem, Columns(problem))


def cpu_limited_world(seed):
    """The same with quotas of CPU cores and memory."""
    return instant_world(seed, instances.cpu_limited(instances.tiny))


def timed_world(seed):
    """The same of an instance of several slots."""
    world = timely(seed)
    problem = build_problem(world.snapshot, world.policy)
    stopping = {each.job for each in problem.incumbents if each.stop_points is not None}
    _, best = exhaustive_schedules.best_schedule(world.snapshot, world.policy, stopping=stopping)
    nothing = exhaustive_schedules.judged(
        world.snapshot, world.policy, nothing_changed(world.snapshot)
    ).objective
    return best, nothing, problem.ceiling, formulate(problem, Columns(problem))


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("world", [instant_world, cpu_limited_world, timed_world])
def test_no_bound_is_below_the_best_plan(world, chunk):
    tally = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        try:
            best, nothing, ceiling, formulation = world(seed)
        except (TooLargeError, exhaustive_schedules.TooLargeError):
            continue
        assert nothing + ceiling >= best, seed
        value, multipliers = duals(formulation)
        assert exact_bound(formulation, multipliers) == math.floor(value + 1e-6), seed
        forgetful = without_its_dearest_start(formulation)
        for name, bound_of in BOUNDS.items():
            bound = bound_of(formulation)
            assert bound is None or bound + formulation.constant >= best, (seed, name)
            tally[name, "claimed"] += bound is not None
            # A bound that forgets something is too low somewhere: the check above can fail. Once is enough.
            if forgetful is not None and not tally[name, "noticed"]:
                false = bound_of(forgetful)
                tally[name, "noticed"] += false is not None and false + formulation.constant < best
        tally["better than nothing"] += best > nothing
        tally["all"] += 1
    assert tally["all"] >= SEEDS // 2, tally
    assert tally["better than nothing"] >= tally["all"] // 3, tally
    for name in BOUNDS:
        assert tally[name, "claimed"] >= tally["all"] // 2, (name, tally)
        assert tally[name, "noticed"] >= 1, (name, tally)


def without_its_dearest_start(formulation):
    """The formulation that lacks the column worth most; None if nothing would be left to satisfy its rows."""
    if not len(formulation.upper):
        return None
    upper = formulation.upper.copy()
    upper[int(np.argmax(formulation.objective))] = 0
    without = dataclasses.replace(formulation, upper=upper)
    return without if without.violated_rows(np.zeros_like(upper)) == () else None


def shared_and_elastic(seed):
    """A world of GPUs that elastic jobs share, and jobs that want them whole."""
    draw = random.Random(seed)
    nodes = [build.node(f"n{each}", gpus=draw.choice((1, 1, 2))) for each in range(2)]
    free = {(node.name, gpu): 1000 for node in nodes for gpu in range(node.gpu_count)}
    jobs = []
    for number in range(draw.choice((1, 2))):
        milli, places = draw.choice((500, 500, 250, 300)), []
        for _ in range(draw.randint(1, 4)):
            if room := [each for each, left in free.items() if left >= milli]:
                places.append(draw.choice(room))
                free[places[-1]] -= milli
        if places:
            at = [build.replica(node, gpus=(gpu,), milli=milli) for node, gpu in sorted(places)]
            sizes = (draw.randint(1, len(places)), len(places) + draw.choice((0, 0, 1)))
            more = {"priority": draw.choice((0, 0, 2)), "preemptible": draw.random() < 0.8}
            jobs.append(build.job(f"running-{number}", milli=milli, replicas=sizes, at=at, **more))
    for number in range(draw.choice((1, 2))):
        asked = (
            {"gpus": draw.choice((1, 1, 2))} if draw.random() < 0.7 else {"milli": draw.choice((500, 700))}
        )
        more = {"priority": draw.choice((0, 5)), "weight": draw.choice((1.0, 5.0))}
        jobs.append(build.job(f"waiting-{number}", **asked, **more))
    return build.snapshot(nodes=nodes, jobs=jobs).canonical()


def test_no_bound_is_below_the_best_plan_of_jobs_that_give_up_shares():
    tried, policy = 0, build.by_value(priority=build.BY_WEIGHT)
    for seed in range(250 if EVERY_SEED else 30):
        snapshot = shared_and_elastic(seed)
        problem = build_problem(snapshot, policy)
        try:
            best = best_of_all(snapshot, policy, fates=offered(problem)).objective
        except TooLargeError:
            continue
        tried += 1
        formulation = formulate(problem, Columns(problem))
        for name in ("certificate", "milp"):
            bound = BOUNDS[name](formulation)
            assert bound is not None
            assert bound + formulation.constant >= best, (seed, name)
    assert tried > (40 if EVERY_SEED else 24)
