"""Solvers and heuristics; they import models only, and a solver library only when that solver runs."""

from __future__ import annotations

from typing import Final

SOLVERS: Final = {
    "milp": "gpuplan.solvers.exact.milp:solve",
    "cpsat": "gpuplan.solvers.exact.cpsat:solve",
    "cbc": "gpuplan.solvers.exact.cbc:solve",
}
"""Entry point (module:function) of each exact solver, by name; each is an `interface.Solver`."""
