from __future__ import annotations

import re

import pytest

from gpuplan.planner.render.charts.changed_bars import ChangedBar, changed_bars_svg


def bar(before=4, after=6, **more):
    return ChangedBar("q", before, after, f"{before} → {after}", **more)


def widths(svg, colour):
    """Widths of the bars in a colour."""
    paths = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: var\(--{colour}\)', svg)
    return [_width(path) for path in paths]


def _width(path):
    across = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path)]
    return max(across) - min(across)


def drawn(*bars):
    return changed_bars_svg(bars, "k", label="Use")


def test_the_words_tell_every_bar():
    svg = changed_bars_svg([bar(), bar(1, 1)], "k", label="Use")

    assert 'aria-label="Use: q 4 → 6; q 1 → 1"' in svg


def test_what_is_added_follows_what_stays_on_one_scale():
    svg = drawn(bar(4, 6), bar(0, 3))
    (stays, nothing), (added, three) = widths(svg, "kept"), widths(svg, "arrives")

    assert nothing == 0
    assert stays == pytest.approx(2 * added, rel=1e-3)
    assert three == pytest.approx(1.5 * added, rel=1e-3)


def test_what_is_given_up_is_hatched():
    svg = drawn(bar(6, 4))

    assert "arrives" not in svg
    assert "<pattern" in svg
    assert "var(--leaves)" in svg


def test_what_there_is_in_all_frames_the_bar():
    svg = drawn(bar(2, 4, whole=8))

    assert widths(svg, "shade")[0] == pytest.approx(4 * widths(svg, "kept")[0], rel=1e-3)


def test_limits_and_guarantees_are_marked():
    assert "var(--limit)" not in drawn(bar())
    assert drawn(bar(limit=8)).count("var(--limit)") == 1
    assert "var(--limit)" in drawn(bar(owed=2))


def test_of_nothing_nothing_is_drawn():
    assert drawn() == ""
    assert "NaN" not in drawn(bar(0, 0, whole=0))
