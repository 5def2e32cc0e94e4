"""
Records: of each case the best objective and the least bound ever seen, in `tests/cases/bounds`.

A record only ever gets tighter. What a new plan or bound contradicts is wrong on one side: the plan, the
bound, or what the record remembers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.health.findings import with_exclusions
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.policy import SolverName
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot
from gpuplan.solvers.dual_bound import exact_bound
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts
from gpuplan.solvers.interface import SolverAnswer
from tests.support.builders.build import BY_WEIGHT, by_value
from tests.support.oracles.exhaustive_schedules import judged
from tests.support.oracles.relaxation_duals import duals
from tests.support.strategies.random_targets import nothing_changed

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "cases" / "bounds"
RECORD = "record.json"
DATA = (".yaml", ".json")


@dataclass(frozen=True)
class Record:
    """What is known of a case."""

    source: str
    """Folder of the snapshot and its policy, from the project's root."""
    digest: str
    """Of the files there: what is known is known of these."""
    objective: int | None = None
    """Of the best verified plan."""
    bound: int | None = None

    def tightened(self, found):
        """The record with what has been found."""
        objectives = [each for each in (self.objective, *found.objectives.values()) if each is not None]
        bounds = [each for each in (self.bound, *found.bounds.values()) if each is not None]
        return replace(self, objective=max(objectives, default=None), bound=min(bounds, default=None))

    def contradicted(self, found):
        """What of the found cannot be true beside the record, in words."""
        wrong = [
            f"{name} has a plan of {objective}, and the bound is {self.bound}"
            for name, objective in found.objectives.items()
            if self.bound is not None and objective > self.bound
        ]
        return wrong + [
            f"{name} claims the bound {bound}, and there is a plan of {self.objective}"
            for name, bound in found.bounds.items()
            if self.objective is not None and bound < self.objective
        ]


@dataclass(frozen=True)
class Found:
    """Objectives of verified plans, and bounds, by the solver that found them."""

    objectives: dict[str, int]
    bounds: dict[str, int]


def bound_of_the_hint(formulation, _budget, hint, _report):
    """A solver that takes what it is given for the best there is."""
    return SolverAnswer(SolveStatus.FEASIBLE, hint, formulation.points(hint))


def load(name):
    """The record of a case."""
    return Record(**json.loads((CASES / name / RECORD).read_text()))


def save(name, record):
    """Write the record of a case."""
    (CASES / name / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n")


def names():
    """All cases."""
    return sorted(path.parent.name for path in CASES.glob(f"*/{RECORD}"))


def digest(source):
    """Of the files that make up a snapshot and its policy, their names included; not of what-ifs."""
    total = hashlib.sha256()
    for path in sorted((ROOT / source).iterdir()):
        if path.suffix in DATA and not path.name.startswith("scenario."):
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def search(source, seconds, solvers=("milp",)):
    """Plans and bounds that each solver finds within so many seconds, and bounds that need no search."""
    folder = str(ROOT / source)
    policy = load_policy(default_policy_path(folder))
    snapshot = survey_damage(with_exclusions(load_snapshot(folder), policy.health)).sound
    # Among tiers a bound is that of plans which serve the higher priorities as well: of no others.
    policy = policy.model_copy(update={"priority": BY_WEIGHT, "objective": by_value().objective})
    problem = build_problem(snapshot, policy)
    nothing = judged(snapshot, policy, nothing_changed(snapshot)).objective
    question = reserve_promised_starts(problem)
    formulation = formulate(question, Columns(question))
    certificates = {
        "certificate": duals(formulation)[1],
        "stopped certificate": duals(formulation, iterations=len(formulation.rows) // 4)[1],
        "no multipliers": np.zeros(len(formulation.rows)),
    }
    bounds = {
        name: exact_bound(formulation, multipliers) + formulation.constant
        for name, multipliers in certificates.items()
    }
    found = Found({}, bounds | {"ceiling": nothing + problem.ceiling})
    for solver in solvers:
        budget = policy.budget.model_copy(update={"time_limit_ms": round(1000 * seconds)})
        patience = {"budget": budget, "solvers": (SolverName(solver),)}
        asked = policy.model_copy(update=patience)
        solution = plan_epoch(snapshot, asked, seed=0, created_at=snapshot.taken_at).solution
        found.objectives["greedy"] = solution.greedy_objective
        found.objectives[solver] = solution.objective
        found.bounds[solver] = solution.bound
    return found
