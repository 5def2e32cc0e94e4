"""
Value of more nodes of each kind, in two ways that must not be confused.

The marginal value comes from the linear relaxation, which allows fractions of jobs: its value with one more
node minus its value without. The gain comes from a new plan with a number of added nodes.
"""

from __future__ import annotations

import pkgutil
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.planner.epoch import limits_of
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.text_format import node_size
from gpuplan.planner.whatif.answers.sensitivity import NodeValue, Sensitivity, Step, kind_name
from gpuplan.planner.whatif.grid.workers import WorkerTask, run_all_tasks
from gpuplan.planner.whatif.patch.apply_changes import patch
from gpuplan.planner.whatif.patch.scenario import Scenario
from gpuplan.planner.whatif.patch.scenario_changes import AddNodes
from gpuplan.planner.whatif.trials import TrialCase, failure_text, task_of, trial_result
from gpuplan.solvers.interface import Budget, validated_answer
from gpuplan.solvers.solver_child import RELAXATION_ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.answers.comparison import PlanFigures
    from gpuplan.planner.whatif.grid.workers import Workers
    from gpuplan.solvers.interface import Solver
    from gpuplan.solvers.worker import ChildOutcome

ENTRY: Final = "gpuplan.planner.whatif.grid.sensitivity:relaxed"

_SECONDS: Final = 120.0
"""Time for building the problem and the formulation, besides the relaxation."""


@dataclass(frozen=True, slots=True)
class EquivalentNodes:
    """A kind of nodes with equal value."""

    words: str
    like: str
    nodes: int
    pool: str | None = None

    @property
    def name(self) -> str:
        """The kind in words, with the pool if one is set."""
        return kind_name(self.words, self.pool)

    def more(self, count: int) -> AddNodes:
        """Build the change that adds `count` of these nodes."""
        pattern = {"like": self.like} if self.pool is None else {"pool": self.pool}
        return AddNodes.model_validate({"change": "add_nodes", "count": count, **pattern})


def equivalent_nodes(snapshot: Snapshot) -> list[EquivalentNodes]:
    """
    List the kinds of nodes by their size in words, and the kinds of pools that have no such node yet.

    The most common shape represents a kind. The node to copy is schedulable if there is such a node.
    """
    by_words: dict[str, list[Node]] = defaultdict(list)
    for node in snapshot.cluster.nodes:
        by_words[node_size(node)].append(node)
    kinds = [EquivalentNodes(words, _commonest(nodes).name, len(nodes)) for words, nodes in by_words.items()]
    kinds += [
        EquivalentNodes(words, pool.template.name, 0, pool.name)
        for pool in snapshot.cluster.pools
        if (words := node_size(pool.template)) not in by_words
    ]
    return sorted(kinds, key=lambda kind: (-kind.nodes, kind.name))


def _commonest(nodes: Sequence[Node]) -> Node:
    shapes: dict[object, list[Node]] = defaultdict(list)
    for node in nodes:
        shape = (node.cpu_milli, node.memory_mib, node.disk_mib, node.taints, sorted(node.labels.items()))
        shapes[str(shape)].append(node)
    common = max(shapes.values(), key=len)
    return min(common, key=lambda node: (not node.schedulable, node.name))


