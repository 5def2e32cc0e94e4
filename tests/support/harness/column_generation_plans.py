"""Plans with nodes filled anew, verified; and a poor plan to begin with."""

from __future__ import annotations

import time

import numpy as np

from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.improve.column_generation import repack
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.harness.greedy_plans import realized


def planned(snapshot, policy=None, *, start=greedy, nodes=None, seconds=60.0, seed=0):
    """(what repacking reports, the plan after it, verified)."""
    policy = policy or build.by_value(priority=build.BY_WEIGHT)
    ledger = start(build_problem(snapshot, policy))
    where = None if nodes is None else np.array(nodes, dtype=np.int64)
    found = repack(ledger, nodes=where, deadline=time.monotonic() + seconds, seed=seed)
    assert found.after == ledger.objective
    assert found.after >= found.before
    assert found.bound is None or found.bound >= found.after
    return found, realized(snapshot, policy, ledger)


def one_by_one(problem):
    """A poor plan: what comes first is placed first."""
    ledger = Ledger(problem)
    for index, job_class in enumerate(problem.classes):
        for option in job_class.options:
            placement.place(ledger, index, option, jobs=len(job_class.jobs))
    return ledger
