"""
What a plan says of jobs and nodes that stay as they are, as the last plan has said it.

Parts of a plan are frozen, so that one that would be made the same again is taken over with all that has been
found out about it, its text above all: from epoch to epoch most of a plan is this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.drafting.reasons import UNCHANGED
from planner.models.plan import Keep, NodeChange, NodeState, Wait, Waiting
from planner.models.units import print_milli

if TYPE_CHECKING:
    from planner.models.cluster import Node
    from planner.models.occupancy import NodeFree
    from planner.models.placement import Placement
    from planner.models.plan import Plan, Reason


class Kept:
    """Parts for a new plan, of the `last` one as far as they are the same."""

    def __init__(self, last: Plan | None) -> None:
        actions = last.actions if last else ()
        self._keeps = {action.job: action for action in actions if type(action) is Keep}
        self._waits = {action.job: action for action in actions if type(action) is Wait}
        self._waiting = {waiting.job: waiting for waiting in (last.waiting if last else ())}
        self._nodes = {state.name: state for state in (last.nodes if last else ())}

    def keep(self, placement: Placement) -> Keep:
        """A running job stays as it is."""
        known = self._keeps.get(placement.job)
        # Compared as tuples, which take what is identical for equal.
        if known and (known.before, known.after, known.reason) == (placement, placement, UNCHANGED):
            return known
        return Keep(
            id=f"keep/{placement.job}", job=placement.job, before=placement, after=placement, reason=UNCHANGED
        )

    def wait(self, name: str, reason: Reason) -> Wait:
        """A job waits on."""
        known = self._waits.get(name)
        if known and known.reason == reason:
            return known
        return Wait(id=f"wait/{name}", job=name, reason=reason)

    def waiting(self, found: Waiting) -> Waiting:
        """A waiting job with what is said of its time."""
        known = self._waiting.get(found.job)
        return known if known == found else found

    def node(self, node: Node, left: NodeFree, change: NodeChange) -> NodeState:
        """A node as it will be, with what is left free of it."""
        free_gpus = tuple(left.gpu_milli)
        mig = tuple([gpu for gpu in node.gpus.details if gpu.mig is not None]) if node.gpus else ()
        known = self._nodes.get(node.name)
        if (
            known
            and (known.free_cpu_milli == left.cpu_milli and known.free_memory_mib == left.memory_mib)
            and (known.free_gpus == free_gpus and known.mig == mig)
            and (known.change is change and known.pool == node.pool)
        ):
            return known
        return NodeState(
            name=node.name,
            change=change,
            pool=node.pool,
            free_gpus=tuple([max(0, milli) for milli in free_gpus]),
            free_cpu_milli=print_milli(max(0, left.cpu_milli)),  # constructors take cores
            free_memory_mib=max(0, left.memory_mib),
            mig=mig,
        )
