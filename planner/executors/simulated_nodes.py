"""Checks of the simulated cluster before it changes a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.actions import Cordon, Drain, Repartition, ScaleDown, ScaleUp, info_of
from gpuplan.planner.executors.interface import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from gpuplan.models.cluster import Gpu, MigInstance, Node, NodeGpus, NodePool
    from gpuplan.models.plan.actions import NodeAction, PoolAction
    from gpuplan.planner.executors.simulated_tables import Tables


def check(tables: Tables, action: NodeAction) -> None:
    """
    Check that the cluster allows an action about a node.

    Raises
    ------
    ExecutionError
        The cluster does not allow it; says what was expected and what was found.
    """
    match action:
        case Repartition():
            _check_repartition(tables, action)
        case Cordon():
            _existing(tables, action)
        case Drain():
            _existing(tables, action)
            _require_empty(tables, action)
        case ScaleUp():
            _check_scale_up(tables, action)
        case ScaleDown():
            _check_scale_down(tables, action)
        case _:
            assert_never(action)


def _check_repartition(tables: Tables, action: Repartition) -> None:
    """MIG instances in use stay, and the new layout is legal."""
    node = _existing(tables, action)
    gpu = node.gpus.by_index.get(action.gpu) if node.gpus else None
    if gpu is None or node.gpus is None:
        _refuse(action, f"expected GPU {action.gpu}, found no such GPU")
    if not node.ready:
        _refuse(action, "expected it ready, found it down")
    held = [
        part
        for replica in tables.held([node.name])[node.name]
        for part in replica.gpus
        if part.index == action.gpu
    ]
    if gpu.mig is None and held:
        _refuse(action, f"expected GPU {action.gpu} idle to switch MIG mode on, found it in use")
    used = {(part.profile, part.start) for part in held if isinstance(part, MigSlice)}
    if lost := used - {(instance.profile, instance.start) for instance in action.after}:
        which = ", ".join(f"{profile} at {start}" for profile, start in sorted(lost))
        _refuse(action, f"expected MIG instances in use to stay on GPU {action.gpu}, found {which} left out")
    _require_legal(action, gpu, node.gpus)


def _check_scale_up(tables: Tables, action: ScaleUp) -> None:
    """The pool has room for the node, which is as the pool's template."""
    pool = _pool(tables, action)
    if tables.node(action.node) is not None:
        _refuse(action, "expected no node of this name, found one")
    if (found := tables.count_nodes(pool.name)) >= pool.maximum:
        _refuse(action, f"expected room in pool {pool.name}, found {found} nodes of at most {pool.maximum}")
    new = pool.template.model_copy(update={"name": action.node, "pool": pool.name, "ready_at": None})
    if action.after != new:
        _refuse(action, f"expected a node as the template of pool {pool.name}, found another")


def _check_scale_down(tables: Tables, action: ScaleDown) -> None:
    """The node is empty, and the pool may lose one."""
    pool = _pool(tables, action)
    node = _existing(tables, action)
    if node.pool != pool.name:
        _refuse(action, f"expected it in pool {pool.name}, found it in {node.pool or 'none'}")
    _require_empty(tables, action)
    if (found := tables.count_nodes(pool.name)) <= pool.minimum:
        _refuse(
            action, f"expected more than {pool.minimum} nodes in pool {pool.name}, found {found}, its least"
        )


def _require_legal(action: Repartition, gpu: Gpu, gpus: NodeGpus) -> None:
    geometry = mig_geometry(gpus.model)
    if geometry is not None:
        if faults := sorted(geometry.faults(action.after)):
            _refuse(action, f"expected a legal MIG layout of {gpus.model}, found {faults[0]}")
    elif created := set(action.after) - set(gpu.mig or ()):
        _refuse(
            action,
            f"expected no new MIG instance on GPU model {gpus.model}, which is not known to have MIG, "
            f"found {_listed(created)}",
        )


def _listed(instances: Iterable[MigInstance]) -> str:
    return ", ".join(sorted(f"{instance.profile} at {instance.start}" for instance in instances))


def _existing(tables: Tables, action: NodeAction) -> Node:
    node = tables.node(action.node)
    if node is None:
        _refuse(action, "expected a node, found no such node")
    return node


def _require_empty(tables: Tables, action: NodeAction) -> None:
    if jobs := tables.jobs_on(action.node):
        _refuse(action, f"expected it empty, found {', '.join(jobs)} running")


def _pool(tables: Tables, action: PoolAction) -> NodePool:
    pool = tables.pool(action.pool)
    if pool is None:
        _refuse(action, f"expected pool {action.pool}, found no such pool")
    return pool


def _refuse(action: NodeAction, why: str) -> NoReturn:
    raise ExecutionError(f"node {action.node} cannot {info_of(action).passive}: {why}.")
