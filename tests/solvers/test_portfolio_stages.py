"""Stages of priorities: what they share, when the first plan is there, and what ends them."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

import pytest

from benchmarks.sizes import SIZES, made_up
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.plan.solution import SolveStatus, StopReason
from gpuplan.models.policy.policy import Policy, PriorityOrder, PriorityPolicy
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run, pipeline, portfolio, shared_model, solver_child
from gpuplan.solvers.heuristics import greedy as heuristic
from gpuplan.solvers.heuristics.greedy import greedy_by_priority
from gpuplan.solvers.incumbent import STOPPED_RELAXATION, EpochSearch
from gpuplan.solvers.params.exact import ExactParams, SolverChildParams
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.params.search import PortfolioParams, SearchParams
from gpuplan.solvers.portfolio import Limits
from gpuplan.solvers.targets.to_target import target_of
from gpuplan.solvers.worker import ChildOutcome
from tests.support.builders import build
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.harness.portfolio_answers import answer
from tests.support.strategies.random_targets import judged

POLICY = build.by_value(priority=PriorityPolicy(order=PriorityOrder.TIERS))
BY_WEIGHT = build.by_value(priority=build.BY_WEIGHT)
APART = SearchParams(exact=ExactParams(child=SolverChildParams(few_choices=0)))
"""Every stage in a worker."""


def crowded():
    """At each priority a job of one GPU and one of two want the same node: no relaxation proves a plan."""
    models = ("H100-80GB", "A100-80GB", "L40S")
    nodes = [build.node(f"n{at}", gpus=2, model=model) for at, model in enumerate(models)]
    jobs = [
        build.job(f"{name}-{at}", gpus=gpus, priority=3 - at, waited=waited, gpu_models={model: 1.0})
        for at, model in enumerate(models)
        for name, gpus, waited in (("small", 1, timedelta(hours=40)), ("large", 2, timedelta(0)))
    ]
    return build.snapshot(nodes=nodes, jobs=jobs)


def run(watch=None, *, seconds=60.0, solvers=("milp",), ticks=5, params=APART, policy=POLICY):
    snapshot = crowded()
    limits = Limits(seconds, solvers, ticks=ticks, params=params)
    check = partial(judged, snapshot, policy)
    return portfolio.solve(build_problem(snapshot, policy), (), limits, check, watch)


@pytest.mark.parametrize("fits", [True, False])
def test_stages_build_one_model_and_one_each_without(monkeypatch, fits):
    """As a worker does that holds the model, and one that was started anew."""
    built = []

    def counting(problem, params):
        built.append(problem)
        return Columns(problem, params)

    monkeypatch.setattr(shared_model, "Columns", counting)
    monkeypatch.setattr(solver_child, "Columns", counting)
    if not fits:
        monkeypatch.setattr(portfolio, "stage_part", lambda *_: None)
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)

    solution = run()

    assert solution.status is SolveStatus.OPTIMAL
    assert [each.proven for each in solution.stages] == [True, True]
    assert len(built) == (1 if fits else 3)


def test_worker_loads_and_builds_before_greedy_plans(monkeypatch):
    order = []
    plans = portfolio.greedy_by_priority

    def planning(*arguments, **more):
        order.append("greedy")
        return plans(*arguments, **more)

    monkeypatch.setattr(portfolio, "greedy_by_priority", planning)
    monkeypatch.setattr(portfolio, "load_ahead", lambda entry, *_: order.append(entry))
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)

    run(params=SearchParams(portfolio=PortfolioParams(choices_to_load_ahead=0)))

    assert order == [exact_run.SOLVE_ENTRY, shared_model.HOLD_ENTRY, solver_child.RELAXATION_ENTRY, "greedy"]


def test_a_plan_of_all_priorities_is_shown_before_any_solver_runs(monkeypatch):
    shown = []

    def asked(*arguments):
        assert shown[0].objective is not None
        return apart_in_this_process(*arguments)

    monkeypatch.setattr(exact_run, "run_in_child", asked)

    solution = run(shown.append)

    assert shown[0] == solution.milestones[0]
    assert shown[0].objective <= solution.objective


def test_an_interruption_ends_all_stages_with_jobs_of_all_priorities(monkeypatch):
    asked = []

    def interrupted(*arguments):
        asked.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(exact_run, "run_in_child", interrupted)

    solution = run()

    assert len(asked) == 1
    assert (solution.ended, solution.status) == (StopReason.INTERRUPTED, SolveStatus.FEASIBLE)
    ceiling = build_problem(crowded(), POLICY).ceiling
    assert solution.objective <= solution.bound < ceiling
    assert {placement.job[-1] for placement in solution.target.placements} == {"0", "1", "2"}


def test_a_second_interruption_ends_the_bound_and_keeps_the_plan(monkeypatch):
    asked = []

    def interrupted(*arguments):
        asked.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(exact_run, "run_in_child", interrupted)
    monkeypatch.setattr(exact_run, "relaxed_bound", interrupted)

    solution = run()

    assert len(asked) == 2
    assert (solution.ended, solution.status) == (StopReason.INTERRUPTED, SolveStatus.FEASIBLE)
    assert {placement.job[-1] for placement in solution.target.placements} == {"0", "1", "2"}


@pytest.mark.slow
def test_no_solver_gets_the_little_time_that_another_has_left(monkeypatch):
    asked = []

    def takes_nearly_all(entry, arguments, seconds, listen):
        asked.append(arguments[0].solver)
        time.sleep(0.95 * seconds)
        return ChildOutcome(killed=True)

    monkeypatch.setattr(exact_run, "run_in_child", takes_nearly_all)
    monkeypatch.setattr(pipeline, "_run_lns", lambda _: None)

    run(seconds=4.0, solvers=("milp", "cpsat"), ticks=None, policy=BY_WEIGHT)

    assert asked
    assert set(asked) == {"gpuplan.solvers.exact.milp:solve"}


def test_a_relaxation_that_was_stopped_leaves_the_time_for_a_bound():
    """L on a busy machine: the multipliers so far proved 63 %, those found in the time kept back 6 %."""
    snapshot = crowded()
    limits = Limits(60.0, ("milp",), reserved_for_bound=5.0)
    search = EpochSearch(build_problem(snapshot, POLICY), (), limits, partial(judged, snapshot, POLICY))
    left = search.deadline

    search.add_bound(STOPPED_RELAXATION, search.bound - 1)

    assert (search.has_dual_bound, search.deadline) == (False, left)
    search.add_bound("relaxation's multipliers", search.bound)
    assert (search.has_dual_bound, search.deadline) == (True, left + 5.0)


@pytest.mark.parametrize(("proven", "stopped"), [(False, True), (True, False)])
def test_a_solver_may_use_the_time_for_a_bound_once_it_has_proven_one(monkeypatch, proven, stopped):
    """XL: 8 to 11 of the 25 s that the last stage needs were kept back for a bound that was there."""
    snapshot, raised = crowded(), []
    limits = Limits(60.0, ("milp",), reserved_for_bound=25.0, params=APART)
    search = EpochSearch(build_problem(snapshot, POLICY), (), limits, partial(judged, snapshot, POLICY))

    def asked(_entry, _question, seconds, listen):
        assert seconds > 35.0
        if proven:
            search.add_bound("relaxation's multipliers", search.bound - 1)
        search.began -= 40.0
        try:
            listen(None)
        except exact_run.BoundTooLateError:
            raised.append(True)
            raise
        return ChildOutcome(killed=True)

    monkeypatch.setattr(exact_run, "run_in_child", asked)

    assert not exact_run.ExactRun(search, "milp").run()
    assert bool(raised) is stopped
    assert ("no bound in time" in search.failures[0][1]) is stopped


@pytest.mark.parametrize(("for_bound", "stages"), [(0.0, 3), (4.5, 1), (5.0, 1)])
def test_a_stage_that_no_solver_can_end_in_its_time_leaves_it_to_the_last_one(monkeypatch, for_bound, stages):
    seen = []
    solve_stage = portfolio.solve_stage

    def noted(problem, *arguments, **more):
        seen.append(problem.floors)
        return solve_stage(problem, *arguments, **more)

    monkeypatch.setattr(portfolio, "solve_stage", noted)
    monkeypatch.setattr(exact_run, "run_in_child", lambda *_: ChildOutcome(killed=True))
    monkeypatch.setattr(pipeline, "_run_lns", lambda _: None)
    snapshot = crowded()
    problem, check = build_problem(snapshot, POLICY), partial(judged, snapshot, POLICY)
    limits = Limits(30.0, ("milp",), reserved_for_bound=for_bound, params=APART)

    solution = portfolio.solve(problem, (), limits, check)

    assert len(seen) == stages
    assert seen[-1] == tuple((stage.priority, stage.points) for stage in solution.stages)
    assert [stage.priority for stage in solution.stages] == [3, 2]
    assert all(stage.points > 0 and not stage.proven for stage in solution.stages)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 5, 6])
def test_greedys_last_plan_for_guarantees_is_not_ruled_out_by_its_earlier_ones(seed):
    """Exchanges for guarantees come last, and give up points that floors of the earlier turns would keep."""
    snapshot, policy = made_up(SIZES["S"], seed).canonical(), Policy()
    problem, check = build_problem(snapshot, policy), partial(judged, snapshot, policy)
    running = snapshot.running_placements
    turns = greedy_by_priority(problem, running, thorough=True).targets

    found = portfolio.solve(problem, running, Limits(60.0, (), ticks=1), check)

    assert found.objective >= check(turns[problem.priorities[-1]]).objective


@pytest.mark.slow
@pytest.mark.parametrize(("for_bound", "compared"), [(0.0, 1), (60.0, 0)])
def test_greedys_plans_of_stages_are_compared_only_if_a_stage_is_taken(monkeypatch, for_bound, compared):
    """200 queues, seed 4: the comparison took 19 s of CPU, and the plans were not used."""
    seen = []

    def compared_plans(problem, running, plans, *_):
        seen.append(problem)
        return dict(plans)

    monkeypatch.setattr(portfolio, "with_last_plan_where_better", compared_plans)
    snapshot, policy = made_up(SIZES["S"], 0).canonical(), Policy()
    problem, check = build_problem(snapshot, policy), partial(judged, snapshot, policy)
    limits = Limits(60.0, (), reserved_for_bound=for_bound)

    found = portfolio.solve(problem, snapshot.running_placements, limits, check)

    assert len(found.stages) == 2
    assert len(seen) == compared


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4])
def test_greedys_plans_of_earlier_turns_are_those_that_it_goes_back_to(seed):
    """They are noted when the turn ends, with parts that the later ones use again."""
    snapshot = made_up(SIZES["S"], seed).canonical()
    problem, running = build_problem(snapshot, Policy()), snapshot.running_placements
    order, params = heuristic.greedy_orders(problem)[0], PlacementParams()

    noted = heuristic._plan(problem, order, None, params, running=running).targets
    done = heuristic._plan(problem, order, None, params)
    found = {}
    for priority, mark in reversed(list(zip(problem.priorities[:-1], done.marks, strict=False))):
        done.ledger.undo.rollback(mark)
        found[priority] = target_of(done.ledger, running)

    assert noted == found
    first, second = noted.values()
    assert first != second


def test_a_guarantee_does_not_take_a_promised_start_back():
    """In the turn of higher priorities it looked like an early one that a guarantee needs no more."""
    promise = {"start": build.NOW, "replicas": (build.replica("n0", gpus=range(4)),)}
    low = build.job("low", gpus=4, promise=promise)
    jobs = [low, build.job("high", gpus=4, priority=5, queue="owed")]
    queues = [build.queue(), build.queue("owed", nominal=4, guarantee=4)]
    snapshot = build.snapshot(nodes=build.cluster(1, gpus=4), jobs=jobs, queues=queues)
    policy = POLICY.model_copy(update={"horizon": HorizonPolicy(slots=2)})

    solution = answer(snapshot, policy, solvers=())

    assert [each.job for each in solution.target.placements] == ["low"]


def test_a_starving_job_of_low_priority_does_not_keep_all_others_waiting():
    """With later starts its own is booked before all others; every plan around it broke the order."""
    low = build.job("low", gpus=4, waited=timedelta(days=8))
    jobs = [low, build.job("high", gpus=4, priority=5)]
    snapshot = build.snapshot(nodes=build.cluster(1, gpus=4), jobs=jobs)
    policy = POLICY.model_copy(update={"horizon": HorizonPolicy(slots=2)})

    solution = answer(snapshot, policy, solvers=())

    assert [each.job for each in solution.target.placements] == ["low"]
