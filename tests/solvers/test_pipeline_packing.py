"""Which problems are packed by column generation before an exact solver is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.incumbent import Limits
from gpuplan.solvers.params.search import SearchParams
from gpuplan.solvers.pipeline import _packs_first
from tests.support.builders import build

ODD, EVEN = 370, 250
PARAMS = SearchParams()
NOTHING_IS_SMALL = replace(
    PARAMS, exact=replace(PARAMS.exact, child=replace(PARAMS.exact.child, few_choices=0))
)
LIMITS = Limits(20, ("milp",), params=NOTHING_IS_SMALL)


class Search:
    """What is asked of a search."""

    ended = None

    def __init__(self, milli, limits, **policy):
        jobs = [build.job(f"j{number}", milli=milli, expected_duration=3600) for number in range(9)]
        self.problem = build_problem(build.snapshot(jobs=jobs), Policy.model_validate(policy))
        self.limits = limits


def test_odd_shares_are_packed_before_an_exact_solver_is_asked():
    assert _packs_first(Search(ODD, LIMITS))


@pytest.mark.parametrize(
    "search",
    [
        Search(EVEN, LIMITS),
        Search(ODD, replace(LIMITS, params=PARAMS)),
        Search(ODD, replace(LIMITS, ticks=1)),
        Search(ODD, replace(LIMITS, solvers=())),
        Search(ODD, LIMITS, horizon={"slots": 2}),
    ],
    ids=["even", "small", "deterministic", "greedy alone", "ahead"],
)
def test_nothing_else_is(search):
    assert not _packs_first(search)
