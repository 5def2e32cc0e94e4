from __future__ import annotations

import pytest

from gpuplan.planner.render.reports.whatif import whatif_report
from tests.support.builders.comparison_builders import TRIALS, comparison, trial
from tests.support.output.html_pages import Page


def page(*trials, **more):
    return Page(whatif_report(comparison(*trials, **more)))


def test_every_scenario_stands_with_its_description_and_what_it_changes():
    text = page().text

    assert all(each.name in text and each.description in text for each in TRIALS)
    assert "Jobs running 6 → 7 (+1)" in text
    assert "GPUs held 22.9 → 30.9 (+8)" in text
    assert "GPUs allocated 63.6 % → 50.0 % (−13.6 points)" in text


def test_what_failed_and_what_is_not_as_expected_is_at_the_top_and_with_its_scenario():
    text = page().text

    assert "× 1 failed × 1 of 1 expectation not met" in text
    assert "× expected jobs_running >= base; found 5 (base 6)" in text
    assert "× failed: planning did not end in time and was killed" in text
    assert "✓" not in text


def test_where_all_is_as_expected_the_page_says_so():
    assert "✓ 2 expectations met" in page(trial("a", expected=2, jobs_running=7)).text


def test_where_nothing_is_expected_nothing_is_praised():
    text = page(trial("a", jobs_running=7)).text

    assert "no expectation stated" in text
    assert "✓" not in text


def test_a_scenario_that_changes_nothing_is_said_to():
    assert "nothing Every figure is that of the base." in page().text


def test_all_figures_stand_in_one_table_with_reasons_for_waiting():
    text = page().text

    assert "Figure base more-nodes rack-fails nothing" in text
    assert "jobs running 6 +1 -1 =" in text
    assert "Resources 3 = = =" in text


def test_only_what_differs_is_drawn():
    html = whatif_report(comparison(trial("more", jobs_running=7)))

    assert 'aria-label="Jobs running: base 6; more 7 (+1)"' in html
    assert 'aria-label="Fairness' not in html


def test_points_of_another_goal_are_neither_drawn_nor_judged():
    other = trial(
        "other", goal="makespan", same_points=False, warnings=("it says so",), objective=99, jobs_running=7
    )
    html = whatif_report(comparison(other, warnings=("the base too",)))

    assert 'aria-label="Objective' not in html
    assert 'aria-label="Jobs running: base 6; other 7 (+1)"' in html
    text = Page(html).text
    assert "its objective is not compared: jobs are worth something else with the goal makespan" in text
    assert "it says so" in text
    assert "the base too" in text
    assert "objective 9,900 -" in text
    assert "9,900 → 99" not in text


def test_nothing_is_drawn_below_zero():
    html = whatif_report(comparison(trial("worse", objective=-5)))

    assert 'aria-label="Objective' not in html
    assert "9,900 → -5 (−9,905)" in html


def test_where_nothing_differs_the_page_says_so():
    assert "No scenario differs from the base" in page(trial("a")).text


def test_without_a_base_the_page_says_why():
    text = page(trial("a"), base=None).text

    assert "The base could not be planned: it crashed" in text
    assert "nothing to compare with" in text


@pytest.mark.slow
def test_hundreds_of_scenarios_make_a_page_one_can_mail():
    trials = [trial(f"scenario-{number:03d}", jobs_running=number) for number in range(300)]

    html = whatif_report(comparison(*trials))

    assert all(each.name in html for each in trials)
    assert "The first 24 of 300 scenarios." in html
    assert len(html) < 1_000_000
