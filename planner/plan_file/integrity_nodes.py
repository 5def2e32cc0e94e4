"""Consistency of a plan's node and MIG actions with its placements and its list of nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import NodeAction, PoolAction, Repartition, ScaleUp, info_of
from gpuplan.models.plan.plan import NodeChange
from gpuplan.models.plan.precondition import GpuLayout, NodeAbsent
from gpuplan.planner.analysis.effects import layout_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import MigInstance, Node
    from gpuplan.models.plan.plan import Plan


def node_contradictions(plan: Plan) -> Iterator[str]:
    """All contradictions about nodes and MIG layouts."""
    yield from _pools(plan)
    yield from _states(plan)
    yield from _layouts(plan)
    for action in plan.actions:
        if isinstance(action, NodeAction) and not any(
            isinstance(one, info_of(action).needs) and getattr(one, "node", None) == action.node
            for one in action.preconditions
        ):
            yield f"action {action.id} does not ask whether node {action.node} is as it expects"


def _pools(plan: Plan) -> Iterator[str]:
    """Check that added and removed nodes agree with their actions."""
    known = plan.snapshot.cluster.node_by_name
    seen: Counter[tuple[str, str]] = Counter()
    for action in plan.actions:
        if not isinstance(action, NodeAction) or isinstance(action, Repartition):
            continue
        seen[action.type, action.node] += 1
        node = known.get(action.node)
        if info_of(action).needs is NodeAbsent:
            if node is not None:
                yield f"action {action.id} adds node {action.node}, which exists"
        elif node is None:
            yield f"action {action.id} is about node {action.node}, which is not in the snapshot"
        if isinstance(action, ScaleUp) and (action.after.name, action.after.pool) != (
            action.node,
            action.pool,
        ):
            yield f"action {action.id} adds another node than it says"
        elif isinstance(action, PoolAction) and node is not None and node.pool != action.pool:
            yield f"action {action.id} removes node {action.node} from a pool that it is not in"
    for (type_, name), count in sorted(seen.items()):
        if count > 1:
            yield f"node {name} has {count} actions {type_}"


def _states(plan: Plan) -> Iterator[str]:
    """Check that the list of nodes is complete and marks added and removed nodes."""
    target = plan.target
    expected = dict.fromkeys(plan.snapshot.cluster.node_by_name, NodeChange.KEPT)
    expected |= dict.fromkeys((node.name for node in target.added), NodeChange.ADDED)
    expected |= dict.fromkeys(target.removed, NodeChange.REMOVED)
    told = Counter(state.name for state in plan.nodes)
    for name in sorted(expected.keys() ^ told.keys()):
        where = "is not among the nodes" if name in expected else "is among the nodes and nowhere else"
        yield f"node {name} {where}"
    for name, count in sorted(told.items()):
        if count > 1:
            yield f"node {name} is {count} times among the nodes"
    for state in plan.nodes:
        if (change := expected.get(state.name)) not in (None, state.change):
            yield f"node {state.name} is {state.change} by the list of nodes, {change} by the actions"


def _layouts(plan: Plan) -> Iterator[str]:
    """Check that the repartitions lead from the snapshot's layouts to those that the placements need."""
    target = plan.target
    nodes = {node.name: node for node in (*plan.snapshot.cluster.nodes, *target.added)}
    stay = [node for name, node in sorted(nodes.items()) if name not in target.removed]
    steps: dict[tuple[str, int], list[Repartition]] = defaultdict(list)
    for action in plan.actions:
        if isinstance(action, Repartition):
            steps[action.node, action.gpu].append(action)
    needed = {
        (one.node, one.gpu): one.after
        for one in layout_changes(stay, before=plan.snapshot.running_placements, after=plan.placements)
    }
    for name, gpu in sorted(steps.keys() | needed.keys()):
        layout = _present(nodes.get(name), gpu)
        for action in steps[name, gpu]:
            if not _same(action.before, layout):
                yield f"action {action.id} expects another MIG layout than there is by then"
            yield from _destroys_only_idle(action)
            layout = action.after
        if not _same(layout, needed.get((name, gpu), _present(nodes.get(name), gpu))):
            yield f"GPU {gpu} of node {name} does not get the MIG layout that the placements need"
    for state in plan.nodes:
        node = nodes.get(state.name)
        if node is None or state.change is NodeChange.REMOVED:
            continue
        told = {gpu.index: gpu.mig for gpu in state.mig}
        for index in sorted(node.gpus.by_index) if node.gpus else []:
            after = needed.get((state.name, index), _present(node, index))
            if not _same(told.get(index), after):
                yield f"GPU {index} of node {state.name} has another MIG layout in the list of nodes"


def _destroys_only_idle(action: Repartition) -> Iterator[str]:
    destroyed = set(action.before or ()) - set(action.after)
    for one in action.preconditions:
        if isinstance(one, GpuLayout) and (one.node, one.gpu) == (action.node, action.gpu):
            if not _same(one.instances, action.before) or not destroyed <= set(one.idle):
                yield f"action {action.id} does not ask for the MIG layout it changes"
            return


def _present(node: Node | None, gpu: int) -> tuple[MigInstance, ...] | None:
    if node is None or node.gpus is None or gpu not in node.gpus.by_index:
        return None
    return node.gpus.by_index[gpu].mig


def _same(one: tuple[MigInstance, ...] | None, other: tuple[MigInstance, ...] | None) -> bool:
    if one is None or other is None:
        return one is other
    return Counter(one) == Counter(other)
