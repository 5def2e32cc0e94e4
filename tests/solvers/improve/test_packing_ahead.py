"""A packing that another process makes while greedy plans: its proofs, when it is asked, when it is kept."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial

import pytest

from benchmarks.odd_cases import SHARES, OddCase, odd_snapshot
from benchmarks.sizes import SIZES, made_up
from gpuplan.models.gang import Gang
from gpuplan.models.plan.solution import DesiredState, StopReason
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import portfolio
from gpuplan.solvers.heuristics.greedy import greedy_by_priority
from gpuplan.solvers.improve import packing_ahead
from gpuplan.solvers.improve.odd_shares import PACK_ENTRY, Packing
from gpuplan.solvers.improve.packing_ahead import packs_ahead
from gpuplan.solvers.improve.packing_by_priority import pack_by_priority
from gpuplan.solvers.params.improve import ColumnGenerationParams
from gpuplan.solvers.params.search import SearchParams
from gpuplan.solvers.pipeline import GREEDY, LNS
from gpuplan.solvers.portfolio import Limits
from gpuplan.solvers.priority_stages import PriorityResults
from tests.support.builders import build
from tests.support.strategies.random_targets import judged

pytestmark = pytest.mark.slow

MANY = 1_200
LIMITS = Limits(60.0, ("milp",))


@cache
def shares(seed, nodes=25, jobs=MANY):
    """A snapshot, its problem and the check of its plans."""
    snapshot, policy = odd_snapshot(OddCase(SHARES, nodes, jobs), seed), Policy()
    return build_problem(snapshot, policy), partial(judged, snapshot, policy)


def packed(problem, seconds=60.0):
    found = []
    pack_by_priority(problem, (), replace(LIMITS, seconds=seconds).budget(1e12), found.append)
    return found[-1]


@pytest.mark.parametrize("seed", range(20, 26))
def test_plan_is_legal_and_brings_each_priority_what_is_proven(seed):
    problem, check = shares(seed)
    served = PriorityResults(problem, ())
    turns = greedy_by_priority(problem, ()).targets[problem.priorities[-1]]

    packing = packed(problem)

    verification, first = check(packing.target), problem.priorities[0]
    assert verification.violations == ()
    assert served.points(packing.target)[first] >= served.points(turns)[first]
    assert packing.bound >= verification.objective
    # Also with the time of a stage cut short, what is said to be the most for a priority is.
    alone = packed(replace(problem, classes=tuple(one for one in problem.classes if one.priority == first)))
    if first in packing.proven:
        assert served.points(packing.target)[first] >= served.points(alone.target)[first]
    assert served.points(packing.target)[first] <= alone.bound
    # The block model is 1 to 10 % above the optimum on these seeds.
    assert 1 - verification.objective / packing.bound < 0.005


def test_packing_takes_the_place_of_greedys_plan_and_brings_its_bound(monkeypatch):
    problem, check = shares(20)
    stages = ahead_here(monkeypatch)

    found = portfolio.solve(problem, (), replace(LIMITS, seconds=0.001), check)

    assert stages
    assert found.solver == LNS
    assert found.fallback is None
    assert found.objective > found.greedy_objective
    assert found.greedy_objective == check(greedy_by_priority(problem, ()).targets[0]).objective
    assert found.bound == stages[-1].bound
    assert [each.priority for each in found.stages] == [2]
    assert found.stages[0].proven == (2 in stages[-1].proven)


def test_a_packing_of_one_priority_is_asked_for_too(monkeypatch):
    problem, check = shares(20)
    one = replace(problem, classes=tuple(replace(each, priority=0) for each in problem.classes))
    stages = ahead_here(monkeypatch)

    found = portfolio.solve(one, (), replace(LIMITS, seconds=0.001), check)

    assert found.solver == LNS
    assert found.bound == stages[-1].bound
    assert found.stages == ()


@pytest.mark.parametrize("kind", ["broken", "worse", "none", "interrupted"])
def test_greedys_plan_stays_without_a_better_packing(monkeypatch, kind):
    problem, check = shares(21)

    @contextmanager
    def other(*_, **__):
        def wait():
            if kind == "interrupted":
                raise KeyboardInterrupt
            if kind == "none":
                return None
            if kind == "worse":
                return Packing(DesiredState(()), (2,), 0)
            good = packed(problem)
            # All on the GPU of the first: no GPU holds that much.
            site = good.target.placements[0].replicas
            crowded = tuple(replace_sites(each, site) for each in good.target.placements)
            return Packing(DesiredState(crowded), (2,), 1)

        yield wait

    monkeypatch.setattr(portfolio, "packing_ahead", other)

    found = portfolio.solve(problem, (), replace(LIMITS, seconds=0.001), check)

    assert found.solver == GREEDY
    assert found.objective == check(greedy_by_priority(problem, ()).targets[0]).objective
    assert found.bound > found.objective
    assert not any(each.proven for each in found.stages)
    assert (found.ended is StopReason.INTERRUPTED) == (kind == "interrupted")
    assert bool(found.rejected) == (kind == "broken")


def test_in_a_process_of_its_own_it_is_the_same():
    problem, check = shares(22)

    found = portfolio.solve(problem, (), replace(LIMITS, stop_gap=0.02), check)

    assert found.solver == LNS
    assert found.objective >= check(packed(problem).target).objective


def test_a_packing_that_breaks_is_told_and_leaves_the_search_as_it_is(monkeypatch, caplog):
    problem, check = shares(22)
    monkeypatch.setattr(packing_ahead, "PACK_ENTRY", f"{PACK_ENTRY}_of_no_kind")

    found = portfolio.solve(problem, (), replace(LIMITS, stop_gap=0.5), check)

    assert found.objective > 0
    assert [each for each in caplog.messages if each.startswith("phase=pack broke=there why=ended with code")]


def test_without_plain_jobs_there_is_no_packing():
    several = {"gang": Gang(minimum=1, maximum=2)}
    jobs = [build.job(f"j{at}", milli=370).model_copy(update=several) for at in range(3)]
    problem = build_problem(build.snapshot(jobs=jobs), Policy())
    assert problem.classes
    found = []

    pack_by_priority(problem, (), LIMITS.budget(1e12), found.append)

    assert found == []


def test_it_is_asked_only_if_packing_is_the_decision():
    problem, _ = shares(20)
    few, _ = shares(20, 2, 100)
    usual = build_problem(made_up(SIZES["S"], 0).canonical(), Policy())
    whole = replace(
        problem, classes=tuple(each for each in problem.classes if not each.shape.gpu_milli % 500)
    )
    off = SearchParams(column_generation=ColumnGenerationParams(enabled=False))

    assert packs_ahead(problem, LIMITS)
    assert not packs_ahead(few, LIMITS)
    assert not packs_ahead(whole, LIMITS)
    assert not packs_ahead(problem, Limits(60.0, ()))
    assert not packs_ahead(problem, Limits(60.0, ("milp",), ticks=5))
    assert not packs_ahead(problem, replace(LIMITS, params=off))
    assert usual.incumbents
    assert not packs_ahead(replace(problem, incumbents=usual.incumbents), LIMITS)
    assert usual.guarantees
    assert not packs_ahead(replace(problem, guarantees=usual.guarantees), LIMITS)


def ahead_here(monkeypatch):
    """Pack in this process; returns the packings."""
    made = []

    @contextmanager
    def here(problem, running, limits, *, began, posed):
        def wait():
            pack_by_priority(problem, running, replace(limits, seconds=60.0).budget(1e12), made.append)
            return made[-1]

        yield wait

    monkeypatch.setattr(portfolio, "packing_ahead", here)
    return made


def replace_sites(placement, replicas):
    return placement.model_copy(update={"replicas": replicas[:1] * len(placement.replicas)})
