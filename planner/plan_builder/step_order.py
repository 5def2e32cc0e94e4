"""
An order in which the changes of a target can be carried out, found by simulating them one by one.

Resources are released before they are taken: cordon; shrink and preempt; migrate, repartition and drain as
soon as each is possible; remove nodes, add nodes; start and grow. Each step lists the earlier steps that it
depends on: those that released what it takes, on its nodes or of a limit that jobs on several nodes share
(`shared_limits`). The verifier has already checked that an order exists (rule `order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import ActionKind, Release
from gpuplan.planner.analysis.node_actions import NODE_RULES
from gpuplan.planner.analysis.node_rules import Phase
from gpuplan.planner.plan_builder.shared_limits import SharedLimits
from gpuplan.planner.plan_builder.step_resources import StepResources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges
    from gpuplan.planner.analysis.target_cluster import LayoutChange


@dataclass(frozen=True, slots=True)
class JobStep:
    """A job is started, preempted, resized or migrated."""

    id: str
    change: JobChange
    after: tuple[str, ...]
    """Ids of the earlier steps that this step depends on, in their order; the same in every kind of step."""
    places_of: tuple[str, ...]
    """Those of them that released what it takes on its nodes."""


@dataclass(frozen=True, slots=True)
class LayoutStep:
    """The MIG layout of a GPU is changed."""

    id: str
    change: LayoutChange
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step about a whole node."""

    id: str
    kind: ActionKind
    node: str
    after: tuple[str, ...]


Step: TypeAlias = JobStep | LayoutStep | NodeStep


def order_steps(
    changes: PlanChanges, points: Mapping[str, int], released: Iterable[Release] = ()
) -> tuple[Step, ...]:
    """
    All steps in order; `points` are the objective points of each job that starts or grows.

    Starts are sorted by points, then by age, so that an interrupted apply has gained as much as possible.
    `released` are the releases of lost places, which come before all steps.

    Raises
    ------
    PlannerError
        Some migrations depend on each other.
    """
    of: dict[ActionKind, list[JobChange]] = {kind: [] for kind in ActionKind}
    for change in changes.jobs:
        of[change.kind].append(change)
    orderly = _StepOrdering(changes, of[ActionKind.MIGRATE], released)
    # Only a migration can depend on a new node before room is made for the other jobs.
    early = {name for change in of[ActionKind.MIGRATE] for name in change.nodes_taken} & changes.added.keys()
    orderly.phase(Phase.BEFORE_JOBS_LEAVE, early)
    orderly.jobs(of[ActionKind.SHRINK])
    orderly.jobs(of[ActionKind.PREEMPT])
    orderly.phase(Phase.BEFORE_MOVES, early)
    orderly.as_possible()
    orderly.phase(Phase.BEFORE_STARTS, early)
    orderly.as_possible()
    for kind in (ActionKind.START, ActionKind.GROW):
        orderly.jobs(
            sorted(
                of[kind],
                key=lambda change: (-points[change.job.name], change.job.submitted_at, change.job.name),
            )
        )
    orderly.require_all_done()
    return tuple(orderly.steps)


