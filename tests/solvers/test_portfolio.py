"""Whatever an exact solver does, the plan is verified, in time, and says what happened."""

from __future__ import annotations

import io
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from gpuplan.models.plan.solution import DesiredState, SolveStatus, StopReason
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.policy import Policy, PriorityOrder, PriorityPolicy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import SOLVERS, exact_run, pipeline, portfolio, solver_child
from gpuplan.solvers.incumbent import EpochSearch
from gpuplan.solvers.params.search import PortfolioParams, SearchParams
from gpuplan.solvers.pipeline import solve_stage
from gpuplan.solvers.portfolio import Limits, solve
from gpuplan.solvers.worker import ChildOutcome
from gpuplan.solvers.worker_process import read_messages
from tests.support.builders import build
from tests.support.doubles.broken_solvers import __name__ as doubles
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.samples.greedy_gap import POLICY, contested, judged
from tests.support.strategies import random_targets

pytestmark = pytest.mark.processes


def run(snapshot, *, solvers=("milp",), seconds=10.0, check=None, began=None, many=5_000, **more):
    check = check or partial(judged, snapshot)
    limits = Limits(seconds, solvers, **more, params=SearchParams(portfolio=PortfolioParams(many_nodes=many)))
    return solve(build_problem(snapshot, POLICY), snapshot.running_placements, limits, check, began=began)


def use(monkeypatch, name, double):
    monkeypatch.setitem(SOLVERS, name, f"{doubles}:{double}")


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["milp", "cpsat"])
def test_exact_solver_beats_greedy_and_proves_it(solver):
    snapshot = contested()

    solution = run(snapshot, solvers=(solver,))

    assert solution.status is SolveStatus.OPTIMAL
    assert solution.gap == 0
    assert solution.solver == solver
    assert (solution.greedy_objective, solution.objective) == (300, 400)
    assert solution.fallback is None
    assert judged(snapshot, solution.target).violations == ()


def test_greedy_alone_is_optimal_when_everything_fits():
    snapshot = build.snapshot(jobs=[build.job("a", gpus=8)])

    solution = run(snapshot)

    assert (solution.status, solution.solver, solution.gap) == (SolveStatus.OPTIMAL, "greedy", 0)
    assert "solve" not in solution.phases


def test_without_solvers_the_plan_is_greedys_and_no_fallback():
    solution = run(contested(), solvers=())

    assert solution.solver == "greedy"
    assert solution.status is SolveStatus.FEASIBLE
    assert solution.fallback is None
    # Of the linear relaxation, not the value of all jobs.
    assert solution.bound == 500 < 300 + 400


@pytest.mark.slow
def test_missing_module_is_a_reason(monkeypatch):
    monkeypatch.setitem(SOLVERS, "milp", "gpuplan.solvers.not_installed:solve")

    solution = run(contested())

    assert "No module named 'gpuplan.solvers.not_installed'" in solution.fallback.reason


def test_solver_does_not_import_from_the_users_folder(monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)

    assert run(contested()).solver == "milp"


@pytest.mark.parametrize("said", [b"License ok\n", b"cfoo\nbar\n.", b"\x80", b"("])
def test_bytes_that_are_no_answer_are_no_answer(said):
    assert list(read_messages(io.BytesIO(said))) == []


@pytest.mark.slow
def test_next_solver_in_the_chain_answers_for_one_that_crashed(monkeypatch):
    use(monkeypatch, "milp", "crash")

    solution = run(contested(), solvers=("milp", "cpsat"), seconds=60.0)

    assert solution.solver == "cpsat"
    assert solution.status is SolveStatus.OPTIMAL
    assert (solution.fallback.tried, solution.fallback.used) == ("milp", "cpsat")


def test_no_time_for_an_exact_solver_leaves_greedys_plan():
    solution = run(contested(), seconds=0.0)

    assert solution.solver == "greedy"
    assert solution.fallback.reason.startswith("milp: no time left of 0 s")


def test_a_safety_stop_is_not_told_as_the_time_limit():
    """With deterministic work the limit here is ten times that of the policy."""
    solution = run(contested(), seconds=0.0, ticks=1)

    assert solution.fallback.reason == "milp: no time left of 0 s, the safety stop"


@pytest.mark.slow
def test_an_answer_that_misses_a_floor_is_not_said_to_score_less():
    snapshot = contested()
    check = partial(judged, snapshot)

    problem, limits = build_problem(snapshot, POLICY), Limits(10.0, ("milp",))
    solution = solve_stage(
        problem, (), limits, check, None, began=time.monotonic(), keeps=lambda target: False
    )

    assert solution.fallback.reason.endswith("left a higher priority less than this one")


@pytest.mark.slow
def test_empty_answer_is_filled_up_and_refined(monkeypatch):
    use(monkeypatch, "milp", "empty")

    solution = run(contested())

    assert solution.solver == "milp"
    assert solution.objective == 400 > solution.greedy_objective


