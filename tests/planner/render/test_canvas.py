from __future__ import annotations

import re

import pytest

from gpuplan.planner.render.canvas import (
    DASHES,
    PAGE,
    PAPER,
    figure_of_page,
    inline_svg,
    shorten_label,
)


def drawn(key="k", *, words="word", marker="o"):
    with figure_of_page(1.0) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=PAGE.arrives, marker=marker)
        axes.bar([0], [1], facecolor="none", edgecolor=PAGE.leaves, hatch="//")
        axes.text(0, 0, words)
        return inline_svg(figure, key, label="What it <shows>")


def test_a_drawing_takes_its_colours_from_the_page():
    svg = drawn()

    assert "var(--arrives)" in svg
    assert "var(--ink)" in svg
    assert "#0d00" not in svg


def test_a_drawing_brings_no_style_font_nor_address_into_the_page():
    svg = drawn()

    assert not re.search(r"<style|font-family|https?:|xlink|<\?xml|<!", svg)


def test_drawings_of_one_page_share_no_ids():
    one, other = drawn("one"), drawn("other")
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, other)]

    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', one)) <= ids[0]


def test_text_stays_text_and_is_escaped():
    svg = drawn(words="<script>$a_1$")

    assert "&lt;script&gt;$a_1$</text>" in svg
    assert 'aria-label="What it &lt;shows&gt;"' in svg


@pytest.mark.slow
def test_the_same_figure_is_the_same_drawing():
    assert drawn() == drawn()


@pytest.mark.slow
def test_a_drawing_is_as_wide_as_a_telephone():
    width = float(re.search(r'viewBox="0 0 ([\d.]+) ', drawn())[1])

    assert 300 <= width <= 345


def test_lines_are_told_apart_without_colours():
    assert len(set(DASHES)) == len(DASHES) == len(PAGE.series) == len(PAPER.series)


@pytest.mark.parametrize(
    ("label", "expected"), [("short", "short"), ("a" * 30 + "-0123456", "a" * 17 + "…-0123456")]
)
def test_long_labels_lose_their_middle(label, expected):
    assert shorten_label(label) == expected
