"""What preemption has freed on nodes, as jobs come and go there."""

from __future__ import annotations

from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build


def test_place_that_another_equal_class_gives_back_is_not_taken_for_free_before():
    """One class of an answer takes the places of all equal ones; each gives its own back."""
    held = build.job("held", gpus=4, priority=4, at=[build.replica(gpus=range(4))])
    waiting = [
        build.job("first", gpus=8, priority=9),
        build.job("second", gpus=8, priority=9, weight=2),
        build.job("low", gpus=8, priority=1),
    ]
    problem = build_problem(build.snapshot(nodes=build.cluster(1), jobs=[held, *waiting]), build.by_value())
    first, second, low = (
        next(index for index, each in enumerate(problem.classes) if name in each.jobs)
        for name in ("first", "second", "low")
    )
    ledger, site = Ledger(problem), ReplicaSite(0, tuple(range(8)))
    assert vacate.stop_incumbent(ledger, 0)

    ledger.sites.take(first, site)
    ledger.sites.release(second, site)

    assert ledger.sites.may_take(second, site)
    assert not ledger.sites.may_take(low, site)
