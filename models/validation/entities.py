"""Consistency of entries: nodes, queues, jobs and their references, and cluster-wide settings."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import Cluster, Node, NodeGpus, Rack, rack_of, rack_path
from gpuplan.models.errors import truncated_names
from gpuplan.models.mig import is_profile, mig_geometry
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import print_milli
from gpuplan.models.validation.base import (
    DATASETS,
    NODES,
    POOLS,
    RACK_POWER,
    RESERVATIONS,
    TARIFFS,
    Damage,
    DamageKind,
    Inconsistency,
    Location,
    SnapshotView,
    cycle_text,
    gpu_indices,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.calendar import Reservation


def names_are_unique(view: SnapshotView) -> Iterator[Inconsistency]:
    """No two nodes have the same name, nor two pools, datasets, reservations, tariffs, queues or jobs."""
    snapshot = view.snapshot
    for kind, location, names in (
        ("node", NODES, [node.name for node in snapshot.cluster.nodes]),
        ("pool", POOLS, [pool.name for pool in snapshot.cluster.pools]),
        ("dataset", DATASETS, [dataset.name for dataset in snapshot.cluster.datasets]),
        ("reservation", RESERVATIONS, [each.name for each in snapshot.cluster.reservations]),
        ("tariff", TARIFFS, [tariff.name for tariff in snapshot.cluster.tariffs]),
        ("queue", ("queues",), [queue.name for queue in snapshot.queues]),
        ("job", ("jobs",), [job.name for job in snapshot.jobs]),
    ):
        first: dict[str, int] = {}
        for index, name in enumerate(names):
            if first.setdefault(name, index) != index:
                yield Inconsistency(
                    (*location, index, "name"),
                    f"{kind} '{name}' is given a second time; expected each {kind} once.",
                    contradicts=(*location, first[name], "name"),
                )


def gpu_details_fit(view: SnapshotView) -> Iterator[Inconsistency]:
    """GPU details refer to GPUs that the node has, each at most once."""
    for subject, location, gpus in _nodes_with_details(view):
        first: dict[int, int] = {}
        for number, gpu in enumerate(gpus.details):
            here = (*location, number, "index")
            if gpu.index >= gpus.count:
                yield Inconsistency(
                    here, f"{subject} has details of gpu {gpu.index}; expected {gpu_indices(gpus.count)}."
                )
            elif first.setdefault(gpu.index, number) != number:
                yield Inconsistency(
                    here,
                    f"{subject} has details of gpu {gpu.index} a second time; expected one entry a GPU.",
                    contradicts=(*location, first[gpu.index], "index"),
                )


def mig_layouts_are_legal(view: SnapshotView) -> Iterator[Inconsistency]:
    """The MIG instances of each GPU form a legal layout of its model."""
    for subject, location, gpus in _nodes_with_details(view):
        geometry = mig_geometry(gpus.model)
        for number, gpu in enumerate(gpus.details):
            if gpu.mig is None:
                continue
            here = (*location, number, "mig")
            if geometry is None:
                yield Inconsistency(
                    here,
                    f"{subject} has gpu {gpu.index} in MIG mode; expected none on GPU model '{gpus.model}', "
                    "which is not known to have MIG.\n  Leave `mig` out, or use NVIDIA's name of the model.",
                )
                continue
            for fault in geometry.faults(gpu.mig):
                yield Inconsistency(
                    here, f"{subject} has an illegal MIG layout on gpu {gpu.index} ({gpus.model}): {fault}."
                )


def _nodes_with_details(view: SnapshotView) -> Iterator[tuple[str, Location, NodeGpus]]:
    """Nodes and node templates with GPU details."""
    cluster = view.snapshot.cluster
    for index, node in enumerate(cluster.nodes):
        if node.gpus and node.gpus.details:
            yield f"node '{node.name}'", (*NODES, index, "gpus", "details"), node.gpus
    for index, pool in enumerate(cluster.pools):
        if (gpus := pool.template.gpus) and gpus.details:
            yield f"the template of pool '{pool.name}'", (*POOLS, index, "template", "gpus", "details"), gpus


def gpus_are_measured_once(view: SnapshotView) -> Iterator[Inconsistency]:
    """No two measurements are of one GPU."""
    first: dict[tuple[str, int], int] = {}
    for number, each in enumerate(view.snapshot.measured):
        if (earlier := first.setdefault((each.node, each.index), number)) != number:
            yield Inconsistency(
                ("measured", number, "index"),
                f"gpu {each.index} of node '{each.node}' is measured a second time; expected it once.",
                contradicts=("measured", earlier, "index"),
            )


def parents_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """The parent of each queue exists in the snapshot."""
    for index, queue in enumerate(view.snapshot.queues):
        if queue.parent is not None and queue.parent not in view.queues:
            statement = f"queue '{queue.name}' has parent '{queue.parent}', which is no queue of the snapshot"
            yield view.unknown(("queues", index, "parent"), statement, queue.parent, view.queues)


def queues_form_a_tree(view: SnapshotView) -> Iterator[Inconsistency]:
    """No queue is above itself; each cycle is reported once, at the first of its queues by name."""
    position = {queue.name: index for index, queue in reversed(list(enumerate(view.snapshot.queues)))}
    seen: set[str] = set()
    for start in sorted(view.queues):
        trail: dict[str, None] = {}
        name: str | None = start
        while name in view.queues and name not in seen and name not in trail:
            trail[name] = None
            name = view.queues[name].parent
        seen.update(trail)
        if name in trail:
            cycle = list(trail)[list(trail).index(name) :]
            lowest = cycle.index(min(cycle))
            ordered = [*cycle[lowest:], *cycle[:lowest], cycle[lowest]]
            yield Inconsistency(
                ("queues", position[ordered[0]], "parent"),
                f"queue '{ordered[0]}' is above itself: {cycle_text(ordered)}; expected a tree.\n"
                "  Take the parent away from one of these queues.",
            )


def guarantees_can_be_kept(view: SnapshotView) -> Iterator[Inconsistency]:
    """The guarantee of each queue is within its limit."""
    queues = view.snapshot.queues
    if not _is_a_tree(view):
        return
    for resource in (ALL_MODELS, *sorted({model for queue in queues for model in queue.gpu_models})):
        limits = None
        for index, queue in enumerate(queues):
            quota = queue.quota_for(resource)
            if quota is None or not quota.guarantee:
                continue
            limits = limits or queue_limits(queues, resource)
            limit = limits.limit[queue.name]
            if limit is not None and quota.guarantee > limit:
                here = ("gpu_models", resource) if resource else ("quota",)
                of_model = f" of model {resource}" if resource else ""
                yield Inconsistency(
                    ("queues", index, *here, "guarantee"),
                    f"queue '{queue.name}' is guaranteed {print_milli(quota.guarantee)} GPUs{of_model}; "
                    f"expected at most {print_milli(limit)}, which is all that it may ever hold.",
                )


def _is_a_tree(view: SnapshotView) -> bool:
    """True if every queue has a unique name and is below a root."""
    below: dict[str | None, list[str]] = defaultdict(list)
    for queue in view.queues.values():
        below[queue.parent].append(queue.name)
    rooted = list(below[None])
    for name in rooted:  # grows as it is walked
        rooted += below[name]
    return len(rooted) == len(view.snapshot.queues)


def queues_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """The queue of each job exists in the snapshot."""
    for index, job in enumerate(view.snapshot.jobs):
        if job.queue not in view.queues:
            statement = f"job '{job.name}' is in queue '{job.queue}', which is no queue of the snapshot"
            yield view.unknown(("jobs", index, "queue"), statement, job.queue, view.queues)


def profiles_are_offered(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each MIG profile that a job requests is supported by some GPU model of the cluster."""
    offered = {profile for geometry in view.geometries.values() for profile in geometry.profiles}
    for index, job in enumerate(view.snapshot.jobs):
        for profile in job.request.mig:
            if profile in offered:
                continue
            asks = f"job '{job.name}' asks for profile '{profile}'"
            known = is_profile(profile)
            fault = "which no GPU model in the cluster offers" if known else "which is not a MIG profile"
            yield Inconsistency(
                ("jobs", index, "request", "mig", profile),
                f"{asks}, {fault}.\n  Offered: {_offers(view)}.{view.near.hint(profile, offered)}",
                damage=Damage(DamageKind.PROFILE_NOT_OFFERED, f"no GPU model offers MIG profile {profile}")
                if known
                else None,
            )


