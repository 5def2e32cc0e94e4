"""
What the planner asks about every kind of action about nodes; the kinds are in
`gpuplan.planner.analysis.node_actions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gpuplan.models.plan.actions import NodeAction
from gpuplan.planner.text_format import join_jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, Node, NodePool
    from gpuplan.models.placement import Replica
    from gpuplan.models.plan.actions import JobChangeAction, ScaleUp
    from gpuplan.models.plan.reason import Reason
    from gpuplan.planner.analysis.job_changes import PlanChanges
    from gpuplan.planner.analysis.target_cluster import Changed


class World(Protocol):
    """A cluster that actions change: a view of a live one, or one that is simulated."""

    def node(self, name: str) -> Node | None:
        """The node of this name."""

    def put_node(self, node: Node) -> None:
        """Add a node, or replace the one of its name."""

    def delete_node(self, name: str) -> None:
        """Remove a node; none of this name is no error."""

    def pool(self, name: str) -> NodePool | None:
        """The pool of this name."""

    def put_pool(self, pool: NodePool) -> None:
        """Replace the pool of its name."""

    def clock(self) -> datetime:
        """The present time of the cluster."""

    def ready_at(self, action: ScaleUp) -> datetime | None:
        """When a new node is ready; None if the world does not model the time until then."""

    def change_job(self, action: JobChangeAction) -> None:
        """Change where a job runs, and what follows for its work."""


class StrictWorld(World, Protocol):
    """A world that does not trust a plan, and says what it holds, so that an action can be refused."""

    def held(self, nodes: Collection[str]) -> Mapping[str, Sequence[Replica]]:
        """Replicas that hold something on nodes, by the name of the node."""

    def jobs_on(self, node: str) -> Collection[str]:
        """Names of the jobs on a node."""

    def count_nodes(self, pool: str) -> int:
        """Number of the nodes of a pool."""


class Phase(Enum):
    """Points in the order of a plan at which steps about nodes come."""

    BEFORE_JOBS_LEAVE = auto()
    BEFORE_MOVES = auto()
    BEFORE_STARTS = auto()


@dataclass(frozen=True, slots=True)
class NodeCase:
    """A step about a node in the changes of a plan."""

    node: str
    changes: PlanChanges
    leaving: Sequence[str]
    """Jobs that leave the node."""
    arriving: Sequence[str]
    """Jobs that come to it."""

    @property
    def have_left(self) -> str:
        """As in `jobs a and b have left`."""
        return f"{join_jobs(self.leaving)} {'has' if len(self.leaving) == 1 else 'have'} left"


AnyNodeAction = TypeVar("AnyNodeAction", bound=NodeAction)


class NodeRules(Generic[AnyNodeAction]):
    """What the planner knows of one kind of action about nodes; a kind overrides what it has to say."""

    made: type[AnyNodeAction]
    """Class of its actions."""
    grows: int = 0
    """By how many nodes the pool of its node grows."""

    # In a plan.

    def nodes(self, phase: Phase, changes: PlanChanges, early: Collection[str]) -> Sequence[str]:
        """Nodes that get such a step in a phase, in order; `early` are new nodes that migrations need."""
        return ()

    def action(self, node: str, changes: PlanChanges, common: dict[str, Any]) -> NodeAction:
        """The action of a step; `common` has the fields that all actions have."""
        return self.made(node=node, **self.fields(node, changes), **common)

    def fields(self, node: str, changes: PlanChanges) -> dict[str, Any]:
        """Fields that only actions of this kind have."""
        return {}

    def reason(self, case: NodeCase) -> Reason:
        """Why a plan has such a step."""
        raise NotImplementedError

    # In a cluster.

    def refusal(self, world: StrictWorld, action: AnyNodeAction) -> str:
        """What a cluster expected and found, if it does not allow the action; empty if it does."""
        return missing_node(world, action)

    def apply(self, world: World, action: AnyNodeAction) -> None:
        """Carry out the action in a world, which has checked that it is possible."""

    def shows(self, action: AnyNodeAction, node: Node | None, *, busy: bool) -> bool:
        """True if a node, as it is now, already has the effect; `busy` if jobs run on it."""
        raise NotImplementedError

    # Taken back.

    def without(self, action: AnyNodeAction, node: Node | None, base: Node | None) -> Node | None:
        """
        The node as it was without the effect; None: as it is now.

        `base` is the node before the plan. Nodes that a plan added stay, because only the cluster knows when
        they are ready.
        """
        return None

    def reversal(
        self, action: AnyNodeAction, node: Node | None, base: Node | None, cluster: Cluster
    ) -> Changed | str | None:
        """What a rollback changes to undo it, or why none can; None if nothing is left to undo."""
        return None


def missing_node(world: StrictWorld, action: NodeAction) -> str:
    """What a cluster expected and found, if the node is not there; empty if it is."""
    return "" if world.node(action.node) is not None else "expected a node, found no such node"
