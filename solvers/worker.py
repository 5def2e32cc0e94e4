"""
One exact solver in a process of its own, so that it may crash or hang and the plan still comes in time.

The parent writes a pickled question to standard input; the child answers on standard output. Solvers that
print there are turned to standard error.
"""

from __future__ import annotations

import os
import pickle
import pkgutil
import subprocess
import sys
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

    Every way to end badly becomes an Answer: NO_ANSWER when killed, FAILED when it crashed or is missing.
    """
    question = pickle.dumps((solver, formulation, budget, hint))
    try:
        child = subprocess.run(
            [sys.executable, "-m", "planner.solvers.worker"],
            input=question,
            capture_output=True,
            timeout=budget.seconds + GRACE_SECONDS,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except subprocess.TimeoutExpired:
        return Answer(SolveStatus.NO_ANSWER, detail="did not stop at its time limit and was killed")
    if child.returncode != 0:
        last_words = child.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return Answer(SolveStatus.FAILED, detail=f"ended with code {child.returncode}: {last_words[0]}")
    answer = pickle.loads(child.stdout)  # noqa: S301 - written by our own child
    return answer if isinstance(answer, Answer) else Answer(SolveStatus.FAILED, detail="gave no answer")


def main() -> None:
    """Read a question, answer it."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    solver, formulation, budget, hint = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
    answer = pkgutil.resolve_name(solver)(formulation, budget, hint)
    with answers:
        pickle.dump(answer, answers)


if __name__ == "__main__":
    main()
