"""How answers are found; imports models only, and no solver library until one is asked to solve."""

from __future__ import annotations

from typing import Final

SOLVERS: Final = {
    "milp": "gpuplan.solvers.exact.milp:solve",
    "cpsat": "gpuplan.solvers.exact.cpsat:solve",
    "cbc": "gpuplan.solvers.exact.milp:solve_with_cbc",
}
"""Exact solvers by name: where the `interface.Solver` is, as an entry point (module:function)."""
