"""The terms of the objective, one function each, in points: value and cost of the plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import MigSlice
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import currency_points, disruption_points, node_points
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.quota_usage import subtree_totals, usage_of_resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.verifier.context import Context, Interval


# Terms that depend on time: completion, deadlines and tariffs.


def completion_term(case: Context) -> int:
    """
    Points of jobs after the plan less their points before, over all jobs that change: Σ_j w_j · completed_j.

    Later starts are included. An invalid start earns nothing: a held job, a job placed twice, a wrong slot,
    or no allowed GPU model.
    """
    total = sum(_value(case, stay) for stay in _starts(case))
    total -= sum(_value_before(case, job) for job in case.stopped)
    for job, occupant in case.changed:
        if job.running:
            total += _value(case, case.time.interval_of_placement(occupant, job)) - _value_before(case, job)
    return total


def points_of_starts(case: Context, name: str | None = None) -> int:
    """Points of jobs that start, now or later, or grow: of one job, or of all."""
    total = sum(_points_of_start(case, stay) for stay in _starts(case, name))
    for job, occupant in case.changed:
        if occupant.change is Change.GROWN and name in (None, job.name):
            total += _value(case, case.time.interval_of_placement(occupant, job))
            total -= _value_before(case, job)
    return total


def points_if_started(case: Context, job: Job, replicas: tuple[Replica, ...]) -> int:
    """Points of a pending job if it started now on these replicas."""
    stay = case.time.interval_of_start(job, 0, replicas)
    return _points_of_start(case, stay) if _may_run(case, stay) else 0


def _points_of_start(case: Context, stay: Interval) -> int:
    replicas = stay.placement.replicas
    model, when = case.time.gpu_model(stay.job, replicas), {"start": stay.start, "seconds": stay.seconds}
    points = _value(case, stay) + case.time.start_value.saved_lateness(stay.job, **when)
    return points - case.time.start_value.tariff_points(stay.job, model, len(replicas), **when)


def _starts(case: Context, name: str | None = None) -> Iterator[Interval]:
    """Valid starts, now and later, of one job or of all."""
    times = case.placement_counts
    for stay in case.time.starting:
        job = stay.job
        if name in (None, job.name) and not (job.withheld or stay.placement.slot or times[job.name] > 1):
            yield from [stay] if _may_run(case, stay) else ()
    for stay in case.time.later:
        if name in (None, stay.job.name):
            yield from [stay] if _may_run(case, stay) else ()


def _may_run(case: Context, stay: Interval) -> bool:
    """True if the job needs no GPU, or all its replicas are on one GPU model that it may use."""
    job, models = stay.job, case.gpu_models(stay.placement.replicas)
    known = len(models) == 1 and (not job.gpu_models or models[0] in job.gpu_models)
    return known or not job.request.needs_gpu


def _value(case: Context, stay: Interval) -> int:
    replicas = stay.placement.replicas
    model = case.time.gpu_model(stay.job, replicas)
    return case.time.start_value.completion(
        stay.job, model, len(replicas), start=stay.start, seconds=stay.seconds
    )


def _value_before(case: Context, job: Job) -> int:
    """Points that a running job would earn if it stayed."""
    replicas = job.running.replicas if job.running else ()
    model, seconds = case.time.gpu_model(job, replicas), case.time.durations.remaining(job)
    return case.time.start_value.completion(job, model, len(replicas), seconds=seconds)


def deadline_term(case: Context) -> int:
    """Lateness avoided by starts, less that of preempted jobs."""
    if case.time.slots.count == 1:
        return 0
    earnings, durations = case.time.start_value, case.time.durations
    saved = sum(
        earnings.saved_lateness(stay.job, start=stay.start, seconds=stay.seconds) for stay in _starts(case)
    )
    lost = sum(
        earnings.saved_lateness(job, start=0, seconds=durations.remaining(job)) for job in case.stopped
    )
    return saved - lost


def tariff_term(case: Context) -> int:
    """Cost of tariffs for starts, by their time."""
    if case.time.slots.count == 1 or not case.snapshot.cluster.tariffs:
        return 0
    return -sum(
        case.time.start_value.tariff_points(
            stay.job,
            case.time.gpu_model(stay.job, stay.placement.replicas),
            len(stay.placement.replicas),
            start=stay.start,
            seconds=stay.seconds,
        )
        for stay in _starts(case)
    )


# Terms of unmet entitlements of queues.


if TYPE_CHECKING:
    Owed: TypeAlias = dict[tuple[str, str], int]
    """Thousandths of GPUs by queue and resource."""


def guarantee_term(case: Context) -> int:
    """
    The price of each GPU (rounded up) missing from the guarantee of a queue and all queues below it.

        missing = max(0, min(guarantee, demand) − held)

    for all GPUs, and for each model. Demand is what its running jobs held, plus the requests of those of its
    pending jobs with a minimum size that fits within the guarantee.
    """
    queues = case.snapshot.queues
    resources = {ALL_MODELS, *(model for queue in queues for model in queue.gpu_models)}
    owed = {
        (queue.name, resource): quota.guarantee
        for queue in queues
        for resource in resources
        if (quota := queue.quota_for(resource)) and quota.guarantee
    }
    return -case.policy.owed(case.policy.prices.guarantee) * _missing(case, owed)


def nominal_quota_term(case: Context) -> int:
    """
    The same for nominal quotas that exceed the guarantee and are contested.

    A quota is contested while a pending job may reclaim what other queues borrow: quotas of its own queue, of
    queues above it that have room for it, and of the borrowing queues.
    """
    price, entitlements = case.policy.owed(case.policy.prices.nominal), case.entitlements
    if not price:
        return 0
    owed = {
        key: entitled
        for key in entitlements.contested
        if (entitled := entitlements.entitled(*key)) > entitlements.guarantee(*key)
    }
    return -price * _missing(case, owed)


def _missing(case: Context, owed: Owed) -> int:
    """Whole GPUs by which queues hold less than their entitlement, as far as they have demand."""
    if not owed:
        return 0
    queues, missing = case.snapshot.queues, 0
    for resource in sorted({resource for _, resource in owed}):
        held = subtree_totals(queues, usage_of_resource(case.usage_after, resource))
        before = subtree_totals(queues, usage_of_resource(case.usage_before, resource))
        for (queue, counted), amount in owed.items():
            if counted == resource:
                asked = subtree_totals(queues, case.facts.asked(resource, amount))
                due = min(amount, before[queue] + asked[queue]) - held[queue]
                missing += -(-max(0, due) // MILLI)
    return missing


# Terms of changes, places and nodes.


def preemption_term(case: Context) -> int:
    """Loss of preempted jobs: checkpoint, restart, work since the last checkpoint, and a slower GPU model."""
    return -sum(case.time.start_value.stop_points(job) for job in case.stopped)


def migration_term(case: Context) -> int:
    """Loss of migrated jobs, and the price of each migration."""
    moved = [job for job, _ in case.with_change(Change.MOVED)]
    lost = sum(disruption_points(case.policy, job, case.snapshot.taken_at) for job in moved)
    return -lost - case.policy.prices.migration * len(moved)


def resize_term(case: Context) -> int:
    """Loss of jobs that shrink or grow, and the price of each resize."""
    resized = [job for job, each in case.changed if each.change in (Change.SHRUNK, Change.GROWN)]
    lost = sum(disruption_points(case.policy, job, case.snapshot.taken_at) for job in resized)
    return -lost - case.policy.prices.resize * len(resized)


def repartition_term(case: Context) -> int:
    """The price of each MIG instance created and of each GPU switched to MIG mode."""
    created: set[tuple[str, int, str, int]] = set()
    switched: set[tuple[str, int]] = set()
    for (name, index), holders in case.newly_used_gpus.items():
        gpus = case.nodes[name].gpus
        present = gpus.by_index[index].mig if gpus else None
        for holder in holders:
            if isinstance(holder.held, MigSlice) and not holder.kept:
                instance = MigInstance(profile=holder.held.profile, start=holder.held.start)
                if instance not in (present or ()):
                    created.add((name, index, instance.profile, instance.start))
                if present is None:
                    switched.add((name, index))
    prices = case.policy.prices
    return -prices.repartition * len(created) - prices.switch_mode * len(switched)


def locality_term(case: Context) -> int:
    """The price of each domain of its preferred level, beyond the first, of a started or migrated job."""
    beyond = 0
    for job, occupant in case.changed:
        level = job.locality.preferred
        if level and occupant.change in (Change.STARTED, Change.MOVED):
            names = {replica.node for replica in occupant.placement.replicas}
            beyond += len({case.domain(name, level) for name in names}) - 1
    return -case.policy.prices.domain * beyond


def fragmentation_term(case: Context) -> int:
    """The price of each wholly free GPU on which no replica of the reference gang fits."""
    price, size = case.policy.prices.fragmentation, case.policy.prices.reference_gpus
    if not price:
        return 0
    used = {
        (replica.node, held.index)
        for placement in case.placements
        for replica in placement.replicas
        for held in replica.gpus
    }
    left_over = 0
    for node in case.nodes_after:
        if node.gpus and node.schedulable:
            free = sum(
                gpu.healthy and gpu.mig is None and (node.name, index) not in used
                for index, gpu in node.gpus.by_index.items()
            )
            left_over += free % size
    return -price * left_over


def node_term(case: Context) -> int:
    """The price of each added node, less that of each removed one, and the price of every such change."""
    added = [node.pool for node in case.added]
    removed = [node.pool for node in case.snapshot.cluster.nodes if node.name in case.gone]
    signed = [(-1, name) for name in added] + [(1, name) for name in removed]
    return sum(
        sign * node_points(case.policy, pool) - case.policy.prices.scaling
        for sign, name in signed
        if (pool := case.pools.get(name or ""))
    )


def data_term(case: Context) -> int:
    """Cost for new replicas to read their data from their nodes."""
    datasets = {dataset.name: dataset for dataset in case.snapshot.cluster.datasets}
    total = 0
    for job, occupant in case.arrivals:
        read = [datasets[name] for name in job.datasets if name in datasets]
        for replica in occupant.new_replicas if read else ():
            if node := case.nodes.get(replica.node):
                cost = sum(dataset.zones.get(node.zone, dataset.elsewhere) for dataset in read)
                total += currency_points(case.policy, cost)
    return -total


def preference_term(case: Context) -> int:
    """Cost of each new replica on a node that its job does not prefer."""
    total = 0
    for job, occupant in case.arrivals:
        for replica in occupant.new_replicas if job.preferred_nodes else ():
            if node := case.nodes.get(replica.node):
                total += sum(each.points for each in job.preferred_nodes if not each.match.holds(node.labels))
    return -total


def interference_term(case: Context) -> int:
    """The price of each node on which jobs of two workload classes newly run together."""
    prices = case.policy.prices.interference
    if not prices:
        return 0
    before = _classes_by_node(case, case.snapshot.running_placements)
    after = _classes_by_node(case, case.placements)
    return -sum(
        price.points
        for name in case.taken_nodes
        for price in prices
        if _meet(price.classes, after[name]) and not _meet(price.classes, before[name])
    )


def _classes_by_node(case: Context, placements: Iterable[Placement]) -> dict[str, Counter[str]]:
    """Number of jobs of each workload class, by node."""
    there = {(replica.node, placement.job) for placement in placements for replica in placement.replicas}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, job_name in there:
        if job := case.jobs.get(job_name):
            found[name][job.workload_class] += 1
    return found


def _meet(classes: tuple[str, str], there: Counter[str]) -> bool:
    one, other = classes
    return there[one] >= 2 if one == other else bool(there[one] and there[other])


def drain_term(case: Context) -> int:
    """
    Reward for each job that has to leave and has left.

    Such a job ran on a node to be drained, or must leave for a window. It has left if it is on no node to be
    drained, and on no node that a window closes before its end.
    """
    draining = {node.name for node in case.snapshot.cluster.nodes if node.drain}
    windows = case.time.windows
    if not (draining or windows.all):
        return 0
    leaving = {job.name for job in case.running if case.time.must_leave(job)}
    remain = {
        job.name
        for occupant in case.judged_placements
        if (job := occupant.job)
        and job.name in leaving
        and any(replica.node in draining for replica in occupant.placement.replicas)
    }
    for stay in case.time.now if windows.all else ():
        if stay.job.name in leaving and any(
            windows.blocking_window(stay.job, replica.node, 0, stay.seconds)
            for replica in stay.placement.replicas
        ):
            remain.add(stay.job.name)
    return case.policy.owed(case.policy.prices.drain) * len(leaving - remain)


TERMS: Final[dict[str, Callable[[Context], int]]] = {
    "completion": completion_term,
    "deadlines": deadline_term,
    "tariffs": tariff_term,
    "preemption": preemption_term,
    "migration": migration_term,
    "resize": resize_term,
    "repartition": repartition_term,
    "locality": locality_term,
    "guarantee": guarantee_term,
    "nominal": nominal_quota_term,
    "fragmentation": fragmentation_term,
    "nodes": node_term,
    "data": data_term,
    "preference": preference_term,
    "interference": interference_term,
    "drain": drain_term,
}
"""All terms by name, in the order in which plans print them."""
