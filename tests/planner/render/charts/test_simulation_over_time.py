from __future__ import annotations

import re

import pytest

from gpuplan.planner.render.charts.simulation import Line, Unit, over_time_svg


def drawn(*lines, **more):
    return over_time_svg(lines, "k", label="Use", **more)


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (Unit.SHARE, "a begins at 0 %, is 50 % on average, ends at 100 %"),
        (Unit.INDEX, "a begins at 0.00, is 0.50 on average, ends at 1.00"),
        (Unit.NUMBER, "a begins at 0, is 0.5 on average, ends at 1"),
    ],
)
def test_lines_are_told_in_words(unit, words):
    assert f'aria-label="Use: {words}"' in drawn(Line("a", (0, 1), (0, 1)), unit=unit)


def test_lines_differ_in_colour_and_dashes():
    svg = drawn(Line("a", (0, 1), (1, 2)), Line("b", (0, 1), (2, 1)))

    assert "var(--series-1)" in svg
    assert re.search(r"stroke-dasharray: [^;]+;[^\"]*var\(--series-2\)", svg)


def test_without_a_span_of_time_there_is_no_chart():
    assert drawn() == ""
    assert drawn(Line("a", (), ()), Line("b", (0,), (1,))) == ""


def test_runs_that_ended_at_once_do_not_matter():
    assert "b begins at 3" in drawn(Line("a", (), ()), Line("b", (0, 1), (3, 4)))


def test_long_lines_are_thinned_to_averages():
    hours = range(10_000)
    long = drawn(Line("a", hours, [number % 2 for number in hours]))

    assert len(long) < 40_000
    assert "is 0.5 on average" in long


def heights(svg):
    """Where the first line of a chart runs."""
    path = re.search(r'<path d="([^"]*)"[^>]*stroke: var\(--series-1\)', svg)[1]
    return {float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path)}


def test_thinned_lines_run_where_the_averages_are():
    hours = range(8_000)
    swinging = drawn(Line("a", hours, [number % 2 for number in hours]), unit=Unit.SHARE)
    steady = drawn(Line("a", hours, [0.5] * len(hours)), unit=Unit.SHARE)

    assert heights(swinging) == heights(steady)


def test_more_lines_than_colours_begin_again():
    lines = [Line(f"run-{number}", (0, 1), (number, number)) for number in range(8)]

    assert drawn(*lines).count("var(--series-1)") == 2
