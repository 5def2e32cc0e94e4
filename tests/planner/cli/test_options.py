from __future__ import annotations

import json

import click
import pytest

from gpuplan.planner.cli.options import FRACTION


@pytest.mark.parametrize(
    ("text", "share"),
    [("1%", 0.01), ("1 %", 0.01), ("0.5%", 0.005), ("0.01", 0.01), (".5", 0.5), ("1e-3", 0.001), ("0", 0.0),
     ("100%", 1.0), ("0.1%", 0.001), (0.25, 0.25)],
)  # fmt: skip
def test_a_share_is_a_percentage_or_a_fraction(text, share):
    assert FRACTION.convert(text, None, None) == share


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "1 could be a percentage: write 1% if it is one"),
        ("5.0", "write 5% if it is one"),
        ("101%", "expected at least 0% and at most 100%, found 101%"),
        ("-1%", "expected at least 0% and at most 100%, found -1%"),
        ("-0.5", "expected at least 0% and at most 100%, found -0.5"),
        ("1e999%", "expected at least 0% and at most 100%"),
        ("0,5%", "expected a share such as 1% or 0.01, found '0,5%'"),
        ("nan", "expected a share such as 1% or 0.01"),
        ("inf", "expected a share such as 1% or 0.01"),
        ("%", "expected a share such as 1% or 0.01"),
        ("", "expected a share such as 1% or 0.01"),
    ],
)
def test_what_is_no_share_is_refused_with_what_to_write(text, words):
    with pytest.raises(click.BadParameter, match=r".*") as refused:
        FRACTION.convert(text, None, None)

    assert words in refused.value.message


def test_the_gap_to_stop_at_goes_before_the_policys(gpuplan, quickstart):
    arguments = ("plan", quickstart, "--solver", "greedy", "--json")

    usual = json.loads(gpuplan(*arguments).out)["policy"]
    wide = json.loads(gpuplan(*arguments, "--stop-gap", "2 %").out)["policy"]

    assert wide["budget"]["stop_gap"] == 0.02
    assert usual.get("budget", {}).get("stop_gap", 0.0) == 0.0


def test_a_gap_that_is_none_is_a_usage_error(gpuplan, quickstart):
    shown = gpuplan("plan", quickstart, "--stop-gap", "200%")

    assert shown.code == 2
    assert "expected at least 0% and at most 100%, found 200%" in shown.err
