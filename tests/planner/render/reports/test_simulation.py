from __future__ import annotations

import re

import pytest

from gpuplan.planner.render.reports.simulation import simulation_report
from tests.support.builders.simulation_builders import distribution, epoch, run, simulation
from tests.support.output.html_pages import Page


def page(*runs, **more):
    return Page(simulation_report(simulation(*runs, **more)))


@pytest.mark.slow
def test_every_run_stands_with_what_it_came_to():
    text = page().text

    assert "greedy 9 epochs in 1h20m, until all is over" in text
    assert "Finished 11 1 running" in text
    assert "Mean wait ≥ 10m p95 1h" in text


@pytest.mark.slow
def test_all_scores_stand_side_by_side():
    text = page().text

    assert "Score greedy milp jobs finished 9 11" in text
    assert "p99 ≥ 2h ≥ 2h" in text


@pytest.mark.slow
def test_lower_bounds_are_explained():
    assert "≥ is a lower bound" in page().text


@pytest.mark.slow
def test_waits_are_drawn_and_told_run_by_run():
    html = simulation_report(simulation())

    told = "greedy: mean ≥ 10m, p50 2m, p95 1h, p99 ≥ 2h; milp: mean ≥ 10m, p50 2m, p95 1h, p99 ≥ 2h"
    assert f'aria-label="Wait until the first start. {told}"' in html


@pytest.mark.slow
def test_figures_over_time_are_drawn_and_told_run_by_run():
    html = simulation_report(simulation(run("one")))

    assert 'aria-label="GPUs allocated: one begins at 0 %, is 40 % on average, ends at 80 %"' in html
    assert 'aria-label="Jobs waiting: one begins at 9, is 5 on average, ends at 1"' in html


@pytest.mark.slow
def test_what_is_zero_all_the_time_is_not_drawn():
    assert "Cost per hour" not in page().text
    assert "Cost per hour" in page(run("a", epochs=(epoch(0, hourly_cost=2.5), epoch(1)))).text


@pytest.mark.slow
def test_epochs_in_which_something_happened_are_listed():
    text = page(run("a", epochs=(epoch(0, submitted=3, started=2, waiting=1), epoch(1), epoch(2)))).text

    assert "a: 1 epoch in which something happened, of 3" in text
    assert "0 20 Nov 12:00 3 0 2 0 0 1 0.0 %" in text


def test_a_single_epoch_and_no_jobs_make_a_page():
    text = page(run("a", epochs=(epoch(0),), wait=None, jobs=0, finished=0)).text

    assert "Mean wait none" in text


@pytest.mark.slow
def test_waits_of_nothing_and_of_years_fit_one_chart():
    runs = (
        run("a", wait=distribution(0, 0, 0, 0)),
        run("b", wait=distribution(4e7, 4e7, 9e7, 9e7)),
    )

    assert "b: mean 462d" in simulation_report(simulation(*runs))


@pytest.mark.slow
def test_thousands_of_epochs_make_a_page_one_can_mail():
    epochs = tuple(epoch(number, started=1, waiting=number % 7, running=3) for number in range(3000))

    html = simulation_report(simulation(run("a", epochs=epochs), run("b", epochs=epochs)))

    assert len(html) < 2_000_000


@pytest.mark.slow
def test_more_runs_than_colours_are_all_in_the_tables():
    runs = [run(f"run-{number}") for number in range(9)]

    html = simulation_report(simulation(*runs))

    assert re.search(" ".join(each.name for each in runs), Page(html).text)
