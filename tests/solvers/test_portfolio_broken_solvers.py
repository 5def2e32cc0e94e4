"""
Whatever an exact solver does, the plan breaks no rule, is no worse than greedy's, and says what happened.

Every double of `broken_solvers` is held to the same contract, one added later too.
"""

from __future__ import annotations

import inspect
import time
from functools import partial
from pathlib import Path

import pytest

from gpuplan.models.plan.solution import SolveStatus, StopReason
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import SOLVERS, pipeline
from gpuplan.solvers.portfolio import Limits, solve
from gpuplan.solvers.worker import ChildOutcome
from tests.support.doubles import broken_solvers
from tests.support.samples.greedy_gap import CEILING, GREEDY, OPTIMUM, POLICY, contested, judged

pytestmark = pytest.mark.slow

DOUBLES = [
    name
    for name, double in vars(broken_solvers).items()
    if inspect.isfunction(double)
    and list(inspect.signature(double).parameters)[:2] == ["formulation", "budget"]
]
HANGING = {
    "hang",
    "hang_in_c",
    "hang_with_a_child",
    "optimum_and_hang",
    "report_and_hang",
    "close_all_and_hang",
    "flood",
    "stopped",
}
HARMLESS = {"loud", "report_garbage", "report_not_numbers", "interrupted"}
"""Odd, but with a good answer at the end."""
TAKEN = {
    "optimal_but_not",
    "no_bound",
    "empty",
    "report_and_hang",
    "optimum_and_hang",
    "flood",
    "bound_in_between",
}
"""Nothing in what they say can be found wrong; it is of no use beyond greedy's plan."""


def run(double, *, solvers=("milp",), seconds=30.0, watch=None, ticks=1):
    """Solve with a double in the place of HiGHS."""
    snapshot = contested()
    SOLVERS["milp"] = f"{broken_solvers.__name__}:{double}"
    # Ticks end what would otherwise go on until the time is up; only what hangs gets to that.
    limits = Limits(seconds, solvers, ticks=ticks)
    return solve(build_problem(snapshot, POLICY), (), limits, partial(judged, snapshot), watch)


def solved(double):
    """What comes of a double alone; one that has to be killed gets a moment only."""
    return run(double, seconds=1.5 if double in HANGING else 30.0)


@pytest.fixture(autouse=True)
def solvers_are_put_back(monkeypatch):
    monkeypatch.setitem(SOLVERS, "milp", SOLVERS["milp"])


def told(solution):
    """All that a solution says about what went wrong."""
    reason = solution.fallback.reason if solution.fallback else ""
    return " ".join([reason, solution.bound_note, *(str(each.violations[0]) for each in solution.rejected)])


