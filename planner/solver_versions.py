"""Which library each exact solver is, and its version here."""

from __future__ import annotations

import importlib.metadata
from typing import Final

LIBRARIES: Final = {"milp": "highspy", "cpsat": "ortools", "cbc": "pulp", "scip": "ortools"}
"""Distributions by solver."""


def library_of(solver: str) -> str:
    """`highspy 1.13.1`, `highspy not installed`; nothing for a solver that needs none."""
    name = LIBRARIES.get(solver)
    if name is None:
        return ""
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} not installed"
