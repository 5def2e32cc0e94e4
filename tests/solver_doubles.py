"""Solvers that misbehave, each in one way; what `planner.solvers.SOLVERS` names instead."""

from __future__ import annotations

import os
import pkgutil
import time
from dataclasses import replace

import numpy as np

from planner.models.solution import SolveStatus
from planner.solvers import cpsat
from planner.solvers.interface import Answer


def crash(formulation, budget, hint, report):
    os.abort()


def raise_error(formulation, budget, hint, report):
    raise RuntimeError("out of licences")


def hang(formulation, budget, hint, report):
    time.sleep(600)


def report_and_hang(formulation, budget, hint, report):
    """Reports a bound and values, and never ends."""
    report(Answer(SolveStatus.NO_ANSWER, None, formulation.points(formulation.upper)))
    report(Answer(SolveStatus.FEASIBLE, hint, formulation.points(formulation.upper) - 1))
    time.sleep(600)


def report_and_crash(formulation, budget, hint, report):
    report(Answer(SolveStatus.FEASIBLE, hint, 10**9))
    os.abort()


def nothing(formulation, budget, hint, report):
    return Answer(SolveStatus.NO_ANSWER, bound=None, detail="gave up")


def infeasible(formulation, budget, hint, report):
    return Answer(SolveStatus.INFEASIBLE, detail="proved infeasible")


def everything(formulation, budget, hint, report):
    """Claims that all columns at their upper bounds are optimal."""
    return Answer(SolveStatus.OPTIMAL, formulation.upper, formulation.points(formulation.upper))


def negative(formulation, budget, hint, report):
    return Answer(SolveStatus.OPTIMAL, -np.ones_like(formulation.upper), 10**9)


def short(formulation, budget, hint, report):
    return Answer(SolveStatus.OPTIMAL, formulation.upper[:-1], 10**9)


def low_bound(formulation, budget, hint, report):
    """Feasible values with a bound that any plan beats."""
    return Answer(SolveStatus.OPTIMAL, hint, 1)


def too_modest(formulation, budget, hint, report):
    """The optimum, with a bound below what it is worth and above what greedy has."""
    answer = cpsat.solve(formulation, budget, hint, report)
    return replace(answer, bound=answer.bound - 1)


def no_bound(formulation, budget, hint, report):
    return Answer(SolveStatus.FEASIBLE, hint, None)


def empty(formulation, budget, hint, report):
    """Feasible, and far worse than the hint."""
    return Answer(SolveStatus.FEASIBLE, np.zeros_like(hint), None)


def no_values(formulation, budget, hint, report):
    return Answer(SolveStatus.OPTIMAL, None, 10**9)


def garbage(formulation, budget, hint, report):
    print("noise on standard output")
    return "42"


def in_this_process(solver, formulation, budget, hint):
    """What `worker.solve_apart` does, without a process of its own: faster, and good enough for a solver."""
    return pkgutil.resolve_name(solver)(formulation, budget, hint, lambda _: None)
