"""Random draws: the same on every machine, between both bounds, and by share."""

from __future__ import annotations

from collections import Counter

from gpuplan.planner.sources.synthetic import Draws
from gpuplan.planner.sources.workload_profile import DurationBand


def test_draws_are_the_same_on_every_machine():
    draws = Draws(7)

    assert [draws.below(1000) for _ in range(6)] == [323, 150, 650, 72, 535, 365]
    assert draws.shuffled("abcdefgh") == list("begfchda")


def test_a_draw_between_two_bounds_reaches_both():
    draws = Draws(0)

    assert {draws.between(1, 3) for _ in range(100)} == {1, 2, 3}


def test_shares_are_how_often_an_entry_is_drawn():
    bands = [DurationBand(share=share, shortest=60, longest=60 + share) for share in (0, 1, 3)]
    draws = Draws(1)

    drawn = Counter(draws.by_share(bands).share for _ in range(4000))

    assert set(drawn) == {1, 3}
    assert 900 < drawn[1] < 1100
