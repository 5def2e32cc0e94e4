"""Stopped jobs return in place of starts that use up their quota."""

from __future__ import annotations

import pytest

from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.guarantees.quota_exchange import exchange_for_guarantees
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build


@pytest.mark.parametrize(("weight", "returns"), [(0.1, False), (5.0, True)])
def test_a_stopped_job_returns_to_its_idle_gpus_if_it_is_worth_more_than_the_start(weight, returns):
    """No guarantee is owed to it: quota alone keeps it out."""
    place = [build.replica("n0", gpus=range(2))]
    runs = build.job("runs", gpus=2, queue="full", weight=weight, at=place)
    waits = build.job("waits", gpus=2, queue="full", priority=1, weight=3.0)
    queues = [build.queue("full", nominal=2)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[runs, waits], queues=queues)
    problem = build_problem(snapshot, build.by_value())
    ledger = Ledger(problem)
    assert vacate.stop_incumbent(ledger, 0)
    assert placement.place(ledger, 0, problem.classes[0].options[0], jobs=1)

    assert exchange_for_guarantees(ledger) is returns
    assert (ledger.objective == 0) is returns
    assert bool(ledger.placed) is not returns
