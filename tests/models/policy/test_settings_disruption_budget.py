from datetime import timedelta

import pytest
from pydantic import ValidationError

from gpuplan.models.calendar import Recurring
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import DisruptionBudget, portion_of
from tests.support.builders.build import NOW


@pytest.mark.parametrize(
    ("portion", "whole", "number"),
    [
        (2, 8, 2),
        (9, 8, 9),
        ("25%", 8, 2),
        ("25%", 9, 3),
        ("1%", 8, 1),
        ("0%", 8, 0),
        ("100%", 7, 7),
        ("50%", 0, 0),
    ],
)
def test_percentages_round_up(portion, whole, number):
    assert portion_of(portion, whole) == number


@pytest.mark.parametrize("written", ["25%", " 25 %", "025%"])
def test_a_percentage_has_one_form(written):
    assert DisruptionBudget(name="b", max_unavailable=written).document()["max_unavailable"] == "25%"


@pytest.mark.parametrize("wrong", ["101%", "2.5%", "two", -1, True, 1.5, "25"])
def test_what_is_neither_number_nor_percentage_is_refused(wrong):
    with pytest.raises(ValidationError):
        DisruptionBudget(name="b", max_unavailable=wrong)


@pytest.mark.parametrize("limits", [{}, {"max_unavailable": 1, "min_available": 1}])
def test_a_budget_has_one_limit(limits):
    with pytest.raises(ValidationError):
        DisruptionBudget(name="b", **limits)


def test_two_budgets_do_not_share_a_name():
    budget = DisruptionBudget(name="b", max_unavailable=1)
    with pytest.raises(ValidationError):
        Disruption(budgets=(budget, budget))


@pytest.mark.parametrize(
    ("begins", "minutes", "expected"), [(-60, 61, True), (-60, 60, False), (0, 1, True), (1, 60, False)]
)
def test_a_budget_is_in_force_within_its_windows(begins, minutes, expected):
    window = Recurring(start=NOW + timedelta(minutes=begins), duration=60 * minutes)
    budget = DisruptionBudget(name="b", max_unavailable=1, windows=(window,))

    assert budget.is_in_force(NOW) is expected


@pytest.mark.parametrize(("cron", "expected"), [("0 11 * * *", True), ("0 8 * * *", False)])
def test_a_window_may_recur(cron, expected):
    budget = DisruptionBudget(name="b", max_unavailable=1, windows=(Recurring(cron=cron, duration="2h"),))

    assert budget.is_in_force(NOW) is expected
