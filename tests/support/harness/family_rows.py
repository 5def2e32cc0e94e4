"""Rows of one family for a small snapshot, and the most jobs they let through."""

from __future__ import annotations

import time

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.rows import Formulation
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import Budget
from tests.support.builders.build import by_value


def model(snapshot):
    """(problem, columns, formulation) of a snapshot."""
    problem = build_problem(snapshot, by_value())
    x = Columns(problem)
    return problem, x, formulate(problem, x)


def rows(snapshot, family):
    """Rows of one family."""
    return [row for row in model(snapshot)[2].rows if row.family == family]


def most(snapshot, *families):
    """
    Replicas in the best answer under the named families alone; all families if none is named.

    The rows of `gang` are always there: they tie jobs to their replicas.
    """
    _, x, whole = model(snapshot)
    counted = np.zeros_like(whole.objective)
    counted[list(x.replicas.values())] = 1
    kept = tuple(row for row in whole.rows if not families or row.family in (*families, "gang"))
    question = Formulation(whole.upper, counted, kept)
    nothing = np.zeros_like(whole.upper)
    answer = cpsat.solve(question, Budget(time.monotonic() + 20), nothing, lambda _: None)
    return answer.bound
