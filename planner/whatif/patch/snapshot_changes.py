"""Changes of a scenario carried out: to nodes and pools, jobs, prices, quotas, the policy and solvers."""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING, Any

from gpuplan.models.cluster import NodeGpus, NodePool
from gpuplan.models.eligibility.node_eligibility import memory_per_gpu
from gpuplan.models.errors import Suggestions
from gpuplan.models.placement import MigSlice
from gpuplan.models.policy.policy import Policy, SolverName
from gpuplan.models.queue import Quota
from gpuplan.models.units import MILLI, print_milli
from gpuplan.planner.sources.documents.build_snapshot import validate_noun
from gpuplan.planner.sources.synthetic.random_streams import Draws
from gpuplan.planner.whatif.patch.scenario_changes import SolverChoice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.planner.whatif.patch.scenario_changes import (
        AddJobs,
        AddNodes,
        DrainNodes,
        FailNodes,
        RemoveJobs,
        RemoveNodes,
        ReplaceGpus,
        ScaleDemand,
        SetJobs,
        SetPolicy,
        SetPool,
        SetPrice,
        SetQuota,
        SetSolver,
    )
    from gpuplan.planner.whatif.world import Faults, SnapshotSections


def add_nodes(world: SnapshotSections, change: AddNodes) -> Faults:
    """Add nodes like an existing one, from a pool, or as described; raises the pool's `max` if needed."""
    pattern = change.node
    if change.like is not None:
        yield from world.unknown("node", change.like, world.nodes)
        if (like := world.nodes.get(change.like)) is not None:
            pattern = like.as_new()
    if change.pool is not None:
        yield from world.unknown("pool", change.pool, world.pools)
        if (pool := world.pools.get(change.pool)) is not None:
            pattern = pool.template.model_copy(update={"pool": pool.name})
    if pattern is None:
        return
    wanted = {level: getattr(change, level) for level in ("rack", "zone", "region")}
    moved = {level: name for level, name in wanted.items() if name is not None}
    names = (f"{pattern.name}-new-{number}" for number in count(1))
    for name in islice((name for name in names if name not in world.nodes), change.count):
        world.nodes[name] = pattern.model_copy(update={"name": name, **moved})
    if pattern.pool in world.pools:
        _make_room(world, world.pools[pattern.pool])


def _make_room(world: SnapshotSections, pool: NodePool) -> None:
    members = sum(node.pool == pool.name for node in world.nodes.values())
    world.pools[pool.name] = pool.model_copy(update={"maximum": max(pool.maximum, members)})


def remove_nodes(world: SnapshotSections, change: RemoveNodes) -> Faults:
    """Remove nodes, stop the jobs there, drop promises there, and take the nodes out of reservations."""
    before = set(world.nodes)
    yield from world.change_nodes(change.nodes, lambda _: None)
    gone = before - world.nodes.keys()
    world.stop(lambda job: _stands_on(job, gone))
    for name, job in world.jobs.items():
        if job.promise and any(replica.node in gone for replica in job.promise.replicas):
            world.jobs[name] = job.model_copy(update={"promise": None})
    for name, reservation in list(world.reservations.items()):
        left = tuple(node for node in reservation.nodes if node not in gone)
        if reservation.nodes and not left:
            del world.reservations[name]
        elif left != reservation.nodes:
            world.reservations[name] = reservation.model_copy(update={"nodes": left})


def fail_nodes(world: SnapshotSections, change: FailNodes) -> Faults:
    """Set nodes to not ready; the jobs there stop and wait."""
    down: set[str] = set()

    def fail(node: Node) -> Node:
        down.add(node.name)
        return node.model_copy(update={"ready": False})

    yield from world.change_nodes(change.nodes, fail)
    world.stop(lambda job: _stands_on(job, down))


def drain_nodes(world: SnapshotSections, change: DrainNodes) -> Faults:
    """Mark nodes for draining; jobs there keep running until the plan has another place for them."""
    yield from world.change_nodes(change.nodes, lambda node: node.model_copy(update={"drain": True}))


def replace_gpus(world: SnapshotSections, change: ReplaceGpus) -> Faults:
    """Replace the GPUs of nodes; jobs that cannot use the new ones stop and wait."""
    same = [node.gpus for node in world.nodes.values() if node.gpus and node.gpus.model == change.model]
    known = same[0] if same else None
    bare, touched = list[str](), set[str]()

    def replace(node: Node) -> Node:
        amount = change.count or node.gpu_count
        if not amount:
            bare.append(node.name)
            return node
        touched.add(node.name)
        memory_mib = known.memory_mib if known else 0
        gpus = NodeGpus(
            model=change.model,
            count=amount,
            memory_mib=memory_mib if change.memory_mib is None else change.memory_mib,
            watts=known.watts if known else 0,
            time_sliced=node.gpus is not None and node.gpus.time_sliced,
        )
        return node.model_copy(update={"gpus": gpus})

    yield from world.change_nodes(change.nodes, replace)
    for name in bare:
        yield f"node '{name}' has no GPUs to be replaced; expected a count beside the model."
    world.stop(lambda job: _stands_on(job, touched) and not _may_stay(world, job, touched))


