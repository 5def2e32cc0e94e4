"""The certificate against enumeration: whatever the multipliers, no assignment scores more."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpuplan.models.formulation.rows import Formulation, row
from gpuplan.solvers.dual_bound import DualBound, exact_bound
from tests.support.seeds import examples

FAMILIES = ("assignment", "eviction", "horizon", "gpu_capacity", "gang")
ANY = st.floats(allow_nan=True, allow_infinity=True)
USUAL = st.floats(-20, 20)
EXACT = st.builds(lambda eighths: eighths / 8, st.integers(-100, 100))
"""Multipliers that fixed point does not round."""


@st.composite
def programs(draw):
    """Integer programs of up to five columns; half of the rows are choices or look like them."""
    count = draw(st.integers(1, 5))
    upper = np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    objective = np.array(draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count)))
    return Formulation(upper, objective, tuple(draw(st.lists(rows(count), max_size=4))))


@st.composite
def rows(draw, count):
    columns = draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    one = st.just(1) if draw(st.booleans()) else st.sampled_from((-3, -2, -1, 1, 2, 5))
    side = draw(st.sampled_from(("upper", "lower", "both", "equal")))
    least = draw(st.integers(-6, 6))
    most = least if side == "equal" else least + draw(st.integers(0, 4))
    return row(
        draw(st.sampled_from(FAMILIES)),
        (),
        [(column, draw(one)) for column in columns],
        lower=None if side == "upper" else least,
        upper=None if side == "lower" else most,
    )


def with_multipliers(kind):
    return programs().flatmap(
        lambda program: st.tuples(
            st.just(program), st.lists(kind, min_size=len(program.rows), max_size=len(program.rows))
        )
    )


def box(program):
    """All assignments, rows or not."""
    return (
        np.array(each) for each in itertools.product(*(range(most + 1) for most in program.upper.tolist()))
    )


def optimum(program):
    """The most that an assignment scores; None if the rows exclude each other."""
    scores = [program.points(values) for values in box(program) if not program.violated_rows(values)]
    return max(scores, default=None)


def by_definition(program, multipliers):
    """The formula of `DualBound.bound`, in fractions and by trying everything."""
    kept = set(DualBound(program).gub_row.tolist()) - {-1}
    best = None
    for values in box(program):
        if any(not program.rows[index].holds(values) for index in kept):
            continue
        score = Fraction(program.points(values))
        for index, (each, multiplier) in enumerate(zip(program.rows, multipliers, strict=True)):
            limit = each.upper if multiplier > 0 else each.lower
            if index not in kept and limit is not None:
                score += Fraction(multiplier) * (limit - each.value(values))
        best = score if best is None else max(best, score)
    return math.floor(best)


@pytest.mark.slow
@given(with_multipliers(ANY | USUAL))
@settings(max_examples=examples(250))
def test_no_assignment_scores_more_whatever_the_multipliers(case):
    program, multipliers = case
    best = optimum(program)
    assume(best is not None)
    assert exact_bound(program, np.array(multipliers, dtype=float)) >= best


@pytest.mark.slow
@given(with_multipliers(EXACT))
@settings(max_examples=examples(250))
def test_bound_is_that_of_the_formula_to_the_last_point(case):
    program, multipliers = case
    assert exact_bound(program, np.array(multipliers, dtype=float)) == by_definition(program, multipliers)


@pytest.mark.slow
@given(programs())
@settings(max_examples=examples(150))
def test_choices_share_no_column_and_are_all_the_rows_of_their_columns_say(program):
    choice = DualBound(program).gub_row
    for index in set(choice.tolist()) - {-1}:
        kept = program.rows[index]
        assert set(np.flatnonzero(choice == index)) == set(kept.columns.tolist())
        assert (kept.coefficients == 1).all()
        assert kept.holds(np.zeros_like(program.upper))


LARGE = Formulation(
    upper=np.array([2**31, 2**31, 2**20]),
    objective=np.array([10**9, 999_999_999, -1]),
    rows=(
        row("gpu_capacity", (), [(0, 10**6), (1, 999_999), (2, -7)], upper=10**15),
        row("quota", (), [(0, 1), (1, 1)], lower=3),
    ),
)


@given(st.tuples(ANY | st.floats(900, 1100), ANY))
@example((1000.0, 0.0))
@example((1e300, -1e300))
@example((float("inf"), 0.5))
@settings(max_examples=examples(150))
def test_large_numbers_do_not_overflow(multipliers):
    values = np.array([10**9, 0, 2**20])
    assert not LARGE.violated_rows(values)

    bound = exact_bound(LARGE, np.array(multipliers))

    assert bound >= LARGE.points(values)
    # No better than the best multipliers, and never far worse than none at all.
    assert bound >= 10**18
    none = exact_bound(LARGE, np.zeros(2))
    assert none == (10**9 + 999_999_999) * 2**31


def test_large_numbers_keep_the_last_point():
    assert exact_bound(LARGE, np.array([1000.0, 0.0])) == 1000 * 10**15 + 999 * 2**31 + 6999 * 2**20


def test_huge_multiplier_of_a_row_without_columns_is_no_overflow():
    program = Formulation(np.array([1]), np.array([5]), (row("quota", (), [], upper=3),))

    assert exact_bound(program, np.array([1e300])) >= 5
    assert exact_bound(program, np.array([0.0])) == 5


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf"), -2.0])
def test_multipliers_that_say_nothing_count_as_none(wrong):
    program = Formulation(np.array([4]), np.array([3]), (row("gpu_capacity", (), [(0, 1)], upper=2),))

    assert exact_bound(program, np.array([wrong])) == exact_bound(program, np.array([0.0])) == 12
    assert exact_bound(program, np.array([3.0])) == 6


def test_choices_need_no_multiplier():
    """Two classes of several options and one alone: the best option of each, as often as there are jobs."""
    program = Formulation(
        upper=np.array([2, 9, 9, 9, 5]),
        objective=np.array([7, 5, 4, 6, 1]),
        rows=(
            row("assignment", (0,), [(0, 1), (1, 1)], upper=3),
            row("assignment", (1,), [(2, 1), (3, 1)], upper=2),
        ),
    )

    assert exact_bound(program, np.zeros(2)) == (2 * 7 + 1 * 5) + 2 * 6 + 5


def test_of_choices_that_share_a_column_the_longest_is_kept():
    program = Formulation(
        upper=np.array([9, 9, 9, 9]),
        objective=np.array([1, 1, 1, 1]),
        rows=(
            row("assignment", (0,), [(0, 1), (1, 1)], upper=1),
            row("horizon", ("once", 0), [(1, 1), (2, 1), (3, 1)], upper=2),
        ),
    )

    assert DualBound(program).gub_row.tolist() == [-1, 1, 1, 1]
    assert exact_bound(program, np.zeros(2)) == 9 + 2
    assert exact_bound(program, np.array([1.0, 0.0])) == 1 + 2


def test_formulation_without_rows_or_columns_has_a_bound():
    assert exact_bound(Formulation(np.zeros(0, int), np.zeros(0, int), ()), np.zeros(0)) == 0
    assert exact_bound(Formulation(np.array([3, 2]), np.array([4, -1]), ()), np.zeros(0)) == 12
