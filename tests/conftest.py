"""For tests anywhere."""

from __future__ import annotations

import pytest
from solver_doubles import apart_in_this_process

from planner.solvers import inquiring, portfolio


@pytest.fixture(autouse=True)
def _solvers_in_this_process(request, monkeypatch):
    """
    Solvers work in this process: with small problems nearly all of the time goes into starting others.

    Tests marked `processes` are about the processes, and so are those that run commands in a shell.
    """
    if request.node.get_closest_marker("processes") is None:
        monkeypatch.setattr(inquiring, "run_apart", apart_in_this_process)
        monkeypatch.setattr(portfolio, "run_apart", apart_in_this_process)
