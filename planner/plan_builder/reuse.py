"""
Reuse of the last plan's objects for jobs and nodes that do not change.

The parts of a plan are frozen. An equal part is taken over together with its cached values, mainly its
text. From epoch to epoch this holds for most of a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import Keep, Wait
from gpuplan.models.plan.plan import NodeChange, NodeState
from gpuplan.models.units import print_milli
from gpuplan.planner.plan_builder.reasons import UNCHANGED

if TYPE_CHECKING:
    from gpuplan.models.cluster import Node
    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.forecast import Waiting
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.reason import Reason
    from gpuplan.planner.epoch_cache import EpochCache


class ReusedParts:
    """Builds parts of a new plan, or takes equal ones from the `last` plan."""

    def __init__(self, last: Plan | None, cache: EpochCache) -> None:
        actions = last.actions if last else ()
        self._keeps = {action.job: action for action in actions if type(action) is Keep}
        self._waits = {action.job: action for action in actions if type(action) is Wait}
        self._waiting = {waiting.job: waiting for waiting in (last.waiting if last else ())}
        self._before = cache.node_states
        self._nodes: dict[str, tuple[object, NodeState]] = {}
        cache.node_states = self._nodes

    def keep(self, placement: Placement) -> Keep:
        """Action of a running job that stays as it is."""
        known = self._keeps.get(placement.job)
        if known and known.before is known.after is placement and known.reason is UNCHANGED:
            return known
        return Keep(
            id=f"keep/{placement.job}", job=placement.job, before=placement, after=placement, reason=UNCHANGED
        )

    def wait(self, name: str, reason: Reason) -> Wait:
        """Action of a pending job that does not start."""
        known = self._waits.get(name)
        if known and known.reason == reason:
            return known
        return Wait(id=f"wait/{name}", job=name, reason=reason)

    def waiting(self, found: Waiting) -> Waiting:
        """A pending job with its projected start."""
        known = self._waiting.get(found.job)
        return known if known == found else found

    def node(self, node: Node, left: FreeResources, change: NodeChange) -> NodeState:
        """State of a node after the plan, with its free resources."""
        known = self._before.get(node.name)
        if known is None or known[0] != (node, left, change):
            known = (node, left, change), _state(node, left, change)
        self._nodes[node.name] = known
        return known[1]


def _state(node: Node, left: FreeResources, change: NodeChange) -> NodeState:
    return NodeState(
        name=node.name,
        change=change,
        pool=node.pool,
        free_gpus=tuple([max(0, milli) for milli in left.gpu_milli]),
        free_cpu_milli=print_milli(max(0, left.cpu_milli)),  # constructors take cores
        free_memory_mib=max(0, left.memory_mib),
        mig=tuple(gpu for gpu in node.gpus.details if gpu.mig is not None) if node.gpus else (),
    )
