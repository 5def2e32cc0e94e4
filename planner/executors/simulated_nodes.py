"""Node actions of the simulated cluster: repartition, cordon, drain, scale up, scale down."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import MigSlice
from gpuplan.planner.apply.effects import with_layout, with_pool_scaled
from gpuplan.planner.executors.interface import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from gpuplan.models.cluster import Gpu, MigInstance, Node, NodeGpus, NodePool
    from gpuplan.models.plan.plan import Cordon, Drain, Repartition, ScaleDown, ScaleUp
    from gpuplan.planner.executors.simulated_tables import Tables


def repartition(tables: Tables, action: Repartition) -> None:
    """Replace the MIG instances of a GPU; refused if an instance in use would be removed."""
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
    tables.put_node(with_layout(node, action.gpu, action.after))


def cordon(tables: Tables, action: Cordon) -> None:
    """Mark a node as cordoned: no job starts there."""
    node = _existing(tables, action)
    tables.put_node(node.model_copy(update={"cordoned": True}))


def drain(tables: Tables, action: Drain) -> None:
    """Check that a node is empty; changes nothing."""
    _existing(tables, action)
    _require_empty(tables, action)


def scale_up(tables: Tables, action: ScaleUp) -> None:
    """Add a node to a pool; it accepts jobs at once, and they run once it is provisioned."""
    pool = _pool(tables, action)
    if tables.node(action.node) is not None:
        _refuse(action, "expected no node of this name, found one")
    if (found := tables.count_nodes(pool.name)) >= pool.maximum:
        _refuse(action, f"expected room in pool {pool.name}, found {found} nodes of at most {pool.maximum}")
    new = pool.template.model_copy(update={"name": action.node, "pool": pool.name, "ready_at": None})
    if action.after != new:
        _refuse(action, f"expected a node as the template of pool {pool.name}, found another")
    if pool.provisioning:
        ready_at = tables.clock() + timedelta(seconds=pool.provisioning)
        new = new.model_copy(update={"ready_at": ready_at})
    tables.put_node(new)
    tables.put_pool(with_pool_scaled(pool, action, tables.clock()))


def scale_down(tables: Tables, action: ScaleDown) -> None:
    """Remove an empty node from its pool."""
    pool = _pool(tables, action)
    node = _existing(tables, action)
    if node.pool != pool.name:
        _refuse(action, f"expected it in pool {pool.name}, found it in {node.pool or 'none'}")
    _require_empty(tables, action)
    if (found := tables.count_nodes(pool.name)) <= pool.minimum:
        _refuse(
            action, f"expected more than {pool.minimum} nodes in pool {pool.name}, found {found}, its least"
        )
    tables.delete_node(node.name)
    tables.put_pool(with_pool_scaled(pool, action, tables.clock()))


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


def _existing(tables: Tables, action: Repartition | Cordon | Drain | ScaleDown) -> Node:
    node = tables.node(action.node)
    if node is None:
        _refuse(action, "expected a node, found no such node")
    return node


def _require_empty(tables: Tables, action: Drain | ScaleDown) -> None:
    if jobs := tables.jobs_on(action.node):
        _refuse(action, f"expected it empty, found {', '.join(jobs)} running")


def _pool(tables: Tables, action: ScaleUp | ScaleDown) -> NodePool:
    pool = tables.pool(action.pool)
    if pool is None:
        _refuse(action, f"expected pool {action.pool}, found no such pool")
    return pool


def _refuse(action: Repartition | Cordon | Drain | ScaleUp | ScaleDown, why: str) -> NoReturn:
    deed = {
        "repartition": "be repartitioned",
        "cordon": "be cordoned",
        "drain": "be drained",
        "scale_up": "be added",
        "scale_down": "be removed",
    }[action.type]
    raise ExecutionError(f"node {action.node} cannot {deed}: {why}.")
