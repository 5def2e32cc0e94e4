"""A row names each column once, whatever a family says: solvers do strange things with two entries of one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.formulation.rows import row, row_of_arrays, undominated
from gpuplan.planner.problem_builder import build_problem
from tests.support.strategies import instances


def test_entries_of_the_same_column_are_added_up():
    columns, coefficients = np.array([7, 3, 7, 5]), np.array([4, 6, -2, 0])

    found = row_of_arrays("cpu_memory", (), columns, coefficients, upper=9)

    assert dict(zip(found.columns.tolist(), found.coefficients.tolist(), strict=True)) == {3: 3, 7: 1}
    assert found.upper == 4  # all divided by two, rounded towards feasibility
    assert row("cpu_memory", (), [(7, 4), (3, 6), (7, -2)], upper=9).value(np.arange(8)) == 3 * 3 + 7


def test_entries_that_cancel_out_leave_no_column():
    found = row_of_arrays("cpu_memory", (), np.array([1, 2, 1]), np.array([5, 1, -5]), upper=0)

    assert found.columns.tolist() == [2]


@given(
    st.lists(st.tuples(st.lists(st.integers(-2, 3), min_size=4, max_size=4), st.integers(-2, 6)), max_size=6)
)
def test_rows_that_are_left_out_are_implied_by_the_others(drawn):
    most = np.array([1, 2, 1, 2])
    rows = [
        row("preemption", (at,), list(enumerate(coefficients)), upper=upper)
        for at, (coefficients, upper) in enumerate(drawn)
    ]

    kept = undominated(rows, most)

    assert kept == [each for each in rows if each in kept]
    for point in product(*(range(bound + 1) for bound in most)):
        values = np.array(point)
        assert all(each.holds(values) for each in rows) == all(each.holds(values) for each in kept)


def test_of_rows_with_equal_columns_the_tightest_is_kept():
    loose, tight, equal, free = (
        row("preemption", (at,), [(0, 2), (1, coefficient)], upper=upper)
        for at, (coefficient, upper) in enumerate([(1, 4), (3, 3), (3, 3), (3, 9)])
    )

    assert undominated([loose, tight, equal, free], np.array([2, 2])) == [tight]


@pytest.mark.slow
@pytest.mark.parametrize("make", [instances.everything, instances.everything_mixed])
def test_no_family_names_a_column_twice_where_gangs_leave_crowded_nodes(make):
    """There one column, that a gang leaves, brings something on each of its nodes."""
    params, crowded = FormulationParams(max_patterns=0, max_average_patterns=0), 0
    for seed in range(100):
        instance = make(seed)
        problem = build_problem(instance.snapshot, instance.policy)
        x = Columns(problem, params)
        for each in formulate(problem, x).rows:
            assert len(np.unique(each.columns)) == len(each.columns), each
        crowded += bool(x.eviction_patterns.crowded)
    assert crowded >= 20
