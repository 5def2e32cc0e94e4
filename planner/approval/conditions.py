"""Which plans need approval under a policy, and by which of their actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import (
    Grow,
    JobAction,
    Migrate,
    Preempt,
    Release,
    Repartition,
    ScaleDown,
    ScaleUp,
    Shrink,
    changes_of,
)
from gpuplan.models.units import MILLI
from gpuplan.planner.action_labels import count_by_kind
from gpuplan.planner.analysis.job_changes import unsaved_gpu_milli_seconds
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.approval import Approval

_SECONDS_PER_HOUR: Final = 3600
_DISTURBING: Final = (Preempt, Shrink, Grow, Migrate)


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
    named = frozenset(queues)
    parents = {queue.name: queue.parent for queue in plan.snapshot.queues}
    return [
        change
        for change in changes
        if isinstance(change, _DISTURBING)
        and not named.isdisjoint(_with_those_above(plan.snapshot.job_by_name[change.job].queue, parents))
    ]


def _with_those_above(queue: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    seen: set[str] = set()
    while queue is not None and queue not in seen:
        seen.add(queue)
        yield queue
        queue = parents.get(queue)


def affected_gpus(plan: Plan) -> int:
    """
    Number of GPUs of which a plan changes the use.

    These are the GPUs that changed jobs hold before or after, those that get another MIG layout, and those of
    nodes that are added or removed; each GPU counts once, however small the part of it is.
    """
    found: set[tuple[str, int]] = set()
    nodes = plan.snapshot.cluster.node_by_name
    for change in changes_of(plan.actions):
        if isinstance(change, JobAction | Release):
            found.update(_held(change.before))
            found.update(_held(change.after))
        elif isinstance(change, Repartition):
            found.add((change.node, change.gpu))
        elif isinstance(change, ScaleUp):
            found.update(_gpus_of(change.after))
        elif isinstance(change, ScaleDown) and change.node in nodes:
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
    disturbed = (change.job for change in changes_of(plan.actions) if isinstance(change, _DISTURBING))
    jobs = plan.snapshot.job_by_name
    lost = sum(unsaved_gpu_milli_seconds(jobs[job], plan.epoch) for job in disturbed)
    return lost / MILLI / _SECONDS_PER_HOUR
