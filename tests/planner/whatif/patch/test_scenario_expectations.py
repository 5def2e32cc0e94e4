"""Expectations of a scenario: which hold, and which are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpuplan.planner.whatif.measures import PlanFigures
from gpuplan.planner.whatif.patch.scenario import Expectation, check_passes


@pytest.mark.parametrize(
    ("check", "found", "base", "expected"),
    [
        (">= 40", 40, 0, True),
        ("> 40", 40, 0, False),
        ("<= 1,000.5", 1000.5, 0, True),
        ("< 90 %", 0.9, 0, False),
        (">= 90%", 0.9, 0, True),
        ("== base", 3.1, 3.1, True),
        ("=base", 3, 3.1, False),
        ("!= base", 3, 3.1, True),
        (">= base - 2", 8, 10, True),
        (">= base - 2", 7.9, 10, False),
        ("<= base * 1.5", 15, 10, True),
        ("> base + 1", 11, 10, False),
        (">= -5", -4, 0, True),
        ("== 0.3", 0.1 + 0.2, 0, True),
    ],
)
def test_a_check_compares_a_figure_with_a_number_or_the_base(check, found, base, expected):
    assert check_passes(Expectation(gap=check).gap, found, base) is expected


@pytest.mark.parametrize("check", ["", "40", ">= ", ">= some", ">= base -", ">= 4 5", "=> 4", ">= base / 2"])
def test_what_is_no_check_is_refused(check):
    with pytest.raises(ValidationError):
        Expectation(objective=check)


@pytest.mark.parametrize("said", [{}, {"job": "a"}, {"runs": True}])
def test_an_expectation_says_something(said):
    with pytest.raises(ValidationError):
        Expectation(**said)


def test_what_can_be_expected_are_figures():
    assert set(Expectation.model_fields) - {"job", "runs"} <= set(PlanFigures.model_fields)
