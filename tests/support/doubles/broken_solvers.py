"""Solvers that misbehave, each in one way; what `gpuplan.solvers.SOLVERS` names instead."""

from __future__ import annotations

import ctypes
import os
import pkgutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import SolverAnswer
from gpuplan.solvers.worker import ChildOutcome, run_in_child


def crash(formulation, budget, hint, report):
    os.abort()


def raise_error(formulation, budget, hint, report):
    raise RuntimeError("out of licences")


def hang(formulation, budget, hint, report):
    time.sleep(600)


def report_and_hang(formulation, budget, hint, report):
    """Reports a bound and values, and never ends."""
    report(SolverAnswer(SolveStatus.NO_ANSWER, None, formulation.points(formulation.upper)))
    report(SolverAnswer(SolveStatus.FEASIBLE, hint, formulation.points(formulation.upper) - 1))
    time.sleep(600)


def report_and_crash(formulation, budget, hint, report):
    report(SolverAnswer(SolveStatus.FEASIBLE, hint, 10**9))
    os.abort()


def nothing(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.NO_ANSWER, bound=None, detail="gave up")


def infeasible(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.INFEASIBLE, detail="proved infeasible")


def everything(formulation, budget, hint, report):
    """Claims that all columns at their upper bounds are optimal."""
    return SolverAnswer(SolveStatus.OPTIMAL, formulation.upper, formulation.points(formulation.upper))


def negative(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, -np.ones_like(formulation.upper), 10**9)


def short(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, formulation.upper[:-1], 10**9)


def low_bound(formulation, budget, hint, report):
    """Feasible values with a bound that any plan beats."""
    return SolverAnswer(SolveStatus.OPTIMAL, hint, 1)


def too_modest(formulation, budget, hint, report):
    """The optimum, with a bound below what it is worth and above what greedy has."""
    answer = cpsat.solve(formulation, budget, hint, report)
    return replace(answer, bound=answer.bound - 1)


def no_bound(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.FEASIBLE, hint, None)


def empty(formulation, budget, hint, report):
    """Feasible, and far worse than the hint."""
    return SolverAnswer(SolveStatus.FEASIBLE, np.zeros_like(hint), None)


def no_values(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, None, 10**9)


def garbage(formulation, budget, hint, report):
    print("noise on standard output")
    return "42"


def killed(formulation, budget, hint, report):
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(formulation, budget, hint, report):
    os.kill(os.getpid(), signal.SIGSTOP)


def exits(formulation, budget, hint, report):
    os._exit(0)


