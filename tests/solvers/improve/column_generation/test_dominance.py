"""Places that also do for others: which item gives way to which."""

from __future__ import annotations

import pytest

from gpuplan.models.problem.jobs import Shape
from gpuplan.solvers.improve.column_generation.dominance import dominance_pairs
from gpuplan.solvers.improve.column_generation.subproblem import PackingItem


def item(gpus=0, milli=0, cores=0, *, groups=(0, 1), points=()):
    return PackingItem(0, Shape(gpus, milli, (cores,)), frozenset(groups), points, most=1)


@pytest.mark.parametrize(
    ("giver", "taker", "swapped"),
    [
        (item(gpus=2), item(gpus=1), True),
        (item(gpus=1), item(milli=700), True),
        (item(milli=700), item(milli=300), True),
        (item(milli=300), item(), True),
        (item(milli=300), item(milli=700), False),
        (item(milli=900), item(gpus=1), False),
        (item(gpus=2), item(gpus=1, cores=1), False),
        (item(gpus=2), item(gpus=1, groups=(0,)), False),
        (item(gpus=2, groups=(0,)), item(gpus=1), True),
        (item(gpus=2), item(gpus=1, points=((0, -5),)), False),
    ],
)
def test_places_are_given_to_what_takes_no_more_and_may_be_there(giver, taker, swapped):
    assert ((0, 1) in dominance_pairs([giver, taker], alike=False)) == swapped


def test_swaps_that_follow_from_others_are_left_out():
    assert dominance_pairs([item(gpus=1), item(gpus=4), item(gpus=2)], alike=False) == [(1, 2), (2, 0)]
