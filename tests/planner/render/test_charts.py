from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuplan.planner.io.search_log import SearchRecord
from gpuplan.planner.render.charts import (
    ChangedBar,
    Line,
    Unit,
    WaitDistribution,
    changed_bars_svg,
    gap_chart,
    gap_svg,
    over_time_svg,
    wait_distribution_svg,
    wait_distribution_text,
)
from tests.support.builders.search_log_builders import ASKED, ENDED, MILESTONES
from tests.support.builders.simulation_builders import distribution

# Bars of amounts before and after a change.


def bar(before=4, after=6, **more):
    return ChangedBar("q", before, after, f"{before} → {after}", **more)


def widths(svg, colour):
    """Widths of the bars in a colour."""
    paths = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: var\(--{colour}\)', svg)
    return [_width(path) for path in paths]


def _width(path):
    across = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path)]
    return max(across) - min(across)


def drawn_bars(*bars):
    return changed_bars_svg(bars, "k", label="Use")


def test_the_words_tell_every_bar():
    svg = changed_bars_svg([bar(), bar(1, 1)], "k", label="Use")

    assert 'aria-label="Use: q 4 → 6; q 1 → 1"' in svg


def test_what_is_added_follows_what_stays_on_one_scale():
    svg = drawn_bars(bar(4, 6), bar(0, 3))
    (stays, nothing), (added, three) = widths(svg, "kept"), widths(svg, "arrives")

    assert nothing == 0
    assert stays == pytest.approx(2 * added, rel=1e-3)
    assert three == pytest.approx(1.5 * added, rel=1e-3)


def test_what_is_given_up_is_hatched():
    svg = drawn_bars(bar(6, 4))

    assert "arrives" not in svg
    assert "<pattern" in svg
    assert "var(--leaves)" in svg


def test_what_there_is_in_all_frames_the_bar():
    svg = drawn_bars(bar(2, 4, whole=8))

    assert widths(svg, "shade")[0] == pytest.approx(4 * widths(svg, "kept")[0], rel=1e-3)


def test_limits_and_guarantees_are_marked():
    assert "var(--limit)" not in drawn_bars(bar())
    assert drawn_bars(bar(limit=8)).count("var(--limit)") == 1
    assert "var(--limit)" in drawn_bars(bar(owed=2))


def test_of_nothing_nothing_is_drawn():
    assert drawn_bars() == ""
    assert "NaN" not in drawn_bars(bar(0, 0, whole=0))


# The gap of a search over time.


SEARCH = SearchRecord(ASKED, MILESTONES, ENDED, None)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_search_is_the_same_picture(kind, magic):
    first, second = gap_chart(SEARCH, kind), gap_chart(SEARCH, kind)

    assert first == second
    assert first.startswith(magic)


@pytest.mark.slow
def test_another_gap_is_another_picture():
    other = replace(SEARCH, finished=ENDED.model_copy(update={"gap": 0.0}))

    assert gap_chart(SEARCH, "svg") != gap_chart(other, "svg")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"milestones": ()},
        {"milestones": (), "finished": None},
        {"milestones": MILESTONES[:1], "finished": None},
        {"finished": ENDED.model_copy(update={"gap": None, "bound": None})},
        {"milestones": tuple(replace(each, objective=each.bound) for each in MILESTONES)},
        {"milestones": tuple(replace(each, seconds=0.0) for each in MILESTONES), "finished": None},
    ],
)
def test_whatever_is_known_can_be_drawn(changed):
    assert gap_chart(replace(SEARCH, **changed), "png")


def test_on_a_page_the_gap_is_told_too():
    end = ENDED.model_copy(update={"gap": 0.0159})

    assert "Proven gap over 2.4 seconds: 20.0 % at first, 1.6 % at the end" in gap_svg(MILESTONES, end)


def test_a_gap_that_stays_larger_than_the_objective_is_drawn_in_points():
    large = [replace(each, objective=100, bound=400) for each in MILESTONES]
    drawn = gap_svg(large, ENDED.model_copy(update={"objective": 100, "bound": 400, "gap": 3.0}))

    assert "300 points at first, 300 points at the end" in drawn
    assert re.findall(r"<text[^>]*>([\d.]+) %</text>", drawn) == []