def _offers(view: SnapshotView) -> str:
    """Profiles by GPU model; models with equal profiles are grouped."""
    models: dict[str, list[str]] = {}
    for model, geometry in view.geometries.items():
        models.setdefault(", ".join(sorted(geometry.profiles)), []).append(model)
    offers = (f"{profiles} ({truncated_names(names)})" for profiles, names in sorted(models.items()))
    return "; ".join(offers) or "none, since no GPU model in the cluster is known to have MIG"


# Consistency of cluster-wide settings: pools, data sets, power caps of racks, reservations.


_LONGEST_TEMPLATE: Final = 240
"""Limit on a template's name: a number is appended, and names have at most 253 characters."""


def pools_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """The pool of each node exists; if no pools are described, a pool is only a label."""
    known = {pool.name for pool in view.snapshot.cluster.pools}
    if not known:
        return
    for index, node in enumerate(view.snapshot.cluster.nodes):
        if node.pool is not None and node.pool not in known:
            statement = f"node '{node.name}' is of pool '{node.pool}', which is no pool of the cluster"
            yield view.unknown((*NODES, index, "pool"), statement, node.pool, known)


def templates_take_jobs(view: SnapshotView) -> Iterator[Inconsistency]:
    """New nodes of a pool can be named and can accept jobs."""
    for index, pool in enumerate(view.snapshot.cluster.pools):
        here, template = (*POOLS, index, "template"), pool.template
        if (flag := _flag(template)) is not None:
            yield Inconsistency(
                (*here, flag[0]),
                f"pool '{pool.name}' has a template that {flag[1]}; expected one that takes jobs.",
            )
        if len(template.name) > _LONGEST_TEMPLATE:
            yield Inconsistency(
                (*here, "name"),
                f"pool '{pool.name}' has a template with a name of {len(template.name)} characters; expected "
                f"at most {_LONGEST_TEMPLATE}, since new nodes are named after it with a number.",
            )


