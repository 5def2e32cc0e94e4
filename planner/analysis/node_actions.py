"""
Actions about nodes: all that the planner knows of one kind is in one class here.

Plans, applying, rollbacks and the simulated cluster ask `NODE_RULES`. A new kind has a name in
`gpuplan.models.plan.action_kinds`, a class of its fields and a line of `ACTIONS` in
`gpuplan.models.plan.actions`, and its rules here. The verifier judges it by itself
(`gpuplan.models.verifier.rules.pools`), and an executor that can do it has to know how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.actions import (
    ActionKind,
    Cordon,
    Drain,
    NodeAction,
    Repartition,
    ScaleDown,
    ScaleUp,
    Uncordon,
)
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.planner.analysis.node_rules import (
    AnyNodeAction,
    NodeCase,
    NodeRules,
    Phase,
    StrictWorld,
    World,
    missing_node,
)
from gpuplan.planner.analysis.target_cluster import Changed, with_layout
from gpuplan.planner.text_format import format_count, format_duration, format_money, join_jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuplan.models.cluster import Cluster, Gpu, MigInstance, Node, NodeGpus, NodePool
    from gpuplan.models.plan.actions import PoolAction
    from gpuplan.planner.analysis.job_changes import PlanChanges


class _Repartition(NodeRules[Repartition]):
    # Its steps and reversals are of GPUs, several of which are on one node: they are not made here.
    made = Repartition

    def refusal(self, world: StrictWorld, action: Repartition) -> str:
        node = world.node(action.node)
        if node is None:
            return missing_node(world, action)
        gpu = node.gpus.by_index.get(action.gpu) if node.gpus else None
        if gpu is None or node.gpus is None:
            return f"expected GPU {action.gpu}, found no such GPU"
        if not node.ready:
            return "expected it ready, found it down"
        replicas = world.held([node.name])[node.name]
        held = [part for replica in replicas for part in replica.gpus if part.index == action.gpu]
        if gpu.mig is None and held:
            return f"expected GPU {action.gpu} idle to switch MIG mode on, found it in use"
        used = {(part.profile, part.start) for part in held if isinstance(part, MigSlice)}
        if lost := used - {(instance.profile, instance.start) for instance in action.after}:
            which = ", ".join(f"{profile} at {start}" for profile, start in sorted(lost))
            return f"expected MIG instances in use to stay on GPU {action.gpu}, found {which} left out"
        return _illegal(action.after, gpu, node.gpus)

    def apply(self, world: World, action: Repartition) -> None:
        if (node := world.node(action.node)) is not None:
            world.put_node(with_layout(node, action.gpu, action.after))

    def shows(self, action: Repartition, node: Node | None, *, busy: bool) -> bool:
        gpu = node.gpus.by_index.get(action.gpu) if node and node.gpus else None
        return gpu is not None and gpu.mig is not None and set(gpu.mig) == set(action.after)

    def without(self, action: Repartition, node: Node | None, base: Node | None) -> Node | None:
        return with_layout(node, action.gpu, action.before) if node else None


class _Cordoning(NodeRules[AnyNodeAction]):
    to: bool
    """Whether the node is cordoned afterwards."""

    def apply(self, world: World, action: AnyNodeAction) -> None:
        if (node := world.node(action.node)) is not None:
            world.put_node(node.model_copy(update={"cordoned": self.to}))

    def shows(self, action: AnyNodeAction, node: Node | None, *, busy: bool) -> bool:
        # A node that is gone takes no jobs, as one that is cordoned.
        return self.to if node is None else node.cordoned is self.to

    def without(self, action: AnyNodeAction, node: Node | None, base: Node | None) -> Node | None:
        if node is None or base is None or base.cordoned is self.to:
            return None
        return node.model_copy(update={"cordoned": not self.to})


class _Cordon(_Cordoning[Cordon]):
    made, to = Cordon, True

    def nodes(self, phase: Phase, changes: PlanChanges, early: Collection[str]) -> Sequence[str]:
        # A node that its operators drain takes no jobs already.
        removed = changes.target.removed if phase is Phase.BEFORE_JOBS_LEAVE else ()
        return [name for name in changes.emptied if name in removed] if removed else ()

    def reason(self, case: NodeCase) -> Reason:
        text = f"to be removed once {case.have_left}"
        return Reason(code=ReasonCode.IDLE, text=text, numbers={"jobs": ", ".join(case.leaving)})

    def reversal(
        self, action: Cordon, node: Node | None, base: Node | None, cluster: Cluster
    ) -> Changed | None:
        was_open = node is not None and node.cordoned and base is not None and not base.cordoned
        return Changed(opened=frozenset({action.node})) if was_open else None


class _Uncordon(_Cordoning[Uncordon]):
    # Only rollbacks have it. To undo it is to roll back a rollback, which leaves the node open.
    made, to = Uncordon, False

    def nodes(self, phase: Phase, changes: PlanChanges, early: Collection[str]) -> Sequence[str]:
        return changes.target.undo.opened if phase is Phase.BEFORE_MOVES else ()

    def reason(self, case: NodeCase) -> Reason:
        return Reason(code=ReasonCode.ROLLED_BACK, text="takes jobs again")


class _Drain(NodeRules[Drain]):
    # It changes nothing: it confirms that the node is empty. It is in no phase but comes as soon as that is.
    made = Drain

    def reason(self, case: NodeCase) -> Reason:
        then = "removed" if case.node in case.changes.target.removed else "drained"
        text = f"confirms that {case.have_left} a node to be {then}"
        return Reason(code=ReasonCode.DRAINED, text=text, numbers={"jobs": ", ".join(case.leaving)})

    def refusal(self, world: StrictWorld, action: Drain) -> str:
        return missing_node(world, action) or _busy(world, action)

    def shows(self, action: Drain, node: Node | None, *, busy: bool) -> bool:
        return not busy


class _ScaleUp(NodeRules[ScaleUp]):
    made, grows = ScaleUp, 1

    def nodes(self, phase: Phase, changes: PlanChanges, early: Collection[str]) -> Sequence[str]:
        match phase:
            case Phase.BEFORE_MOVES:
                return sorted(early)
            case Phase.BEFORE_STARTS:
                return sorted(changes.added.keys() - set(early))
            case _:
                return ()

    def fields(self, node: str, changes: PlanChanges) -> dict[str, Any]:
        new = changes.added[node]
        return {"pool": new.pool or "", "after": new, "provisioning": changes.provisioning(new.pool)}

    def reason(self, case: NodeCase) -> Reason:
        node = case.changes.added[case.node]
        pool = next(each for each in case.changes.snapshot.cluster.pools if each.name == node.pool)
        least = f"pool {pool.name} keeps at least {format_count(pool.minimum, 'node')}"
        text = f"needed by {join_jobs(case.arriving)}" if case.arriving else least
        text = f"{text}; costs {format_money(node.price_per_hour)}/h"
        if wait := pool.provisioning:
            text = f"{text}, ready after {format_duration(wait)}"
        numbers = {
            "price_per_hour": node.price_per_hour,
            "provisioning_seconds": wait,
            "jobs": ", ".join(case.arriving),
        }
        return Reason(code=ReasonCode.DEMAND, text=text, numbers=numbers)

    def refusal(self, world: StrictWorld, action: ScaleUp) -> str:
        """The pool has room for the node, which is as the pool's template."""
        pool = world.pool(action.pool)
        if pool is None:
            return _no_pool(action)
        if world.node(action.node) is not None:
            return "expected no node of this name, found one"
        if (found := world.count_nodes(pool.name)) >= pool.maximum:
            return f"expected room in pool {pool.name}, found {found} nodes of at most {pool.maximum}"
        if action.after != _of_template(pool, action.node):
            return f"expected a node as the template of pool {pool.name}, found another"
        return ""

    def apply(self, world: World, action: ScaleUp) -> None:
        ready_at = world.ready_at(action)
        new = action.after if ready_at is None else action.after.model_copy(update={"ready_at": ready_at})
        world.put_node(new)
        _note_scaling(world, action, "node_added_at")

    def shows(self, action: ScaleUp, node: Node | None, *, busy: bool) -> bool:
        return node is not None

    def reversal(
        self, action: ScaleUp, node: Node | None, base: Node | None, cluster: Cluster
    ) -> Changed | None:
        return Changed(removed=frozenset({action.node})) if node else None


