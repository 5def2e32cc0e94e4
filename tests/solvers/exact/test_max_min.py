"""Max-min shares: as the paper has them, as good as any, and of what there is."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from gpuplan.solvers.exact.max_min import max_min_shares


def least(speed, gpus, capacity, shares):
    """Of all jobs the smallest part of what an equal share brings, as the linear program counts it."""
    equal = speed @ capacity / capacity.sum()
    return float(((speed * shares).sum(axis=1) * gpus / equal).min())


def test_the_example_of_the_paper_has_its_value():
    # Three jobs on one V100 and one K80 (Gavel, section 4.1), rounded to hundredths there.
    speed = np.array([[4.0, 1.0], [3.0, 1.0], [2.0, 1.0]])

    found = max_min_shares(speed, np.ones(3), np.ones(2))

    assert found == pytest.approx(np.array([[0.45, 0.0], [0.45, 0.09], [0.09, 0.91]]), abs=0.005)
    assert least(speed, np.ones(3), np.ones(2), found) == pytest.approx(8 / 11)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_other_shares_are_better(seed):
    draw = random.Random(f"shares {seed}")
    speed = np.array([[draw.choice((1, 2, 4)), draw.choice((0, 1, 2))] for _ in range(3)], dtype=float)
    gpus = np.array([draw.choice((1, 2)) for _ in range(3)], dtype=float)
    capacity = np.array([2.0, 2.0])

    found = max_min_shares(speed, gpus, capacity)

    steps = [(first / 5, second / 5) for first in range(6) for second in range(6 - first)]
    best = max(
        least(speed, gpus, capacity, np.array(shares))
        for shares in product(steps, repeat=3)
        if all((gpus @ np.array(shares)) <= capacity)
    )
    assert least(speed, gpus, capacity, found) >= best - 1e-9
    assert (gpus @ found <= capacity + 1e-6).all()
    assert (found.sum(axis=1) <= 1 + 1e-6).all()
    assert (found[speed == 0] == 0).all()


def test_equal_jobs_have_equal_shares_by_their_gpus():
    found = max_min_shares(np.ones((2, 1)), np.array([4.0, 8.0]), np.array([8.0]))

    # The wide one has half the time: 4 x + 8 y = 8 with 4 x = 8 y.
    assert found.ravel() == pytest.approx([1.0, 0.5])


def test_of_nothing_there_are_no_shares():
    assert max_min_shares(np.zeros((0, 2)), np.zeros(0), np.ones(2)).shape == (0, 2)