def _flag(node: Node) -> tuple[str, str] | None:
    """The field that excludes jobs, with its meaning in words."""
    if not node.ready:
        return "ready", "is not ready"
    if node.cordoned:
        return "cordoned", "is cordoned"
    return ("drain", "is to be drained") if node.drain else None


def datasets_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each data set that a job reads is described by the cluster."""
    known = {dataset.name for dataset in view.snapshot.cluster.datasets}
    for index, job in enumerate(view.snapshot.jobs):
        for number, name in enumerate(job.datasets):
            if name not in known:
                statement = f"job '{job.name}' reads dataset '{name}', which the cluster does not have"
                yield view.unknown(("jobs", index, "datasets", number), statement, name, known)


def racks_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each power cap is for a rack that has nodes, or may get nodes from a pool; each rack has one."""
    cluster = view.snapshot.cluster
    nodes = (*cluster.nodes, *(pool.template for pool in cluster.pools))
    racks = {rack_of(node): rack_path(node) for node in nodes if node.rack}
    first: dict[Rack, int] = {}
    for index, cap in enumerate(cluster.rack_power):
        here, path = (*RACK_POWER, index, "rack"), rack_path(cap)
        key = rack_of(cap)
        if key not in racks:
            statement = f"there is a power cap for rack '{path}', in which no node stands"
            damage = Damage(DamageKind.RACK_EMPTY, "no node stands in it")
            yield view.unknown(here, statement, path, set(racks.values()), damage)
        elif first.setdefault(key, index) != index:
            yield Inconsistency(
                here,
                f"there is a power cap for rack '{path}' a second time; expected each rack once.",
                contradicts=(*RACK_POWER, first[key], "rack"),
            )


# Consistency of reservations: their nodes and owning queues exist.


def reserved_nodes_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """
    Each reservation names nodes of the cluster.

    Nodes of pools are added and removed, so a name of a pool, or with its prefix, is accepted.
    """
    pooled = {name for pool in view.snapshot.cluster.pools for name in pool.names}
    prefixes = tuple(f"{pool.template.name}-" for pool in view.snapshot.cluster.pools)
    for index, reservation in enumerate(view.snapshot.cluster.reservations):
        for number, name in enumerate(reservation.nodes):
            if name not in view.nodes and name not in pooled and not name.startswith(prefixes):
                yield Inconsistency(
                    (*RESERVATIONS, index, "nodes", number),
                    f"reservation '{reservation.name}' is of node '{name}', which the cluster does not have."
                    f"{view.near.hint(name, view.nodes)}",
                    damage=Damage(DamageKind.RESERVATION_SHORT, f"node {name} is gone"),
                )


def enough_nodes_match(view: SnapshotView) -> Iterator[Inconsistency]:
    """Enough nodes match each reservation with a count, including nodes that pools may add."""
    cluster = view.snapshot.cluster
    for index, reservation in enumerate(cluster.reservations):
        matching = _matching(reservation, cluster) if reservation.count else 0
        if matching < reservation.count:
            those = " that match" if reservation.gpu_model or reservation.node_selector else ""
            yield Inconsistency(
                (*RESERVATIONS, index, "count"),
                f"reservation '{reservation.name}' has count = {reservation.count}; "
                f"expected at most {matching}, as there are no more nodes{those}.",
                damage=Damage(
                    DamageKind.RESERVATION_SHORT, f"{matching} of {reservation.count} nodes are there"
                ),
            )


def _matching(reservation: Reservation, cluster: Cluster) -> int:
    fixed = sum(_matches(reservation, node) for node in cluster.nodes)
    may_come = 0
    for pool in cluster.pools:
        if _matches(reservation, pool.template):
            may_come += max(0, pool.maximum - sum(node.pool == pool.name for node in cluster.nodes))
    return fixed + may_come


def _matches(reservation: Reservation, node: Node) -> bool:
    return (
        reservation.gpu_model in (None, node.gpu_model)
        and reservation.node_selector.items() <= node.labels.items()
    )


def owners_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """The queues that own a reservation exist in the snapshot."""
    for index, reservation in enumerate(view.snapshot.cluster.reservations):
        for number, name in enumerate(reservation.queues):
            if name not in view.queues:
                owned = f"reservation '{reservation.name}' is owned by queue '{name}'"
                here = (*RESERVATIONS, index, "queues", number)
                yield view.unknown(here, f"{owned}, which is no queue of the snapshot", name, view.queues)
