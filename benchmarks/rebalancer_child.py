"""
Meta's Rebalancer on one instance, run by an interpreter that has the package, with JSON on standard input and
output.

Imports nothing of gpuplan. Every job is an object and every node a container. Waiting jobs are in one more
container, and the goal is a small weight of it. The bindings take enumerations by their numbers.
"""

import json
import os
import sys
import time
from typing import Any

from rebalancer import ProblemSolver  # type: ignore[import-not-found, unused-ignore]

WAITING = "waiting"
ABSOLUTE = 1
"""`Limit.type`"""

HIGHS = 2
"""`OptimalSolverSpec.solverPackage`: the solver that is part of the wheel."""

_Spec = dict[str, Any]
_SINGLE: _Spec = {"singleMoveTypeSpec": {}}
_SWAP: _Spec = {"swapMoveTypeSpec": {}}
_LOOP: _Spec = {"tripleLoopMoveTypeSpec": {}}
_KL: _Spec = {"klSearchMoveTypeSpec": {}}


def searches(seconds: int) -> dict[str, _Spec]:
    """The solvers by name, each with the whole time: local searches by their moves, and the MIP."""

    def local(*moves: _Spec) -> _Spec:
        return {"localSearchSolverSpec": {"solveTime": seconds, "moveTypeList": list(moves)}}

    parts = {"overallTime": float(seconds), "perSubsetTime": 2.0, "assignmentVarBudget": 5000}
    subset = {**parts, "alwaysChosenContainers": [WAITING], "optimalConfig": {"solverPackage": HIGHS}}
    return {
        "single, swap": local(_SINGLE, _SWAP),
        "single, swap, loop": local(_SINGLE, _SWAP, _LOOP),
        "single, swap, KL": local(_SINGLE, _SWAP, _KL),
        "MIP of subsets": {"optimalSubsetSolverSpec": subset},
        "MIP": {"optimalSolverSpec": {"solveTime": seconds, "solverPackage": HIGHS}},
    }


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The node of each job, and the seconds used."""
    began = time.monotonic()
    jobs, nodes, start = question["jobs"], question["nodes"], question["start"]
    solver = ProblemSolver(service_name="rebalancer", service_scope="benchmark")
    solver.set_object_name("job").set_container_name("node")
    assignment: dict[str, list[str]] = {WAITING: [], **{node: [] for node in nodes}}
    for job in jobs:
        assignment[start.get(job, WAITING)].append(job)
    solver.set_assignment(assignment)
    solver.add_object_dimension("weight", {job: float(about["weight"]) for job, about in jobs.items()})
    for resource in question["resources"]:
        solver.add_object_dimension(resource, {job: float(about[resource]) for job, about in jobs.items()})
        room = {node: float(about[resource]) for node, about in nodes.items()}
        solver.add_container_dimension(resource, {**room, WAITING: 1e12})
        capacity = {"name": resource, "scope": "node", "dimension": resource}
        solver.add_constraint({"capacitySpec": {**capacity, "filter": {"itemsBlacklist": [WAITING]}}})
    models = {node: about["model"] for node, about in nodes.items()}
    solver.add_scope("model", {**models, WAITING: WAITING})
    barred = [
        {"object": job, "scopeItems": about["barred"]} for job, about in jobs.items() if about["barred"]
    ]
    if barred:
        avoided = {"name": "models", "scope": "model", "assignments": barred}
        solver.add_constraint({"avoidAssignmentsSpec": avoided})
    goal = {
        "name": "weight that waits",
        "scope": "node",
        "dimension": "weight",
        "limit": {"type": ABSOLUTE, "globalLimit": 0.0},
        "filter": {"itemsWhitelist": [WAITING]},
    }
    solver.add_goal({"capacitySpec": goal})
    solver.add_solver(searches(question["seconds"])[question["search"]])
    placed = solver.solve()["assignment"]
    return {
        "assignment": {job: node for job, node in placed.items() if node != WAITING},
        "seconds": time.monotonic() - began,
    }


if __name__ == "__main__":
    # Redirect what the library prints, so that standard output has only the answer.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    json.dump(answer(json.load(sys.stdin)), out)
    out.close()
