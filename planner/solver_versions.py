"""Library and installed version of each exact solver."""

from __future__ import annotations

import importlib.metadata
from typing import Final

LIBRARIES: Final = {"milp": "highspy", "cpsat": "ortools", "cbc": "pulp", "scip": "ortools"}
"""Python distribution of each solver."""


def library_of(solver: str) -> str:
    """`highspy 1.13.1`, `highspy not installed`; empty for a solver without a library."""
    name = LIBRARIES.get(solver)
    if name is None:
        return ""
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} not installed"
