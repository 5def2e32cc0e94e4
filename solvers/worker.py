"""
One exact solver in a process of its own, so that it may crash or hang and the plan still comes in time.

The parent writes a pickled question to standard input; the child answers on standard output. Solvers that
print there are turned to standard error.
"""

from __future__ import annotations

import io
import os
import pickle
import pkgutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.models.solution import SolveStatus
from planner.solvers.interface import Answer

if TYPE_CHECKING:
    from planner.models.formulation.rows import Formulation, Ints
    from planner.solvers.interface import Budget

GRACE_SECONDS: Final = 0.3
"""How long after its deadline a solver is waited for before it is killed."""


def solve_apart(solver: str, formulation: Formulation, budget: Budget, hint: Ints) -> Answer:
    """
    Run a solver, named as an entry point, in a child process that is killed soon after its deadline.

    Every way to end badly becomes an Answer: what it last reported, if anything, when it had to be killed;
    FAILED when it crashed or is missing.
    """
    question = pickle.dumps((solver, formulation, budget, hint))
    # -P and the path without "": what lies in the user's folder is not ours to import.
    child = [sys.executable, "-P", "-m", "planner.solvers.worker"]
    path = os.pathsep.join(folder for folder in sys.path if folder)
    killed = False
    try:
        done = subprocess.run(
            child,
            input=question,
            capture_output=True,
            timeout=budget.seconds + GRACE_SECONDS,
            check=False,
            env=os.environ | {"PYTHONPATH": path},
        )
        said, code, stderr = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        killed, said, code, stderr = True, error.stdout or b"", 0, b""
    last = _last_answer(said)
    if killed:
        detail = "did not stop at its time limit and was killed"
        return Answer(SolveStatus.NO_ANSWER, detail=detail) if last is None else replace(last, detail=detail)
    if code != 0:
        last_words = stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return Answer(SolveStatus.FAILED, detail=f"ended with code {code}: {last_words[0]}")
    return last or Answer(SolveStatus.FAILED, detail="gave no answer")


def _last_answer(said: bytes) -> Answer | None:
    """The last whole answer of a child that may have been killed while it wrote one."""
    last = None
    stream = io.BytesIO(said)
    while stream.tell() < len(said):
        try:
            answer = pickle.load(stream)  # noqa: S301 - written by our own child
        except Exception:  # noqa: BLE001 - bytes that are no answer can fail in any way
            break
        last = answer if isinstance(answer, Answer) else None
    return last


def main() -> None:
    """Read a question, answer it, reporting on the way."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def report(answer: Answer) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    solver, formulation, budget, hint = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
    report(pkgutil.resolve_name(solver)(formulation, budget, hint, report))


if __name__ == "__main__":
    main()