def alive(pid):
    """True of a process that is neither gone nor dead and waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def ends_at_once(pid):
    """True if a killed process ends: its server is waited for, and the kernel ends the child beside it."""
    killed = time.monotonic()
    while alive(pid) and time.monotonic() < killed + 5:
        time.sleep(0.01)
    return not alive(pid)


ANSWERS = {
    "nothing",
    "infeasible",
    "everything",
    "negative",
    "short",
    "low_bound",
    "too_modest",
    "no_bound",
    "empty",
    "no_values",
    "not_numbers",
    "report_not_numbers",
    "fractions",
    "list_of_values",
    "square",
    "bound_is_no_number",
    "bound_is_text",
    "unknown_status",
    "optimal_but_not",
    "bound_in_between",
    "multipliers_not_finite",
    "multipliers_at_random",
    "multipliers_of_another_model",
}
"""They just answer: that is judged alike in this process; one of their own takes a second."""
ENDS = {
    "killed": "ended with code -9",
    "exits": "gave no answer",
    "stopped": "was killed",
    "hang_in_c": "was killed",
    "hang_with_a_child": "was killed",
    "optimum_and_crash": "ended with code -6",
    "loud_and_crash": "ended with code -6",
    "unpicklable": "gave no answer",
    "square": "gave no values for its columns",
}
"""What is told of how some of them ended."""


@pytest.mark.parametrize(
    "double",
    [pytest.param(each, marks=[] if each in ANSWERS else pytest.mark.processes) for each in DOUBLES],
)
def test_the_plan_is_sound_its_bound_no_lower_and_what_went_wrong_is_told(double):
    """All in one test: what it takes is the one run, and each may be on another worker of the tests."""
    solution = solved(double)

    assert judged(contested(), solution.target).violations == ()
    assert judged(contested(), solution.target).objective == solution.objective
    assert solution.greedy_objective == GREEDY
    assert GREEDY <= solution.objective <= solution.bound <= CEILING
    # What cannot be found wrong is believed.
    assert solution.bound >= OPTIMUM or double == "bound_in_between"
    assert isinstance(solution.bound, int)
    assert (solution.status is SolveStatus.OPTIMAL) == (solution.objective == solution.bound)

    if double in HARMLESS:
        assert (solution.status, solution.objective) == (SolveStatus.OPTIMAL, OPTIMUM)
        assert (solution.solver, solution.fallback) == ("milp", None)
    elif double not in TAKEN:
        assert told(solution).strip()
        assert len(told(solution)) < 500
        assert told(solution).isprintable()
    assert ENDS.get(double, "") in told(solution)


@pytest.mark.processes
@pytest.mark.parametrize("double", ["killed", "exits", "not_numbers", "low_bound", "infeasible"])
def test_the_next_solver_reaches_the_optimum(double):
    solution = run(double, solvers=("milp", "cpsat"))

    assert (solution.objective, solution.bound) == (OPTIMUM, OPTIMUM)


@pytest.mark.processes
@pytest.mark.parametrize("double", ["hang_in_c", "hang_with_a_child"])
def test_nothing_of_a_solver_outlives_its_time(double, monkeypatch, tmp_path):
    here = tmp_path / "pid"
    monkeypatch.setenv("SOLVER_DOUBLE_PID", str(here))

    run(double, seconds=6.0)

    assert here.exists()
    pid = int(here.read_text())
    # Ten minutes would be its own time.
    assert ends_at_once(pid)


@pytest.mark.processes
def test_an_interruption_ends_the_solver_and_keeps_the_best_plan(monkeypatch, tmp_path):
    here = tmp_path / "pid"
    monkeypatch.setenv("SOLVER_DOUBLE_PID", str(here))

    def watch(milestone):
        if here.exists():
            raise KeyboardInterrupt

    solution = run("hang_in_c", seconds=300.0, watch=watch)

    assert solution.ended is StopReason.INTERRUPTED
    assert (solution.objective, solution.solver) == (GREEDY, "greedy")
    assert ends_at_once(int(here.read_text()))


@pytest.mark.processes
def test_what_is_found_on_the_way_is_placed_before_the_solver_ends():
    solution = run("optimum_and_hang", seconds=8.0, ticks=None)

    stages = [each.stage for each in solution.milestones if each.objective == OPTIMUM]
    assert stages[0] == "place"
    assert "milp" in stages, "no report of the solver, once the plan was there"


@pytest.mark.processes
def test_an_interruption_before_there_is_a_plan_is_passed_on():
    def watch(milestone):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("hang", watch=watch)


@pytest.mark.processes
def test_milestones_only_get_better():
    seen = []

    solution = run("interrupted", watch=seen.append)

    assert solution.milestones
    assert {each.stage for each in solution.milestones} <= {each.stage for each in seen}
    for before, after in zip(solution.milestones, solution.milestones[1:], strict=False):
        assert before.seconds <= after.seconds
        assert before.bound >= after.bound
        assert before.objective is None or before.objective <= after.objective
    assert solution.milestones[-1].objective == solution.objective == OPTIMUM
    assert solution.milestones[-1].bound == solution.bound


def test_neighbourhoods_are_tried_again_when_their_process_has_crashed(monkeypatch):
    outcomes = [ChildOutcome(failure="ended with code -9"), ChildOutcome()]
    monkeypatch.setattr(pipeline, "run_in_child", lambda *_: outcomes.pop(0))

    solution = run("empty")

    assert outcomes == []
    assert "ended with code -9" not in told(solution)
