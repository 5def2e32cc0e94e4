"""What of an installation works: each solver is really asked, in a process of its own."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.models.formulation.rows import Formulation, row
from planner.solvers import SOLVERS
from planner.solvers.interface import Budget
from planner.solvers.worker import solve_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

_DISTRIBUTIONS: Final = ("ortools", "pulp", "highspy", "numpy", "pandas", "pydantic", "nvidia-ml-py", "click")
_ANSWER: Final = 13


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    subject: str
    works: bool | None
    """None: absent, and that is fine."""
    detail: str
    advice: str = ""


def checkup() -> Iterator[Finding]:
    """Check everything, cheapest first."""
    yield Finding("python", works=True, detail=platform.python_version())
    for name in _DISTRIBUTIONS:
        yield _distribution(name)
    for name, solver in sorted(SOLVERS.items()):
        yield _solver(name, solver)
    yield _coexistence()
    yield _nvml()


def _distribution(name: str) -> Finding:
    try:
        return Finding(name, works=True, detail=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, works=False, detail="not installed", advice=f"Install it: pip install {name}")


def _solver(name: str, solver: str) -> Finding:
    # max 3x + 2y subject to 2x + y ≤ 7, x, y ≤ 5: x = 1, y = 5.
    question = Formulation(
        upper=np.array([5, 5]),
        objective=np.array([3, 2]),
        rows=(row("assignment", ("doctor",), [(0, 2), (1, 1)], upper=7),),
    )
    began = time.monotonic()
    answer = solve_apart(solver, question, Budget(deadline=began + 30), np.zeros(2, dtype=np.int64))
    if answer.bound == _ANSWER:
        return Finding(f"solver {name}", works=True, detail=f"solved in {time.monotonic() - began:.1f} s")
    advice = "Plans fall back to the next solver, at last to greedy. Reinstall with constraints.txt."
    return Finding(f"solver {name}", works=False, detail=answer.detail or str(answer.status), advice=advice)


def _coexistence() -> Finding:
    """HiGHS and OR-Tools share library names; some versions cannot be loaded together (or-tools#5246)."""
    for order in (
        "import highspy, ortools.sat.python.cp_model",
        "import ortools.sat.python.cp_model, highspy",
    ):
        done = subprocess.run(
            [sys.executable, "-c", order], capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return Finding(
                "solvers together",
                works=False,
                detail=last,
                advice="Install highspy>=1.12,<1.14 with ortools 9.15.",
            )
    return Finding("solvers together", works=True, detail="both import orders")


def _nvml() -> Finding:
    script = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode == 0:
        return Finding("NVML", works=True, detail=f"{done.stdout.strip()} GPUs on this machine")
    return Finding("NVML", works=None, detail="no NVIDIA driver here; only needed where GPUs are")
