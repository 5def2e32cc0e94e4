"""Which plans need approval under a policy, and by which of their actions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import (
    Disturbance,
    JobAction,
    PoolAction,
    Preempt,
    Release,
    Repartition,
    added_nodes,
    changes_of,
)
from gpuplan.models.queue import queue_and_above
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR
from gpuplan.planner.analysis.job_changes import unsaved_gpu_milli_seconds
from gpuplan.planner.text_format import count_by_kind, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.approval import Approval


@dataclass(frozen=True, slots=True)
class ApprovalReason:
    """One condition of the policy that a plan meets."""

    text: str
    """What the plan does, and the knob that names it."""
    actions: tuple[str, ...] = ()
    """Ids of the actions that meet it; empty if all of them together do."""


def approval_reasons(plan: Plan, rules: Approval) -> tuple[ApprovalReason, ...]:
    """Conditions under which a plan needs approval; empty if it needs none."""
    return tuple(_reasons(plan, rules))


def approval_reason(plan: Plan, rules: Approval) -> str:
    """The same as one text; empty if the plan needs none."""
    return "; ".join(reason.text for reason in _reasons(plan, rules))


def _reasons(plan: Plan, rules: Approval) -> Iterator[ApprovalReason]:
    changes = changes_of(plan.actions)
    if kinds := [change for change in changes if change.type in rules.needed_for]:
        yield _named(kinds, "which approval.needed_for names")
    if theirs := _disturbing_in(plan, rules.queues, changes):
        yield _named(theirs, "in queues that approval.queues names")
    preempted = [change for change in changes if isinstance(change, Preempt)]
    for knob, noun, number, most, actions in (
        ("changes", "change", len(changes), rules.most_changes, ()),
        ("preemptions", "preemption", len(preempted), rules.most_preemptions, preempted),
        ("gpus", "affected GPU", affected_gpus(plan), rules.most_gpus, ()),
    ):
        if most is not None and number > most:
            text = f"{format_count(number, noun)}, more than approval.most_{knob} {most:,}"
            yield ApprovalReason(text, tuple(change.id for change in actions))
    if (most := rules.most_lost_gpu_hours) is not None and (lost := lost_gpu_hours(plan)) > most:
        yield ApprovalReason(f"{lost:,.1f} lost GPU-hours, more than approval.most_lost_gpu_hours {most:,}")


def _named(changes: list[Change], rule: str) -> ApprovalReason:
    return ApprovalReason(
        f"{count_by_kind(changes, done=False)}, {rule}", tuple(change.id for change in changes)
    )


def _disturbing_in(plan: Plan, queues: Iterable[str], changes: Iterable[Change]) -> list[Change]:
    """Changes of running jobs in these queues and those below them."""
    named, jobs, parents = frozenset(queues), plan.snapshot.job_by_name, plan.snapshot.parent_queues
    # The plan may have been edited: in a circle of queues there would be no end.
    most = len(parents) + 1
    return [
        change
        for change in changes
        if isinstance(change, Disturbance)
        and not named.isdisjoint(islice(queue_and_above(jobs[change.job].queue, parents), most))
    ]


def affected_gpus(plan: Plan) -> int:
    """
    Number of GPUs of which a plan changes the use.

    These are the GPUs that changed jobs hold before or after, those that get another MIG layout, and those of
    nodes that are added or removed; each GPU counts once, however small the part of it is.
    """
    found: set[tuple[str, int]] = set()
    nodes = plan.snapshot.cluster.node_by_name | {node.name: node for node in added_nodes(plan.actions)}
    for change in changes_of(plan.actions):
        if isinstance(change, JobAction | Release):
            found.update(_held(change.before))
            found.update(_held(change.after))
        elif isinstance(change, Repartition):
            found.add((change.node, change.gpu))
        elif isinstance(change, PoolAction) and change.node in nodes:
            found.update(_gpus_of(nodes[change.node]))
    return len(found)


def _held(placement: Placement | None) -> Iterator[tuple[str, int]]:
    for replica in placement.replicas if placement else ():
        for held in replica.gpus:
            yield replica.node, held.index


def _gpus_of(node: Node) -> Iterator[tuple[str, int]]:
    return ((node.name, index) for index in node.gpus.by_index) if node.gpus else iter(())


def lost_gpu_hours(plan: Plan) -> float:
    """GPU-hours of work after the last checkpoint that a plan loses by disturbing running jobs."""
    disturbed = (change.job for change in changes_of(plan.actions) if isinstance(change, Disturbance))
    jobs = plan.snapshot.job_by_name
    lost = sum(unsaved_gpu_milli_seconds(jobs[job], plan.epoch) for job in disturbed)
    return lost / MILLI / SECONDS_PER_HOUR