def _stands_on(job: Job, nodes: Collection[str]) -> bool:
    return job.running is not None and any(replica.node in nodes for replica in job.running.replicas)


def _may_stay(world: SnapshotSections, job: Job, touched: Collection[str]) -> bool:
    """True if a running job may keep its changed nodes: its GPUs exist and are of one allowed model."""
    if job.running is None:
        return True
    models = set[str]()
    for replica in job.running.replicas:
        gpus = world.nodes[replica.node].gpus
        if not replica.gpus or gpus is None:
            continue
        models.add(gpus.model)
        if replica.node in touched and (
            any(isinstance(held, MigSlice) or held.index >= gpus.count for held in replica.gpus)
            or job.request.gpu_memory_mib > memory_per_gpu(gpus, job.request)
        ):
            return False
    return len(models) <= 1 and (not job.gpu_models or models <= job.gpu_models.keys())


def set_pool(world: SnapshotSections, change: SetPool) -> Faults:
    """Change the limits of a pool."""
    yield from world.unknown("pool", change.pool, world.pools)
    pool = world.pools.get(change.pool)
    if pool is None:
        return
    least = pool.minimum if change.minimum is None else change.minimum
    most = pool.maximum if change.maximum is None else change.maximum
    if least > most:
        yield f"pool '{pool.name}' would have min {least} and max {most}; expected min <= max."
        return
    world.pools[pool.name] = pool.model_copy(update={"minimum": least, "maximum": most})


# Changes of a scenario to jobs: add, remove, reweight, hold and multiply them.


def set_jobs(world: SnapshotSections, change: SetJobs) -> Faults:
    """Set weight, priority or hold of jobs."""
    jobs, faults = world.choose_jobs(change.jobs)
    yield from faults
    for job in jobs:
        weight_milli = job.weight_milli if change.weight_milli is None else change.weight_milli
        if change.weight_factor is not None:
            weight_milli = weight_milli * change.weight_factor // MILLI
        update = {
            "weight_milli": weight_milli,
            "priority": job.priority if change.priority is None else change.priority,
            "held": job.held if change.held is None else change.held,
        }
        world.jobs[job.name] = job.model_copy(update=update)


def add_jobs(world: SnapshotSections, change: AddJobs) -> Faults:
    """Add waiting jobs."""
    for job in change.jobs:
        if job.name in world.jobs:
            yield f"there is a job '{job.name}' already; expected a new name."
        yield from world.unknown("queue", job.queue, world.queues)
        world.jobs[job.name] = job


def remove_jobs(world: SnapshotSections, change: RemoveJobs) -> Faults:
    """Remove jobs."""
    jobs, faults = world.choose_jobs(change.jobs)
    yield from faults
    for job in jobs:
        del world.jobs[job.name]


def scale_demand(world: SnapshotSections, change: ScaleDemand) -> Faults:
    """
    Multiply the waiting jobs: whole copies of all, and a random part of them for the rest of the factor.

    Jobs of one co-start group are drawn together. A copy depends on the copy of its original's dependency.
    """
    if change.queue is not None:
        yield from world.unknown("queue", change.queue, world.queues)
    waiting = [
        job for job in world.jobs.values() if job.running is None and change.queue in (None, job.queue)
    ]
    whole, rest = divmod(change.factor, MILLI)
    drawn = _drawn(waiting, rest, change.seed)
    if not whole:
        for job in waiting:
            if job.name not in drawn:
                del world.jobs[job.name]
        return
    for _ in range(whole - 1):
        _copy(world, waiting)
    _copy(world, [job for job in waiting if job.name in drawn])


def _drawn(jobs: Iterable[Job], part_milli: int, seed: int) -> set[str]:
    """Draw the names of a part of the jobs; a co-start group is drawn as a whole or not at all."""
    groups: dict[str, list[str]] = {}
    for job in sorted(jobs, key=lambda job: job.name):
        groups.setdefault(job.co_start or f"{job.name} alone", []).append(job.name)
    # Round to the nearest whole group, halves up.
    wanted = (2 * len(groups) * part_milli + MILLI) // (2 * MILLI)
    drawn = Draws(seed).shuffled(list(groups.values()))[:wanted]
    return {name for group in drawn for name in group}


def _copy(world: SnapshotSections, jobs: Iterable[Job]) -> None:
    """Add one copy of each job; dependencies and groups among the copies mirror those of the originals."""
    originals = list(jobs)
    taken = {*world.jobs, *(job.co_start for job in world.jobs.values())}
    names = {job.name: _new_name(job.name, taken) for job in originals}
    groups = {job.co_start: _new_name(job.co_start, taken) for job in originals if job.co_start}
    for job in originals:
        depends_on = tuple(
            each.model_copy(update={"job": names.get(each.job, each.job)}) for each in job.depends_on
        )
        update = {"name": names[job.name], "depends_on": depends_on, "promise": None, "progress": None}
        if job.co_start:
            update["co_start"] = groups[job.co_start]
        world.jobs[names[job.name]] = job.model_copy(update=update)


def _new_name(name: str, taken: set[str | None]) -> str:
    return next(new for number in count(1) if (new := f"{name}-copy-{number}") not in taken)


# Changes of a scenario to prices, quotas, settings of the policy, and solvers.


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
