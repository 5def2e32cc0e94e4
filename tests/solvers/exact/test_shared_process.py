"""HiGHS and OR-Tools in one process: some versions cannot share one, in either import order."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("order", [("milp", "cpsat"), ("cpsat", "milp")])
def test_both_solvers_answer_in_one_process(order):
    script = f"""
import time
import numpy as np
from gpuplan.models.formulation.rows import Formulation, row
from gpuplan.solvers.exact import {order[0]}, {order[1]}
from gpuplan.solvers.interface import Budget
question = Formulation(
    upper=np.array([5, 5]),
    objective=np.array([3, 2]),
    rows=(row("assignment", ("only",), [(0, 2), (1, 1)], upper=7),),
)
for solver in ({order[0]}, {order[1]}):
    answer = solver.solve(question, Budget(time.monotonic() + 20), np.zeros(2, dtype=np.int64), print)
    print(answer.status, answer.bound, answer.values.tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    # 2x + y <= 7 with 3x + 2y: x = 1, y = 5.
    answers = [line for line in done.stdout.splitlines() if line.startswith("OPTIMAL")]
    assert answers == ["OPTIMAL 13 [1, 5]"] * 2, done.stderr