def sensitivity(
    snapshot: Snapshot,
    policy: Policy,
    kinds: Sequence[EquivalentNodes],
    engine: Workers,
    *,
    seed: int,
    steps: Sequence[int],
    ended: Callable[[str], None] = lambda _: None,
) -> Sensitivity:
    """Value more nodes of each kind in both ways; all plans and relaxations run in parallel."""
    asked = [_World(), _World(relaxed=True)]
    for kind in kinds:
        asked += [_World(kind, 1, relaxed=True), *(_World(kind, count) for count in steps)]
    tasks = [each.task(snapshot, policy, seed) for each in asked]
    outcomes = dict(
        zip(asked, run_all_tasks(engine, tasks, [each.name for each in asked], ended), strict=True)
    )
    plans = {each: trial_result(outcome) for each, outcome in outcomes.items() if not each.relaxed}
    bounds = {each: _bound(outcome) for each, outcome in outcomes.items() if each.relaxed}
    without, relaxation = plans[_World()].figures, bounds[_World(relaxed=True)]
    faults = {each: plan.failure for each, plan in plans.items() if plan.failure}
    faults |= {
        each: failure_text(outcomes[each], "relaxing") for each, bound in bounds.items() if bound is None
    }
    return Sensitivity(
        snapshot=snapshot.fingerprint(),
        policy=policy.fingerprint(),
        epoch=snapshot.taken_at,
        seed=seed,
        objective=None if without is None else without.objective,
        relaxation=relaxation,
        kinds=tuple(
            NodeValue(
                kind=kind.words,
                like=kind.like,
                pool=kind.pool,
                nodes=kind.nodes,
                marginal=_less(bounds[_World(kind, 1, relaxed=True)], relaxation),
                steps=tuple(_step(count, plans[_World(kind, count)].figures, without) for count in steps),
            )
            for kind in kinds
        ),
        failures=tuple(f"{each.name}: {faults[each]}" for each in asked if each in faults),
    )


@dataclass(frozen=True, slots=True)
class _World:
    """A world to plan or relax: the base, or the base with added nodes of a kind."""

    kind: EquivalentNodes | None = None
    more: int = 0
    relaxed: bool = False

    @property
    def name(self) -> str:
        """Name in words, for progress messages."""
        world = "base" if self.kind is None else f"{self.more:,} more: {self.kind.name}"
        return f"relaxation of {world}" if self.relaxed else world

    def task(self, snapshot: Snapshot, policy: Policy, seed: int) -> WorkerTask:
        """Build the task for an engine."""
        if self.kind is not None:
            patched = patch(snapshot, policy, Scenario(name="more", changes=(self.kind.more(self.more),)))
            snapshot, policy = patched.snapshot, patched.policy
        case = TrialCase(snapshot, policy, seed)
        return _relaxation(case) if self.relaxed else task_of(case)


def _relaxation(case: TrialCase) -> WorkerTask:
    return WorkerTask(ENTRY, (case,), limits_of(case.policy, case.seed).seconds + _SECONDS)


def relaxed(case: TrialCase, _report: Callable[[object], None]) -> int | None:
    """Value of the linear relaxation of a world, rounded up to a whole point; None if it took too long."""
    problem = build_problem(case.snapshot, case.policy)
    formulation = formulate(problem, Columns(problem))
    if not len(formulation.upper):  # nothing can start or change
        return formulation.constant
    limits = limits_of(case.policy, case.seed)
    budget = Budget(time.monotonic() + limits.seconds, limits.workers, case.seed)
    nothing = np.zeros(len(formulation.upper), dtype=np.int64)
    # This task has a separate process, so a crash of the solver library ends nothing else.
    relax: Solver = pkgutil.resolve_name(RELAXATION_ENTRY)
    answer = validated_answer(relax(formulation, budget, nothing, lambda _: None))
    return None if answer is None else answer.bound


def _bound(outcome: ChildOutcome) -> int | None:
    return outcome.last if isinstance(outcome.last, int) else None


def _less(value: int | None, base: int | None) -> int | None:
    return None if value is None or base is None else value - base


def _step(count: int, found: PlanFigures | None, base: PlanFigures | None) -> Step:
    if found is None or base is None:
        return Step(nodes=count)
    slacks = [None if each.bound is None else each.bound - each.objective for each in (found, base)]
    known = [slack for slack in slacks if slack is not None]
    return Step(
        nodes=count,
        gain=found.objective - base.objective,
        jobs=found.jobs_running - base.jobs_running,
        doubt=max(known) if len(known) == len(slacks) else None,
    )