class _StepOrdering:
    """Simulates the steps one by one and records them."""

    def __init__(self, changes: PlanChanges, moves: Iterable[JobChange], released: Iterable[Release]) -> None:
        self.steps: list[Step] = []
        self._changes = changes
        self._resources = StepResources(changes)
        self._limits = SharedLimits(changes, released)
        self._position: dict[str, int] = {}
        self._layouts = list(changes.layouts)
        self._moves = list(moves)
        self._drains = list(changes.emptied)

    def jobs(self, changes: Iterable[JobChange]) -> None:
        """One step for each job, in the order given."""
        for change in changes:
            self._job(change)

    def phase(self, phase: Phase, early: Collection[str]) -> None:
        """The steps about nodes of one phase."""
        for kind, rules in NODE_RULES.items():
            self.nodes(kind, rules.nodes(phase, self._changes, early))

    def nodes(self, kind: ActionKind, names: Iterable[str]) -> None:
        """One step for each node, in the order given; a cluster that has no cordon or drain needs none."""
        if not self._changes.snapshot.cluster.offers(kind):
            return
        for name in names:
            id_ = f"{kind}/{name}"
            after = [*self._resources.touch(name, id_), *self._limits.change_node(kind, name, id_)]
            self._done(NodeStep(id_, kind, name, self._sorted(after)))

    def as_possible(self) -> None:
        """Migrate, repartition and drain until no further step is possible."""
        progress = True
        while progress:
            progress = self._lay_out_what_can_be() | self._move_who_can() | self._drain_what_is_empty()
            # Where nothing else is possible a GPU is laid out twice, or a limit exceeded for a while.
            progress = progress or self._make_way() or self._move_beyond_limits()

    def require_all_done(self) -> None:
        """Raise PlannerError if a migration, a layout or a drain is left."""
        left = [
            *(f"job {move.job.name} cannot move" for move in self._moves),
            *(f"GPU {one.gpu} of node {one.node} cannot be repartitioned" for one in self._layouts),
            *(f"node {name} still has jobs" for name in self._drains),
        ]
        if left:
            listed = "\n".join(f"  {text}" for text in left[:5])
            raise PlannerError(
                f"the plan cannot be carried out in any order and is withheld:\n{listed}\n"
                "This is a defect of gpuplan. Please report it with the snapshot, the policy and the seed."
            )

    def _lay_out_what_can_be(self) -> bool:
        possible = [one for one in self._layouts if self._resources.can_repartition(one)]
        if possible:
            done = {(one.node, one.gpu) for one in possible}
            self._layouts = [one for one in self._layouts if (one.node, one.gpu) not in done]
        laid_out = [self._lay_out(layout) for layout in possible]
        return any(laid_out)

    def _move_who_can(self) -> bool:
        left = []
        for move in self._moves:
            if self._resources.has_room_for(move) and self._limits.has_room_for(move):
                self._job(move)
            else:
                left.append(move)
        progress = len(left) < len(self._moves)
        self._moves = left
        return progress

    def _drain_what_is_empty(self) -> bool:
        empty = [name for name in self._drains if self._resources.is_empty(name)]
        self._drains = [name for name in self._drains if name not in empty]
        self.nodes(ActionKind.DRAIN, empty)
        return bool(empty)

    def _make_way(self) -> bool:
        """
        Create only the instances that a blocked migration needs, if the full layout is still impossible.

        True if there was such a migration; its GPU is then repartitioned more than once.
        """
        for move in self._moves:
            steps = self._resources.partial_layouts(move)
            if steps:
                for layout in steps:
                    self._lay_out(layout)
                return True
        return False

    def _move_beyond_limits(self) -> bool:
        """
        Move the first job that has room on its nodes; True if there is one.

        Jobs may wait in a circle for each other's quota, power or domain, as two that change places between
        GPU models with quotas. Then a limit is exceeded until the last of them has moved.
        """
        for move in self._moves:
            if self._resources.has_room_for(move):
                self._moves.remove(move)
                self._job(move)
                return True
        return False

    def _job(self, change: JobChange) -> None:
        id_ = f"{change.kind}/{change.job.name}"
        places = self._sorted(self._resources.change_job(change, id_))
        limits = self._limits.change_job(change, id_, places)
        if not (places or limits):
            self._done(JobStep(id_, change, (), ()))
            return
        # A release comes before all steps, so it has no position among them.
        early = tuple(sorted({each for each in limits if each not in self._position}))
        after = self._sorted((*places, *(each for each in limits if each in self._position)))
        self._done(JobStep(id_, change, (*early, *after), places))

    def _lay_out(self, layout: LayoutChange) -> bool:
        """False if the GPU already has this layout."""
        id_ = f"repartition/{layout.node}/gpu{layout.gpu}"
        times = 1
        while (name := id_ if times == 1 else f"{id_}/{times}") in self._position:
            times += 1
        found = self._resources.repartition(layout, name)
        if found is None:
            return False
        done, after = found
        self._done(LayoutStep(name, done, self._sorted(after)))
        return True

    def _done(self, step: Step) -> None:
        self._position[step.id] = len(self.steps)
        self.steps.append(step)

    def _sorted(self, ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(set(ids), key=self._position.__getitem__))
