"""The block model of a small snapshot, solved to the end."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import Budget
from tests.support.builders.build import by_value


@dataclass(frozen=True)
class Solved:
    """An optimal answer."""

    problem: object
    aggregate: object
    points: int

    @property
    def placed(self):
        """Jobs placed, by the name of the first job of their class."""
        total = Counter()
        for batch in self.aggregate.batches:
            for index, jobs in batch.jobs:
                total[self.problem.classes[index].jobs[0]] += jobs
        return total

    @property
    def stopped(self):
        """Names of the incumbents that are stopped."""
        return {self.problem.incumbents[v].job for v in self.aggregate.stopped}

    @property
    def moved(self):
        """Names of the incumbents that are moved."""
        return {self.problem.incumbents[v].job for v in self.aggregate.moved}

    def nodes_of(self, job):
        """(names of nodes, replicas) of the places of a job's class."""
        return [
            ({self.problem.nodes[node].name for node in nodes}, replicas)
            for batch in self.aggregate.batches
            if any(job in self.problem.classes[index].jobs for index, _ in batch.jobs)
            for nodes, replicas in batch.places
        ]


def solved(snapshot, policy=None):
    """Solve all families together."""
    problem = build_problem(snapshot, policy or by_value())
    x = Columns(problem)
    formulation = formulate(problem, x)
    nothing = np.zeros_like(formulation.upper)
    answer = cpsat.solve(formulation, Budget(time.monotonic() + 30), nothing, lambda _: None)
    assert answer.status == "OPTIMAL", answer
    assert not formulation.violated_rows(answer.values)
    return Solved(problem, decode(x, answer.values), formulation.points(answer.values))