def test_the_gap_of_a_plan_that_changes_nothing_is_drawn_in_points():
    idle = [replace(each, objective=0, bound=1_235_007 - number) for number, each in enumerate(MILESTONES)]
    end = ENDED.model_copy(update={"objective": 0, "bound": 1_235_000, "gap": 1_235_000.0})
    drawn = gap_svg(idle, end)

    assert "1,235,007 points at first, 1,235,000 points at the end" in drawn
    assert "%</text>" not in drawn


def test_what_was_never_known_or_only_once_is_not_drawn():
    assert gap_svg((), ENDED.model_copy(update={"gap": None})) == ""
    assert gap_svg((), ENDED) == ""


# Figures of a simulation over time.


def drawn_lines(*lines, **more):
    return over_time_svg(lines, "k", label="Use", **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (Unit.SHARE, "a begins at 0 %, is 50 % on average, ends at 100 %"),
        (Unit.INDEX, "a begins at 0.00, is 0.50 on average, ends at 1.00"),
        (Unit.NUMBER, "a begins at 0, is 0.5 on average, ends at 1"),
    ],
)
def test_lines_are_told_in_words(unit, words):
    assert f'aria-label="Use: {words}"' in drawn_lines(Line("a", (0, 1), (0, 1)), unit=unit)


def test_lines_differ_in_colour_and_dashes():
    svg = drawn_lines(Line("a", (0, 1), (1, 2)), Line("b", (0, 1), (2, 1)))

    assert "var(--series-1)" in svg
    assert re.search(r"stroke-dasharray: [^;]+;[^\"]*var\(--series-2\)", svg)


def test_without_a_span_of_time_there_is_no_chart():
    assert drawn_lines() == ""
    assert drawn_lines(Line("a", (), ()), Line("b", (0,), (1,))) == ""


def test_runs_that_ended_at_once_do_not_matter():
    assert "b begins at 3" in drawn_lines(Line("a", (), ()), Line("b", (0, 1), (3, 4)))


def test_long_lines_are_thinned_to_averages():
    hours = range(10_000)
    long = drawn_lines(Line("a", hours, [number % 2 for number in hours]))

    assert len(long) < 40_000
    assert "is 0.5 on average" in long


def heights(svg):
    """Where the first line of a chart runs."""
    path = re.search(r'<path d="([^"]*)"[^>]*stroke: var\(--series-1\)', svg)[1]
    return {float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path)}


def test_thinned_lines_run_where_the_averages_are():
    hours = range(8_000)
    swinging = drawn_lines(Line("a", hours, [number % 2 for number in hours]), unit=Unit.SHARE)
    steady = drawn_lines(Line("a", hours, [0.5] * len(hours)), unit=Unit.SHARE)

    assert heights(swinging) == heights(steady)


def test_more_lines_than_colours_begin_again():
    lines = [Line(f"run-{number}", (0, 1), (number, number)) for number in range(8)]

    assert drawn_lines(*lines).count("var(--series-1)") == 2


# The distribution of times over jobs.


def drawn_spreads(*spreads):
    return wait_distribution_svg(spreads, "k", label="Wait")


def test_words_tell_mean_percentiles_and_lower_bounds():
    found = distribution(600, 180, 3_600, 14_400, at_least=True)

    assert wait_distribution_text(found) == "mean ≥ 10m, p50 3m, p95 1h, p99 ≥ 4h"
    assert 'aria-label="Wait. a: mean ≥ 10m' in drawn_spreads(WaitDistribution("a", found))


@pytest.mark.slow
@example(3.4, 1.0)  # Between two ticks that are far apart.
@settings(max_examples=25)
@given(st.floats(0, 3e7), st.floats(1, 1000))
def test_times_of_any_length_have_a_few_ticks(shortest, spread):
    longest = min(4e7, shortest * spread)
    svg = drawn_spreads(WaitDistribution("a", distribution(shortest, shortest, longest, longest)))
    ticks = re.findall(r">(\d+[smhd]\w*)</text>", svg)

    assert 1 <= len(ticks) <= 5


def test_without_runs_there_is_no_chart():
    assert drawn_spreads() == ""