class _ScaleDown(NodeRules[ScaleDown]):
    made, grows = ScaleDown, -1

    def nodes(self, phase: Phase, changes: PlanChanges, early: Collection[str]) -> Sequence[str]:
        return changes.removed if phase is Phase.BEFORE_STARTS else ()

    def fields(self, node: str, changes: PlanChanges) -> dict[str, Any]:
        return {"pool": changes.nodes[node].pool or ""}

    def reason(self, case: NodeCase) -> Reason:
        price = case.changes.nodes[case.node].price_per_hour
        text = f"no job needs it; saves {format_money(price)}/h"
        return Reason(code=ReasonCode.IDLE, text=text, numbers={"price_per_hour": price})

    def refusal(self, world: StrictWorld, action: ScaleDown) -> str:
        """The node is empty, and its pool may lose one."""
        pool, node = world.pool(action.pool), world.node(action.node)
        if pool is None:
            return _no_pool(action)
        if node is None:
            return missing_node(world, action)
        if node.pool != pool.name:
            return f"expected it in pool {pool.name}, found it in {node.pool or 'none'}"
        if busy := _busy(world, action):
            return busy
        if (found := world.count_nodes(pool.name)) <= pool.minimum:
            return f"expected more than {pool.minimum} nodes in pool {pool.name}, found {found}, its least"
        return ""

    def apply(self, world: World, action: ScaleDown) -> None:
        world.delete_node(action.node)
        _note_scaling(world, action, "node_removed_at")

    def shows(self, action: ScaleDown, node: Node | None, *, busy: bool) -> bool:
        return node is None

    def without(self, action: ScaleDown, node: Node | None, base: Node | None) -> Node | None:
        return base if node is None else None

    def reversal(
        self, action: ScaleDown, node: Node | None, base: Node | None, cluster: Cluster
    ) -> Changed | str | None:
        if node is not None:
            return None
        pool = next((each for each in cluster.pools if each.name == action.pool), None)
        if pool is None:
            return f"pool {action.pool} is gone"
        new = _of_template(pool, action.node)
        as_it_is = {"ready_at": None, "cordoned": new.cordoned, "state_reason": new.state_reason}
        if base is None or new != base.model_copy(update=as_it_is):
            return f"it differed from the template of pool {pool.name}, as which nodes are added"
        return Changed(added={action.node: new})