@pytest.mark.slow
def test_solver_without_a_bound_leaves_that_of_the_configurations(monkeypatch):
    use(monkeypatch, "milp", "no_bound")

    solution = run(contested())

    assert solution.objective == solution.bound == 400
    assert solution.status is SolveStatus.OPTIMAL


@pytest.mark.slow
def test_plan_that_breaks_a_rule_is_rejected_and_recorded():
    """A verifier that dislikes whatever the exact solver proposes: greedy's plan stands."""
    snapshot = contested()
    honest = partial(judged, snapshot)
    greedy = run(snapshot, solvers=())
    strict = build.snapshot(nodes=[build.node(gpus=1)], jobs=snapshot.jobs)

    def check(target):
        known = target.placements in ((), greedy.target.placements)
        return honest(target) if known else judged(strict, target)

    solution = run(snapshot, check=check)

    assert solution.target == greedy.target
    assert solution.fallback.reason == "milp: its plan broke a rule"
    assert solution.rejected[0].solver == "milp"
    assert solution.rejected[0].violations


def indebted():
    """A queue that is owed two GPUs and gets one: the plan's objective is below 0 whatever is done."""
    jobs = [build.job(name, gpus=1) for name in "ab"]
    queue = build.queue("q", nominal=4, guarantee=2)
    return build.snapshot(nodes=[build.node(gpus=1)], jobs=jobs, queues=[queue])


def test_bound_counts_what_is_missing_anyway():
    snapshot = indebted()

    greedy, solved = run(snapshot, solvers=()), run(snapshot)

    assert greedy.objective == solved.objective == 100 - 100_000
    assert greedy.bound == 100 - 100_000 < -200_000 + build_problem(snapshot, POLICY).ceiling == 200
    assert (solved.bound, solved.status) == (solved.objective, SolveStatus.OPTIMAL)


def test_leaving_all_as_it_is_may_be_the_best_there_is():
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[build.job("a", gpus=9)])

    solution = run(snapshot, solvers=())

    assert solution.target == DesiredState(())
    assert solution.objective == 0


def test_greedys_plan_that_breaks_a_rule_leaves_all_as_it_is():
    snapshot = contested()
    full = build.snapshot(nodes=[build.node(gpus=0)], jobs=snapshot.jobs)

    solution = run(snapshot, solvers=(), check=partial(judged, full))

    assert (solution.solver, solution.target) == ("none", DesiredState(()))
    assert solution.rejected[0].solver == "greedy"


def test_a_plan_of_higher_priorities_stands_if_all_later_ones_break_a_rule():
    """A verifier that dislikes the job of lower priority, as if greedy had been cut short by the clock."""
    jobs = [build.job("high", gpus=1, priority=1), build.job("low", gpus=1)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs)
    without = build.snapshot(nodes=build.cluster(1), jobs=jobs[:1])
    policy = build.by_value(priority=PriorityPolicy(order=PriorityOrder.TIERS))

    def check(target):
        liked = all(placement.job == "high" for placement in target.placements)
        return random_targets.judged(snapshot if liked else without, policy, target)

    problem = build_problem(snapshot, policy)
    solution = solve(problem, (), Limits(10.0, (), params=SearchParams()), check)

    assert [placement.job for placement in solution.target.placements] == ["high"]
    assert solution.objective == solution.greedy_objective == check(solution.target).objective
    assert solution.rejected[0].solver == "greedy"


def test_greedys_plan_of_a_stage_is_not_made_again_after_a_stage_with_a_better_one(monkeypatch):
    jobs = [
        build.job("dense", gpus=1, priority=1, weight=1.5),
        build.job("wide", gpus=2, priority=1),
        build.job("low", gpus=1),
    ]
    snapshot = build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs)
    policy = build.by_value(priority=PriorityPolicy(order=PriorityOrder.TIERS))

    def again(*_, **__):
        raise AssertionError

    monkeypatch.setattr(pipeline, "greedy", again)
    check = partial(random_targets.judged, snapshot, policy)
    solution = solve(build_problem(snapshot, policy), (), Limits(10.0, ("milp",)), check)

    assert [placement.job for placement in solution.target.placements] == ["wide"]
    assert (solution.status, solution.objective, solution.greedy_objective) == (SolveStatus.OPTIMAL, 400, 400)


def test_the_objective_of_changing_nothing_is_the_verifiers_even_where_it_is_not_allowed():
    snapshot = contested()
    full = build.snapshot(nodes=[build.node(gpus=0)], jobs=snapshot.jobs)
    check = partial(judged, full)

    def dislikes_all(target):
        violation = Violation(Rule.PROMISES, "job a", "no start", "its promised start")
        return replace(check(target), violations=(*check(target).violations, violation))

    solution = run(snapshot, solvers=(), check=dislikes_all)

    assert (solution.solver, solution.objective) == ("none", check(DesiredState(())).objective)


def test_plan_the_model_has_no_column_for_is_no_hint_and_no_end(monkeypatch):
    encode = solver_child.encode

    def only_doing_nothing(x, target):
        if target.placements:
            raise KeyError("no such column")
        return encode(x, target)

    monkeypatch.setattr(solver_child, "encode", only_doing_nothing)
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)

    assert run(contested()).solver == "milp"


