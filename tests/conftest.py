"""For tests anywhere."""

from __future__ import annotations

import pytest
from solver_doubles import apart_in_this_process

from planner.solvers import inquiring, portfolio


@pytest.fixture
def no_processes(monkeypatch):
    """Solvers work in this process: with small problems nearly all of the time goes into starting others."""
    monkeypatch.setattr(inquiring, "run_apart", apart_in_this_process)
    monkeypatch.setattr(portfolio, "run_apart", apart_in_this_process)
