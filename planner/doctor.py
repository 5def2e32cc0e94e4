"""Check of an installation: each solver solves a small problem in a separate process."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.formulation.rows import Formulation, row
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.io.search_log import library_of
from gpuplan.solvers import SOLVERS
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.worker import solve_in_child

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_DISTRIBUTIONS: Final = ("ortools", "pulp", "highspy", "numpy", "pandas", "pydantic", "nvidia-ml-py", "click")
_ANSWER: Final = 13
_SECONDS: Final = 30.0

_HIGHS_FIRST: Final = "import highspy, ortools.sat.python.cp_model"
_ORTOOLS_FIRST: Final = "import ortools.sat.python.cp_model, highspy"

_SCIP: Final = """
from ortools.math_opt.python import mathopt
model = mathopt.Model()
x, y = (model.add_integer_variable(lb=0, ub=5) for _ in range(2))
model.add_linear_constraint(2 * x + y <= 7)
model.maximize(3 * x + 2 * y)
print(round(mathopt.solve(model, mathopt.SolverType.GSCIP).best_objective_bound()))
"""

_NVML: Final = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """Result of one check."""

    subject: str
    works: bool | None
    """None if it is absent but not needed."""
    detail: str
    advice: str = ""


def run_checks() -> Iterator[DoctorCheck]:
    """Run all checks, the cheapest first."""
    yield DoctorCheck("python", works=True, detail=platform.python_version())
    for name in _DISTRIBUTIONS:
        yield _distribution(name)
    usable = set()
    for name, solver in sorted(SOLVERS.items()):
        finding = _solver(name, solver)
        usable |= {name} if finding.works else set()
        yield finding
    yield _scip()
    yield _coexistence()
    yield check_solver_chain(usable)
    yield _nvml()


def check_solver_chain(usable: Collection[str]) -> DoctorCheck:
    """The working solvers among those that a plan tries by default."""
    wanted = [str(name) for name in Policy().solvers]
    works = [name for name in wanted if name in usable]
    fails = "".join(f"; {name} fails" for name in wanted if name not in usable)
    if works:
        return DoctorCheck(
            "a plan uses", works=True, detail=f"{', then '.join(works)}, at last greedy{fails}"
        )
    others = sorted(set(usable))
    advice = (
        f"Name one that works in the policy: solvers: [{', '.join(others)}]."
        if others
        else "Reinstall with constraints.txt: greedy's plans are good, but nothing says how good."
    )
    return DoctorCheck("a plan uses", works=False, detail=f"greedy alone{fails}", advice=advice)


def _distribution(name: str) -> DoctorCheck:
    try:
        return DoctorCheck(name, works=True, detail=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return DoctorCheck(
            name, works=False, detail="not installed", advice=f"Install it: pip install {name}"
        )


def _solver(name: str, solver: str) -> DoctorCheck:
    # max 3x + 2y subject to 2x + y ≤ 7, x, y ≤ 5: x = 1, y = 5.
    question = Formulation(
        upper=np.array([5, 5]),
        objective=np.array([3, 2]),
        rows=(row("assignment", ("doctor",), [(0, 2), (1, 1)], upper=7),),
    )
    began = time.monotonic()
    answer = solve_in_child(solver, question, Budget(deadline=began + _SECONDS), np.zeros(2, dtype=np.int64))
    subject, library = f"solver {name}", library_of(name)
    if answer.bound == _ANSWER:
        took = time.monotonic() - began
        return DoctorCheck(subject, works=True, detail=f"{library}; solved in {took:.1f} s")
    detail = answer.detail or f"{answer.status}, bound {answer.bound} instead of {_ANSWER}"
    advice = "Plans fall back to the next solver, at last to greedy. Reinstall with constraints.txt."
    return DoctorCheck(subject, works=False, detail=f"{library}; {detail}", advice=advice)


def _scip() -> DoctorCheck:
    """SCIP comes with OR-Tools; plans do not need it."""
    works, said = _python(_SCIP)
    if works and said == str(_ANSWER):
        return DoctorCheck("SCIP by MathOpt", works=True, detail=f"{library_of('scip')}; solved")
    return DoctorCheck("SCIP by MathOpt", works=None, detail=f"not usable, and not needed: {said}")


def _coexistence() -> DoctorCheck:
    """HiGHS and OR-Tools share library names; some versions cannot be loaded together (or-tools#5246)."""
    faults = []
    for order, script in (("highspy first", _HIGHS_FIRST), ("ortools first", _ORTOOLS_FIRST)):
        works, said = _python(script)
        if not works:
            faults.append(f"{order}: {said}")
    if faults:
        advice = "Install highspy>=1.12,<1.14 with ortools 9.15."
        return DoctorCheck("solvers together", works=False, detail="; ".join(faults), advice=advice)
    return DoctorCheck("solvers together", works=True, detail="both import orders")


def _nvml() -> DoctorCheck:
    works, said = _python(_NVML)
    if works:
        return DoctorCheck("NVML", works=True, detail=f"{said} GPUs on this machine")
    return DoctorCheck("NVML", works=None, detail="no NVIDIA driver here; only needed where GPUs are")


def _python(script: str) -> tuple[bool, str]:
    """Whether a script succeeds in a separate process, and the last line of its output or errors."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False, f"no end after {_SECONDS:g} s"
    works = done.returncode == 0
    said = (done.stdout if works else done.stderr).strip().splitlines() or [f"code {done.returncode}"]
    return works, said[-1]
