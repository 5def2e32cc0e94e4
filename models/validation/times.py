"""Consistency of times: no event is later than the snapshot, and no end is before its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.progress import working_since
from gpuplan.models.units import print_timestamp
from gpuplan.models.validation.base import POOLS, Inconsistency

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.job import Running
    from gpuplan.models.validation.base import Location, SnapshotView


def times_are_in_order(view: SnapshotView) -> Iterator[Inconsistency]:
    """
    No event is later than the snapshot, and no deadline is before the job's submission.

    A job may have a later start if one of its nodes is still being provisioned.
    """
    taken_at = view.snapshot.taken_at
    for index, job in enumerate(view.snapshot.jobs):
        past: list[tuple[Location, datetime]] = [(("submitted_at",), job.submitted_at)]
        if job.running:
            if not _is_being_provisioned(view, job.running):
                past.append((("running", "started_at"), job.running.started_at))
            if job.running.last_checkpoint_at:
                past.append((("running", "last_checkpoint_at"), job.running.last_checkpoint_at))
            if job.running.resized_at:
                past.append((("running", "resized_at"), job.running.resized_at))
        if job.progress and job.progress.last_checkpoint_at:
            past.append((("progress", "last_checkpoint_at"), job.progress.last_checkpoint_at))
        for field, time in past:
            if time > taken_at:
                yield Inconsistency(
                    ("jobs", index, *field),
                    f"job '{job.name}' has {field[-1]} {print_timestamp(time)}; expected nothing after the "
                    f"snapshot's own taken_at, {print_timestamp(taken_at)}.",
                )
        if job.running and job.running.kill_at and job.running.kill_at <= job.running.started_at:
            yield Inconsistency(
                ("jobs", index, "running", "kill_at"),
                f"job '{job.name}' has kill_at {print_timestamp(job.running.kill_at)}; expected one after "
                f"its started_at, {print_timestamp(job.running.started_at)}.",
            )
        if job.running and working_since(job.running) < job.running.started_at:
            yield Inconsistency(
                ("jobs", index, "running", "resumed_at"),
                f"job '{job.name}' has resumed_at {print_timestamp(working_since(job.running))}; "
                f"expected none "
                f"before its started_at, {print_timestamp(job.running.started_at)}.",
            )
        if job.deadline and job.deadline < job.submitted_at:
            yield Inconsistency(
                ("jobs", index, "deadline"),
                f"job '{job.name}' has deadline {print_timestamp(job.deadline)}; expected one after its "
                f"submitted_at, {print_timestamp(job.submitted_at)}.",
            )


def pool_scaling_is_past(view: SnapshotView) -> Iterator[Inconsistency]:
    """No node was added to or removed from a pool after the snapshot was taken."""
    taken_at = view.snapshot.taken_at
    for index, pool in enumerate(view.snapshot.cluster.pools):
        for field in ("node_added_at", "node_removed_at"):
            if (time := getattr(pool, field)) is not None and time > taken_at:
                yield Inconsistency(
                    (*POOLS, index, field),
                    f"pool '{pool.name}' has {field} {print_timestamp(time)}; expected nothing after the "
                    f"snapshot's own taken_at, {print_timestamp(taken_at)}.",
                )


def _is_being_provisioned(view: SnapshotView, running: Running) -> bool:
    """True if the job waits for a node that is being provisioned; an unknown node may be one."""
    nodes = [view.nodes.get(replica.node) for replica in running.replicas]
    taken_at = view.snapshot.taken_at
    return any(node is None or (node.ready_at is not None and node.ready_at > taken_at) for node in nodes)


def finished_jobs_ended(view: SnapshotView) -> Iterator[Inconsistency]:
    """A finished job ended after its start and before the snapshot was taken."""
    taken_at = view.snapshot.taken_at
    for index, job in enumerate(view.snapshot.finished):
        here = ("finished", index, "ended_at")
        ended_at = print_timestamp(job.ended_at)
        if job.ended_at < job.started_at:
            yield Inconsistency(
                here,
                f"finished job '{job.name}' has ended_at {ended_at}; expected none before its started_at, "
                f"{print_timestamp(job.started_at)}.",
            )
        if job.ended_at > taken_at:
            yield Inconsistency(
                here,
                f"finished job '{job.name}' has ended_at {ended_at}; expected nothing after the snapshot's "
                f"own taken_at, {print_timestamp(taken_at)}.",
            )


def hard_deadlines_are_given(view: SnapshotView) -> Iterator[Inconsistency]:
    """A job with `hard_deadline` has a deadline."""
    for index, job in enumerate(view.snapshot.jobs):
        if job.hard_deadline and job.deadline is None:
            yield Inconsistency(
                ("jobs", index, "hard_deadline"),
                f"job '{job.name}' has hard_deadline = true and no deadline; expected a deadline beside it.",
            )


def promises_are_for_waiting_jobs(view: SnapshotView) -> Iterator[Inconsistency]:
    """A running job has no promise: it was kept, or is void."""
    for index, job in enumerate(view.snapshot.jobs):
        if job.promise and job.running:
            yield Inconsistency(
                ("jobs", index, "promise"),
                f"job '{job.name}' runs and has a promise; expected promises of waiting jobs only.\n"
                "  Leave `promise` out.",
            )
