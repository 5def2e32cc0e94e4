"""Consistency of reservations: their nodes and owning queues exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.validation.base import RESERVATIONS, Damage, DamageKind, Inconsistency
from gpuplan.models.validation.suggestions import truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.calendar import Reservation
    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.validation.base import SnapshotView


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
