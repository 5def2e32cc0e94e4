"""Answers of HiGHS that violate rows which were not stated: searched again, never taken for the optimum."""

from types import SimpleNamespace

import numpy as np
import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.exact.milp import _Highs
from gpuplan.solvers.interface import SolverAnswer
from gpuplan.solvers.params.exact import HighsParams

BROKEN, SOUND = np.array([1, 1]), np.array([1, 0])
NOTHING = SolverAnswer(SolveStatus.NO_ANSWER, bound=2)


def answered(values, status=SolveStatus.FEASIBLE):
    return SolverAnswer(status, values, 2)


class Model:
    """Two columns with a point each; both at once violate a row, another one each time."""

    quota_covers = (object(),)

    def __init__(self, rows):
        self.rows, self.asked = rows, 0

    def points(self, values):
        return int(values.sum())

    def missing_rows(self, values):
        if (values == SOUND).all():
            return []
        self.asked += 1
        return [(0, (min(self.asked, self.rows),))]


class Scripted(_Highs):
    """Gives these answers in turn, then the last one again and again."""

    def __init__(self, *answers, rows=1000, ticks=None, seconds=60.0):
        self._formulation, self._vertex, self._cuts = Model(rows), np.zeros(2), []
        self._budget = SimpleNamespace(ticks=ticks, seconds=seconds)
        self.params, self.answers, self.shares = HighsParams(), list(answers), []

    def _add(self, cuts):
        self._cuts += cuts

    def _search(self, hint, share, *, fixed):
        self.shares.append(share)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_an_answer_that_cannot_be_mended_is_no_optimum():
    run = Scripted(
        answered(BROKEN, SolveStatus.OPTIMAL), NOTHING, answered(BROKEN, SolveStatus.OPTIMAL), rows=1
    )

    found = run.maximize(SOUND, 1.0)

    assert (found.status, found.values.tolist()) == (SolveStatus.FEASIBLE, [1, 1])


def test_without_time_to_mend_it_is_none_either():
    run = Scripted(answered(BROKEN, SolveStatus.OPTIMAL), seconds=-1.0)

    assert run.maximize(SOUND, 1.0).status is SolveStatus.FEASIBLE
    assert len(run.shares) == 1


def test_all_columns_are_searched_again_with_the_rows_that_were_added():
    run = Scripted(
        answered(BROKEN, SolveStatus.OPTIMAL), answered(SOUND), answered(SOUND, SolveStatus.OPTIMAL)
    )

    found = run.maximize(None, 1.0)

    assert (found.status, found.values.tolist(), len(run._cuts)) == (SolveStatus.OPTIMAL, [1, 0], 1)


@pytest.mark.parametrize("last", [NOTHING, answered(BROKEN)])
def test_an_answer_found_by_mending_is_kept_if_later_searches_find_none(last):
    run = Scripted(answered(BROKEN), answered(SOUND), last)

    found = run.maximize(SOUND, 1.0)

    assert (found.status, found.values.tolist()) == (SolveStatus.FEASIBLE, [1, 0])


def test_mending_ends_if_work_counts_instead_of_time():
    run = Scripted(answered(BROKEN), ticks=3)

    found = run.maximize(SOUND, 0.1)

    assert found.status is SolveStatus.FEASIBLE
    assert len(run.shares) == 1 + HighsParams().most_mendings
    assert max(run.shares) <= 0.1