@pytest.mark.slow
def test_solver_that_begins_while_greedy_plans_reaches_the_optimum():
    solution = run(contested(), seconds=30.0, many=0)

    assert (solution.greedy_objective, solution.objective, solution.bound) == (300, 400, 400)


def test_a_relaxation_that_broke_while_greedy_planned_is_left_out(monkeypatch):
    class Broken:
        def wait(self, listen):
            return ChildOutcome(failure="ended with code -6: no message")

    @contextmanager
    def begun(*question):
        yield Broken()

    monkeypatch.setattr(exact_run, "start_child", begun)
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)

    solution = run(contested(), seconds=30.0, many=0)

    assert (solution.solver, solution.objective, solution.fallback) == ("milp", 400, None)
    assert solution.bound_note == "relaxation: ended with code -6: no message"


@pytest.mark.slow
def test_the_search_leaves_what_is_reserved(monkeypatch):
    monkeypatch.setattr(exact_run, "run_in_child", lambda *_: ChildOutcome(killed=True))
    began, seconds = time.monotonic(), []
    limits = Limits(60.0, ("milp",), reserved=20.0, reserved_for_bound=10.0)
    monkeypatch.setattr(
        exact_run, "solve_in_process", lambda _, budget: seconds.append(budget.deadline) or iter(())
    )
    world = contested()

    solve(build_problem(world, POLICY), (), limits, partial(judged, world), began=began)

    assert seconds
    assert all(deadline <= began + 30.0 for deadline in seconds)


@pytest.mark.parametrize("many", [0, 10**9])
def test_time_counts_from_the_beginning_of_the_epoch(monkeypatch, many):
    monkeypatch.setattr(exact_run, "start_child", None)

    solution = run(contested(), seconds=30.0, began=time.monotonic() - 60, many=many)

    assert solution.solver == "greedy"
    assert solution.fallback.reason == "milp: no time left of 30 s"
    assert solution.phases["pose"] >= 60
    assert min(solution.seconds, solution.milestones[0].seconds) >= 60
    assert "solve" not in solution.phases


def test_where_no_time_is_left_to_refine_it_is_the_clock_that_ended_the_search():
    snapshot = contested()
    search = EpochSearch(build_problem(snapshot, POLICY), (), Limits(0.0, ()), partial(judged, snapshot))

    pipeline._run_lns(search)

    assert search.solution().ended is StopReason.TIME


def test_a_plan_that_is_proven_optimal_has_missed_no_job():
    snapshot = contested()
    search = EpochSearch(build_problem(snapshot, POLICY), (), Limits(10.0, ()), partial(judged, snapshot))

    search.submit_plan("milp", search.idle, missed=2)

    before = search.solution()
    assert (before.status, before.not_disaggregated) == (SolveStatus.FEASIBLE, 2)
    search.add_bound("milp", search.best.objective)
    after = search.solution()
    assert (after.status, after.not_disaggregated) == (SolveStatus.OPTIMAL, 0)


def test_time_for_a_last_check_is_that_of_one_that_is_not_remembered():
    snapshot, seen = contested(), []

    def check(target):
        if target not in seen:
            seen.append(target)
            time.sleep(0.2)
        return judged(snapshot, target)

    search = EpochSearch(build_problem(snapshot, POLICY), (), Limits(10.0, ()), check)
    for _ in range(9):
        search.submit_plan("greedy", search.idle)

    assert search.verify_seconds >= 0.2
    assert search.deadline <= search.began + 10.0 - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("many", [0, 10**9])
@pytest.mark.parametrize("seconds", [0.05, 0.3, 2.0])
def test_never_worse_than_greedy_however_short_the_time(seconds, many):
    solution = run(contested(), seconds=seconds, many=many)

    assert judged(contested(), solution.target).violations == ()
    assert solution.greedy_objective == 300
    assert 300 <= solution.objective <= solution.bound


@pytest.mark.parametrize(
    ("ended", "asked"), [(StopReason.TIME, [True, False, True]), (StopReason.EXHAUSTED, [True, True, True])]
)
def test_after_a_stage_without_time_for_a_better_plan_the_last_one_gets_what_is_left(
    monkeypatch, ended, asked
):
    seen = []
    solve_stage = portfolio.solve_stage

    def unproven(*arguments, exact=True, **more):
        seen.append(exact)
        solution = solve_stage(*arguments, exact=False, **more)
        return replace(solution, status=SolveStatus.FEASIBLE, ended=ended)

    monkeypatch.setattr(portfolio, "solve_stage", unproven)
    jobs = [build.job(f"j{priority}", gpus=8, priority=priority) for priority in range(3)]
    snapshot, policy = build.snapshot(jobs=jobs), Policy()

    portfolio.solve(
        build_problem(snapshot, policy),
        snapshot.running_placements,
        Limits(30.0, ("milp",)),
        partial(verify_target, snapshot, policy),
    )

    assert seen == asked