NODE_RULES: Final[dict[ActionKind, NodeRules[Any]]] = {
    ActionKind.REPARTITION: _Repartition(),
    ActionKind.CORDON: _Cordon(),
    ActionKind.UNCORDON: _Uncordon(),
    ActionKind.DRAIN: _Drain(),
    # In one phase removals come first: they make room in a pool that is full.
    ActionKind.SCALE_DOWN: _ScaleDown(),
    ActionKind.SCALE_UP: _ScaleUp(),
}
"""Every kind of action about nodes; those of one phase come in this order."""


def rules_of(action: NodeAction) -> NodeRules[Any]:
    """What the planner knows of the kind of an action."""
    return NODE_RULES[ActionKind(action.type)]


def _busy(world: StrictWorld, action: NodeAction) -> str:
    jobs = world.jobs_on(action.node)
    return f"expected it empty, found {', '.join(jobs)} running" if jobs else ""


def _no_pool(action: PoolAction) -> str:
    return f"expected pool {action.pool}, found no such pool"


def _of_template(pool: NodePool, name: str) -> Node:
    """A new node of a pool, as a plan states it: when it is ready is up to the cluster."""
    return pool.template.model_copy(update={"name": name, "pool": pool.name, "ready_at": None})


def _illegal(after: Collection[MigInstance], gpu: Gpu, gpus: NodeGpus) -> str:
    """What is wrong with a MIG layout of a GPU; empty if it is legal."""
    geometry = mig_geometry(gpus.model)
    if geometry is not None:
        faults = sorted(geometry.faults(after))
        return f"expected a legal MIG layout of {gpus.model}, found {faults[0]}" if faults else ""
    if created := set(after) - set(gpu.mig or ()):
        listed = ", ".join(sorted(f"{instance.profile} at {instance.start}" for instance in created))
        return (
            f"expected no new MIG instance on GPU model {gpus.model}, which is not known to have MIG, "
            f"found {listed}"
        )
    return ""


def _note_scaling(world: World, action: PoolAction, field: str) -> None:
    if (pool := world.pool(action.pool)) is not None:
        world.put_pool(pool.model_copy(update={field: world.clock()}))
