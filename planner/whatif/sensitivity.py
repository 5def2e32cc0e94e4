"""
Value of more nodes of each kind, in two ways that must not be confused.

The marginal value comes from the linear relaxation, which allows fractions of jobs: its value with one more
node minus its value without. The gain comes from a new plan with a number of added nodes.
"""

from __future__ import annotations

import pkgutil
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuplan.models.base import Noun
from gpuplan.models.errors import require_known
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.units import Count, Name
from gpuplan.planner.epoch import limits_of
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.text_format import node_size
from gpuplan.planner.whatif.grid import Grid, Knob
from gpuplan.planner.whatif.patch.scenario import PatchedSnapshot, apply_patch
from gpuplan.planner.whatif.runner import Variant, WhatIf, Workers, asked_of, planned_figures, run
from gpuplan.solvers.interface import Budget, Solver, validated_answer
from gpuplan.solvers.solver_child import RELAXATION_ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.measures import PlanFigures


class Step(Noun):
    """A number of added nodes, and the new plan with them."""

    nodes: Count
    gain: int | None = None
    """Points of that plan minus those of the plan without; None if there is no plan."""
    jobs: int | None = None
    """Number of additional jobs that run."""
    doubt: int | None = None
    """Most points by which the gain may be wrong in either direction, from both gaps; None if unknown."""


class NodeKind(Noun):
    """A kind of nodes with equal value, and what more of them are worth."""

    kind: str
    """The kind in words: `8 × H100-80GB`."""
    like: Name
    """The existing node, or the pool's template, that the new nodes copy."""
    pool: Name | None = None
    """Pool of the new nodes, if the cluster has no such node yet."""
    nodes: Count
    """Number of existing nodes of the kind."""
    marginal: int | None = None
    """Linear relaxation with one more node minus that without, in points; None if a value is missing."""
    steps: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """`8 × H100-80GB`, or `8 × H100-80GB, pool spot`."""
        return self.kind if self.pool is None else f"{self.kind}, pool {self.pool}"

    def added(
        self, counts: Sequence[int], snapshot: Snapshot, policy: Policy
    ) -> Iterator[tuple[int, PatchedSnapshot]]:
        """Add so many of these nodes."""
        knob = f"like:{self.like}" if self.pool is None else f"pool:{self.pool}"
        points, _ = Grid((Knob(name=knob, values=tuple(map(str, counts))),)).points()
        for count, point in zip(counts, points, strict=True):
            yield count, apply_patch(snapshot, policy, point.patch)


class Sensitivity(WhatIf):
    """Values of more nodes by kind: marginal values and planned gains."""

    objective: int | None
    """Objective of the plan without more nodes."""
    relaxation: int | None
    """Value of the linear relaxation without more nodes."""
    kinds: tuple[NodeKind, ...]
    failures: tuple[str, ...] = ()
    """Plans and relaxations that failed, with the reasons."""

    @property
    def sound(self) -> bool:
        """True if nothing failed."""
        return not self.failures


def equivalent_nodes(snapshot: Snapshot) -> list[NodeKind]:
    """
    List the kinds of nodes by their size in words, and the kinds of pools that have no such node yet.

    The most common shape represents a kind. The node to copy is schedulable if there is such a node.
    """
    by_words: dict[str, list[Node]] = defaultdict(list)
    for node in snapshot.cluster.nodes:
        by_words[node_size(node)].append(node)
    kinds = [
        NodeKind(kind=words, like=_commonest(nodes).name, nodes=len(nodes))
        for words, nodes in by_words.items()
    ]
    kinds += [
        NodeKind(kind=words, like=pool.template.name, nodes=0, pool=pool.name)
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


def equivalent_nodes_of(names: Sequence[str], snapshot: Snapshot, source: str) -> list[NodeKind]:
    """
    Return the kinds of the nodes with these names; all kinds if there are no names.

    Raises
    ------
    BadInputError
        With every name for which there is no node.
    """
    known = snapshot.cluster.node_by_name
    require_known("node", names, known, source)
    wanted = {node_size(known[name]) for name in names}
    return [kind for kind in equivalent_nodes(snapshot) if not wanted or kind.kind in wanted]


def sensitivity(
    snapshot: Snapshot,
    policy: Policy,
    kinds: Sequence[NodeKind],
    workers: Workers,
    *,
    seed: int,
    steps: Sequence[int],
    ended: Callable[[str], None] = lambda _: None,
) -> Sensitivity:
    """Value more nodes of each kind in both ways; all plans and relaxations run in parallel."""
    base = Variant("base", snapshot, policy, seed, planned_figures)
    variants: list[Variant[Any]] = [base, _relaxation(base)]
    for kind in kinds:
        one, *more = (
            replace(base, name=f"{count:,} more: {kind.name}", snapshot=made.snapshot, policy=made.policy)
            for count, made in kind.added((1, *steps), snapshot, policy)
        )
        variants += [_relaxation(one), *more]
    results = run(variants, workers, ended)
    left = iter(results)
    without, relaxation = next(left).value, next(left).value
    return Sensitivity(
        **asked_of(snapshot, policy, seed),
        objective=None if without is None else without.objective,
        relaxation=relaxation,
        kinds=tuple(
            kind.model_copy(
                update={
                    "marginal": _less(next(left).value, relaxation),
                    "steps": tuple(_step(count, next(left).value, without) for count in steps),
                }
            )
            for kind in kinds
        ),
        failures=tuple(
            f"{variant.name}: {found.failure}"
            for variant, found in zip(variants, results, strict=True)
            if found.failure
        ),
    )


def _relaxation(variant: Variant[Any]) -> Variant[int]:
    return replace(variant, name=f"relaxation of {variant.name}", measure=relaxed, work="relaxing")


def relaxed(variant: Variant[Any]) -> int | None:
    """Value of the linear relaxation of a variant, rounded up to a whole point; None if it took too long."""
    problem = build_problem(variant.snapshot, variant.policy)
    formulation = formulate(problem, Columns(problem))
    if not len(formulation.upper):  # nothing can start or change
        return formulation.constant
    limits = limits_of(variant.policy, variant.seed)
    budget = Budget(time.monotonic() + limits.seconds, limits.workers, variant.seed)
    nothing = np.zeros(len(formulation.upper), dtype=np.int64)
    # This function has a separate process, so a crash of the solver library ends nothing else.
    relax: Solver = pkgutil.resolve_name(RELAXATION_ENTRY)
    answer = validated_answer(relax(formulation, budget, nothing, lambda _: None))
    return None if answer is None else answer.bound


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
