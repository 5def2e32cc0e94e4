from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuplan.planner.render.charts.simulation import (
    WaitDistribution,
    wait_distribution_svg,
    wait_distribution_text,
)
from tests.support.builders.simulation_builders import distribution


def drawn(*spreads):
    return wait_distribution_svg(spreads, "k", label="Wait")


def test_words_tell_mean_percentiles_and_lower_bounds():
    found = distribution(600, 180, 3_600, 14_400, at_least=True)

    assert wait_distribution_text(found) == "mean ≥ 10m, p50 3m, p95 1h, p99 ≥ 4h"
    assert 'aria-label="Wait. a: mean ≥ 10m' in drawn(WaitDistribution("a", found))


@example(3.4, 1.0)  # Between two ticks that are far apart.
@settings(max_examples=25)
@given(st.floats(0, 3e7), st.floats(1, 1000))
def test_times_of_any_length_have_a_few_ticks(shortest, spread):
    longest = min(4e7, shortest * spread)
    svg = drawn(WaitDistribution("a", distribution(shortest, shortest, longest, longest)))
    ticks = re.findall(r">(\d+[smhd]\w*)</text>", svg)

    assert 1 <= len(ticks) <= 5


def test_without_runs_there_is_no_chart():
    assert drawn() == ""