def hang_in_c(formulation, budget, hint, report):
    """Never comes back to Python, and takes no hint from signals that can be refused."""
    _here()
    for refused in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(refused, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(600)


def hang_with_a_child(formulation, budget, hint, report):
    """Starts a program that holds its pipes, as PuLP does for CBC, and waits for it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        _here(child.pid)


def close_all_and_hang(formulation, budget, hint, report):
    """Says nothing more and lives on."""
    os.closerange(0, 100)
    time.sleep(600)


def flood(formulation, budget, hint, report):
    """Reports the same for ever, as fast as it can."""
    while True:
        report(SolverAnswer(SolveStatus.FEASIBLE, hint, formulation.points(formulation.upper)))


def optimum_and_crash(formulation, budget, hint, report):
    """Crashes after it has reported the optimum."""
    report(cpsat.solve(formulation, budget, hint, report))
    os.abort()


def optimum_and_hang(formulation, budget, hint, report):
    """Goes on for ever after it has reported the optimum, without a bound."""
    report(replace(cpsat.solve(formulation, budget, hint, report), status=SolveStatus.FEASIBLE, bound=None))
    time.sleep(600)


def report_garbage(formulation, budget, hint, report):
    """Reports what is no answer, and answers well."""
    for garbage_ in ("42", 42, [hint], object, b""):
        report(garbage_)
    return cpsat.solve(formulation, budget, hint, report)


def unpicklable(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, hint, 10**9, detail=lambda: "cannot be sent")


def not_numbers(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, np.full(hint.shape, np.nan), 10**9)


def report_not_numbers(formulation, budget, hint, report):
    """Reports on the way what it should not answer."""
    report(SolverAnswer(SolveStatus.FEASIBLE, np.full(hint.shape, np.nan), 10**9))
    report(SolverAnswer(SolveStatus.FEASIBLE, "101", float("nan")))
    return cpsat.solve(formulation, budget, hint, report)


def fractions(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, hint + 0.25, 10**9)


def list_of_values(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, hint.tolist(), 10**9)


def square(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.OPTIMAL, np.zeros((len(hint), len(hint)), dtype=np.int64), 10**9)


def bound_is_no_number(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.FEASIBLE, hint, float("nan"))


def bound_is_text(formulation, budget, hint, report):
    return SolverAnswer(SolveStatus.FEASIBLE, hint, "700")


def unknown_status(formulation, budget, hint, report):
    return SolverAnswer("BEST", hint, 10**9)


def optimal_but_not(formulation, budget, hint, report):
    """Calls the hint optimal, and gives a bound that says otherwise."""
    return SolverAnswer(SolveStatus.OPTIMAL, hint, formulation.points(formulation.upper))


def bound_in_between(formulation, budget, hint, report):
    """A bound above the hint's plan and below a better one that may be found later."""
    return SolverAnswer(SolveStatus.FEASIBLE, hint, formulation.points(hint) + 50)


def multipliers_not_finite(formulation, budget, hint, report):
    """Hands over multipliers from which no bound follows."""
    for wild in (np.nan, np.inf, -np.inf, 1e308):
        report(SolverAnswer(SolveStatus.NO_ANSWER, hint, multipliers=np.full(len(formulation.rows), wild)))
    return SolverAnswer(SolveStatus.NO_ANSWER, detail="gave up")


def multipliers_at_random(formulation, budget, hint, report):
    """Multipliers of either sign: whatever follows from them has to be true."""
    for seed in range(20):
        wild = np.random.default_rng(seed).normal(scale=10.0**seed, size=len(formulation.rows))
        report(SolverAnswer(SolveStatus.NO_ANSWER, hint, multipliers=wild))
    return SolverAnswer(SolveStatus.NO_ANSWER, detail="gave up")


def multipliers_of_another_model(formulation, budget, hint, report):
    report(SolverAnswer(SolveStatus.NO_ANSWER, hint, multipliers=np.zeros(len(formulation.rows) + 1)))
    return SolverAnswer(SolveStatus.NO_ANSWER, hint[:-1], multipliers=np.zeros((2, 2)), detail="gave up")


def loud(formulation, budget, hint, report):
    """Prints megabytes wherever it can, and answers well."""
    for stream in (1, 2):
        os.write(stream, b"\x80 noise \n" * 2**17)
    print("x" * 2**20)
    return cpsat.solve(formulation, budget, hint, report)


def loud_and_crash(formulation, budget, hint, report):
    """Its last words are a megabyte long."""
    print("x" * 2**20, file=sys.stderr)
    os.abort()


def interrupted(formulation, budget, hint, report):
    """Gets what a terminal sends to a whole group at Ctrl-C, and answers well."""
    os.kill(os.getpid(), signal.SIGINT)
    return cpsat.solve(formulation, budget, hint, report)


def _here(pid=None):
    """Leave the id of a process where the test looks for it."""
    if "SOLVER_DOUBLE_PID" in os.environ:
        path = Path(os.environ["SOLVER_DOUBLE_PID"])
        path.with_suffix(".tmp").write_text(str(pid or os.getpid()))
        path.with_suffix(".tmp").rename(path)


def apart_in_this_process(entry, arguments, seconds, listen):
    """What `worker.run_in_child` does, without a process of its own: faster, and good enough for a solver."""
    last = pkgutil.resolve_name(entry)(*arguments, listen)
    listen(last)
    return ChildOutcome(last)


def count_to(number, report):
    for each in range(1, number + 1):
        report(each)
    return "done"


def a_lot_of(number, report):
    return b"x" * number


def start_another_and_hang(report):
    report(subprocess.Popen(["sleep", "600"]).pid)
    time.sleep(600)


def tell_pid_and_hang(report):
    report(os.getpid())
    time.sleep(600)


def work_apart_and_hang(report):
    run_in_child(f"{__name__}:tell_pid_and_hang", (), 600.0, report)


def interrupt_own_group(report):
    os.killpg(os.getpgid(0), signal.SIGINT)
    time.sleep(0.2)
    return "still here"


class Ids(NamedTuple):
    """What the kernel calls a process and what it belongs to."""

    pid: int
    parent: int
    group: int
    session: int


def ids_of_process(report):
    return Ids(os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0))


def end_at_once(report):
    print("out of ideas", file=sys.stderr, flush=True)
    os._exit(3)


def loaded_modules(report):
    return frozenset(sys.modules)


_held = []


def hold(each):
    _held.append(each)


def what_is_held(report):
    return _held
