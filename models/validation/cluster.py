"""Consistency of cluster-wide settings: pools, data sets, power caps of racks, reservations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import rack_of, rack_path
from gpuplan.models.errors import truncated_names
from gpuplan.models.validation.base import (
    NODES,
    POOLS,
    RACK_POWER,
    RESERVATIONS,
    Damage,
    DamageKind,
    Inconsistency,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.calendar import Reservation
    from gpuplan.models.cluster import Cluster, Node, Rack
    from gpuplan.models.validation.base import SnapshotView


_LONGEST_TEMPLATE: Final = 240
"""Limit on a template's name: a number is appended, and names have at most 253 characters."""


def pools_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """The pool of each node exists; if no pools are described, a pool is only a label."""
    known = {pool.name for pool in view.snapshot.cluster.pools}
    if not known:
        return
    for index, node in enumerate(view.snapshot.cluster.nodes):
        if node.pool is not None and node.pool not in known:
            yield Inconsistency(
                (*NODES, index, "pool"),
                f"node '{node.name}' is of pool '{node.pool}', which is no pool of the cluster.\n"
                f"  Known: {truncated_names(known)}.{view.near.hint(node.pool, known)}",
            )


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
                yield Inconsistency(
                    ("jobs", index, "datasets", number),
                    f"job '{job.name}' reads dataset '{name}', which the cluster does not have.\n"
                    f"  Known: {truncated_names(known) or 'none'}.{view.near.hint(name, known)}",
                )


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
            known = set(racks.values())
            yield Inconsistency(
                here,
                f"there is a power cap for rack '{path}', in which no node stands.\n"
                f"  Known: {truncated_names(known) or 'none'}.{view.near.hint(path, known)}",
                damage=Damage(DamageKind.RACK_EMPTY, "no node stands in it"),
            )
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

    Nodes of pools are added and removed, so a name with the prefix of a pool is accepted.
    """
    prefixes = tuple(f"{pool.template.name}-" for pool in view.snapshot.cluster.pools)
    for index, reservation in enumerate(view.snapshot.cluster.reservations):
        for number, name in enumerate(reservation.nodes):
            if name not in view.nodes and not name.startswith(prefixes):
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
                yield Inconsistency(
                    (*RESERVATIONS, index, "queues", number),
                    f"reservation '{reservation.name}' is owned by queue '{name}', which is no queue of the "
                    f"snapshot.\n  Known: {truncated_names(view.queues) or 'none'}."
                    f"{view.near.hint(name, view.queues)}",
                )
