"""Changes of a scenario to prices, quotas, settings of the policy, and solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.models.errors import Suggestions
from gpuplan.models.policy.policy import Policy, SolverName
from gpuplan.models.queue import Quota
from gpuplan.models.units import MILLI, print_milli
from gpuplan.planner.sources.documents.build_snapshot import validate_noun
from gpuplan.planner.whatif.patch.scenario_changes import SolverChoice

if TYPE_CHECKING:
    from gpuplan.planner.whatif.patch.scenario_changes import SetPolicy, SetPrice, SetQuota, SetSolver
    from gpuplan.planner.whatif.world import Faults, SnapshotSections


def set_price(world: SnapshotSections, change: SetPrice) -> Faults:
    """Change the price of nodes, of new nodes of pools, or of GPU-hours by tariff."""

    def price(before: float) -> float:
        if change.value is not None:
            return change.value
        return round(before * (change.factor or 0) / MILLI, 6)

    if change.nodes is not None:
        yield from world.change_nodes(
            change.nodes,
            lambda node: node.model_copy(update={"price_per_hour": price(node.price_per_hour)}),
        )
    for name in change.pools:
        yield from world.unknown("pool", name, world.pools)
        if (pool := world.pools.get(name)) is not None:
            template = pool.template.model_copy(
                update={"price_per_hour": price(pool.template.price_per_hour)}
            )
            world.pools[name] = pool.model_copy(update={"template": template})
    for name in change.tariffs:
        yield from world.unknown("tariff", name, world.tariffs)
        if (tariff := world.tariffs.get(name)) is None:
            continue
        if amount := price(tariff.price_per_gpu_hour):
            world.tariffs[name] = tariff.model_copy(update={"price_per_gpu_hour": amount})
        else:  # a tariff's price must be above 0
            del world.tariffs[name]


def set_quota(world: SnapshotSections, change: SetQuota) -> Faults:
    """Change the quota of a queue."""
    yield from world.unknown("queue", change.queue, world.queues)
    queue = world.queues.get(change.queue)
    if queue is None:
        return
    before = queue.quota if change.gpu_model is None else queue.gpu_models.get(change.gpu_model)
    if change.unlimited:
        quota = None
    elif before is None and change.nominal is None:
        of = f" for {change.gpu_model}" if change.gpu_model else ""
        yield f"queue '{queue.name}' has no quota{of} to be changed; expected a nominal one."
        return
    else:
        quota = _quota(before, change)
    if change.gpu_model is None:
        world.queues[queue.name] = queue.model_copy(update={"quota": quota})
        return
    by_model = {model: each for model, each in queue.gpu_models.items() if model != change.gpu_model}
    if quota is not None:
        by_model[change.gpu_model] = quota
    world.queues[queue.name] = queue.model_copy(update={"gpu_models": dict(sorted(by_model.items()))})


def _quota(before: Quota | None, change: SetQuota) -> Quota:
    nominal = change.nominal
    if nominal is None and before is not None:
        factor = MILLI if change.factor is None else change.factor
        nominal = before.nominal * factor // MILLI
    limits = {
        name: value
        for name in ("borrowing_limit", "lending_limit", "guarantee")
        if (value := getattr(change, name)) is not None
    }
    amount = nominal or 0
    return (before or Quota(nominal=print_milli(amount))).model_copy(update={"nominal": amount, **limits})


def set_policy(world: SnapshotSections, change: SetPolicy) -> Faults:
    """Change some settings of the policy; keys that a mapping does not name keep their value."""
    # Unset fields must stay unset: the plan warns about fields that are set and have no effect.
    document = merge_documents(world.policy.model_dump(mode="json", exclude_unset=True), change.stated())
    policy, problems = validate_noun(
        document, Policy, lambda _: None, subject="the policy", near=Suggestions()
    )
    yield from (problem.message for problem in problems)
    if policy is not None:
        world.policy = policy


def merge_documents(before: Any, stated: Any) -> Any:
    """Merge a document into another: mappings key by key, everything else replaced."""
    if not (isinstance(before, dict) and isinstance(stated, dict)):
        return stated
    return before | {key: merge_documents(before.get(key), value) for key, value in stated.items()}


def set_solver(world: SnapshotSections, change: SetSolver) -> Faults:
    """Replace the policy's solvers by one solver."""
    solvers = () if change.solver is SolverChoice.GREEDY else (SolverName(change.solver.value),)
    world.policy = world.policy.model_copy(update={"solvers": solvers})
    yield from ()
