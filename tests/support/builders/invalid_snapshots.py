"""Snapshots as they are given, in which something may not make sense, and what is told of them."""

from __future__ import annotations

from gpuplan.models.cluster import Cluster
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.validation.checks import inconsistencies
from tests.support.builders.build import NOW, cluster, queue
from tests.support.output.golden import figures


def world(*, nodes=None, jobs=(), queues=None, finished=(), measured=(), **about):
    """A snapshot in the order given."""
    return Snapshot(
        taken_at=NOW,
        cluster=Cluster(nodes=tuple(cluster() if nodes is None else nodes), **about),
        queues=tuple((queue(),) if queues is None else queues),
        jobs=tuple(jobs),
        finished=tuple(finished),
        measured=tuple(measured),
    )


def found(snapshot, **more):
    """Where something contradicts something, and the names and figures that are told of it."""
    return [(location, figures(message)) for location, message in told(snapshot, **more)]


def told(snapshot, **more):
    """Where something contradicts something, and the message."""
    return [(one.location, one.message) for one in inconsistencies(snapshot, **more)]


def only(snapshot):
    """The one inconsistency of a snapshot."""
    (one,) = inconsistencies(snapshot)
    return one
