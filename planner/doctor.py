"""
Check of an installation: each solver solves a small problem in a separate process, and Slurm is asked.

Nothing is changed on a cluster.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.errors import PlannerError
from gpuplan.models.formulation.rows import Formulation, row
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.executors.slurm.cluster_lock import ClusterLock
from gpuplan.planner.executors.slurm.commands import call, cluster_identity
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.io.search_log import library_of
from gpuplan.planner.sources.slurm.slurm import read_slurm_live
from gpuplan.solvers import SOLVERS
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.worker import solve_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gpuplan.planner.sources.slurm.slurm import SlurmReading

_DISTRIBUTIONS: Final = ("ortools", "pulp", "highspy", "numpy", "pandas", "pydantic", "nvidia-ml-py", "click")
# Optimum of the small question that each solver is asked.
_ANSWER: Final = 13
# A solver that works answers in milliseconds; to load its library takes seconds on a busy machine.
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

_SLURM: Final = ("scontrol", "squeue", "sinfo", "scancel", "sdiag")
_SLURM_TRIED: Final = ((22, 5), (26, 5))
"""Oldest and newest version of Slurm that was read."""
_NO_CLUSTER: Final = "configuration source"
"""In what Slurm's commands say where no cluster is configured."""
_MAY_NOT: Final = re.compile(r"permission denied|invalid user id", re.IGNORECASE)
_NO_RESERVATION: Final = "reservation is invalid"
"""What Slurm says of the deletion of a reservation that is not there, to other users and to operators."""

_NVML: Final = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """Result of one check."""

    subject: str
    works: bool | None
    """None if it is absent but not needed."""
    detail: str
    advice: str = ""


def run_checks(url: str = "") -> Iterator[DoctorCheck]:
    """Run all checks, the cheapest first; `url` is that of a slurmrestd, if one is to be asked."""
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
    yield from check_slurm()
    if url:
        yield check_slurmrestd(url)


def check_slurm() -> Iterator[DoctorCheck]:
    """Slurm's commands, its cluster, the rights of this user and the lock; one check where is no Slurm."""
    lacks = [name for name in _SLURM if shutil.which(name) is None]
    if len(lacks) == len(_SLURM):
        yield DoctorCheck(
            "Slurm", works=None, detail="not here; only needed where a Slurm cluster is planned"
        )
        return
    if lacks:
        advice = "Install all of Slurm's client commands, or run gpuplan on a login node."
        yield DoctorCheck("Slurm", works=False, detail=f"lacks {', '.join(lacks)}", advice=advice)
        return
    try:
        identity = cluster_identity()
        version = _version_of(call("scontrol", "show", "config"))
    except PlannerError as error:
        yield _no_cluster(str(error))
        return
    yield _cluster(identity, version)
    yield _reading("Slurm reading", lambda: read_slurm_live(managed=True))
    yield _rights()
    yield _lock(identity)


def check_slurmrestd(url: str) -> DoctorCheck:
    """What a slurmrestd at a URL tells."""
    try:
        from gpuplan.planner.sources.slurm.rest import read_slurm_rest  # noqa: PLC0415 - an extra
    except ImportError:
        advice = "Install it: pip install 'gpuplan[rest]'"
        return DoctorCheck("slurmrestd", works=False, detail="httpx is not installed", advice=advice)
    return _reading("slurmrestd", lambda: read_slurm_rest(url, managed=True))


def _version_of(config: str) -> str:
    """Version of the controller, from `scontrol show config`."""
    found = re.search(r"^SLURM_VERSION\s*= (\S+)", config, flags=re.MULTILINE)
    return found[1] if found else ""


def _cluster(identity: str, version: str) -> DoctorCheck:
    found = re.match(r"(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    oldest, newest = _SLURM_TRIED
    detail = f"{identity}, version {version or 'unknown'}"
    if number < oldest:
        advice = "The JSON of versions before 22.05 is not read: update Slurm."
        return DoctorCheck("Slurm cluster", works=False, detail=detail, advice=advice)
    advice = "" if number <= newest else "Newer than 26.05, the newest version that was tried."
    return DoctorCheck("Slurm cluster", works=True, detail=detail, advice=advice)


def _no_cluster(said: str) -> DoctorCheck:
    if _NO_CLUSTER in said:
        advice = "On a cluster, SLURM_CONF has to name its slurm.conf if that is not in /etc/slurm."
        return DoctorCheck("Slurm cluster", works=None, detail="none is configured here", advice=advice)
    advice = "Is slurmctld running, and does SLURM_CONF name its cluster? `scontrol ping` asks it."
    return _failed("Slurm cluster", said, advice)


def _reading(subject: str, read: Callable[[], SlurmReading]) -> DoctorCheck:
    began = time.monotonic()
    try:
        found = read()
    except PlannerError as error:
        said, _, advice = str(error).partition("\n")
        return _failed(subject, said, advice)
    nodes, jobs = len(found.snapshot.cluster.nodes), len(found.snapshot.jobs)
    took = time.monotonic() - began
    detail = f"{nodes:,} nodes and {jobs:,} jobs, {len(found.managed):,} of them handed over, in {took:.1f} s"
    return DoctorCheck(subject, works=True, detail=detail)


def _rights() -> DoctorCheck:
    """Whether Slurm lets this user change reservations: it refuses to delete one that is not there."""
    subject, name = "Slurm rights", f"gpuplan_doctor_{secrets.token_hex(8)}"
    try:
        call("scontrol", "delete", f"ReservationName={name}")
    except PlannerError as error:
        said = str(error)
    else:
        said = ""
    if _MAY_NOT.search(said):
        advice = (
            "apply and run --apply need an operator: with accounts, `sacctmgr modify user NAME set "
            "adminlevel=Operator`; without, root or SlurmUser."
        )
        return DoctorCheck(subject, works=None, detail="may read and plan, not apply", advice=advice)
    if _NO_RESERVATION not in said:
        return _failed(subject, said, "Try `scontrol show reservation` by hand.")
    return DoctorCheck(subject, works=True, detail="an operator, as apply needs")


def _lock(identity: str) -> DoctorCheck:
    try:
        ClusterLock(f"Slurm cluster {identity}").require_free()
    except LockedError as error:
        said, _, advice = str(error).partition("\n")
        return DoctorCheck("Slurm lock", works=None, detail=said, advice=advice)
    except PlannerError as error:
        return _failed("Slurm lock", str(error), "Try `scontrol show reservation` by hand.")
    return DoctorCheck("Slurm lock", works=True, detail="free: no apply is under way")


def _failed(subject: str, said: str, advice: str) -> DoctorCheck:
    return DoctorCheck(subject, works=False, detail=" ".join(said.split()), advice=advice)


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
