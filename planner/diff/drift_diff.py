"""How a newer snapshot differs from a plan's own, and whether the plan can still be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.models.plan.actions import JobAction, changes_of
from gpuplan.models.plan.diff import Drifted
from gpuplan.planner.analysis.effects import nodes_touched
from gpuplan.planner.apply.progress import actions_done_in, verify_remaining
from gpuplan.planner.diff.drift import drift

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.models.base import Noun
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


def drift_items(plan: Plan, live: Snapshot) -> tuple[Drifted, ...]:
    """List every job, node, queue and pool that has changed; those that the plan relies on come first."""
    base = plan.snapshot
    changes = changes_of(plan.actions)
    used = {name for change in changes for name in nodes_touched(change)}
    counted_on = {change.job for change in changes if isinstance(change, JobAction)} | {
        placement.job
        for placement in (*base.running_placements, *live.running_placements)
        if any(replica.node in used for replica in placement.replicas)
    }
    found = [
        *(
            Drifted(subject=f"job {name}", change=change, touched=name in counted_on)
            for name, change in _job_changes(base.job_by_name, live.job_by_name)
        ),
        *(
            Drifted(subject=f"node {name}", change=change, touched=name in used)
            for name, change in _changes(base.cluster.node_by_name, live.cluster.node_by_name)
        ),
        *(
            Drifted(subject=f"queue {name}", change=change, touched=False)
            for name, change in _changes(
                {queue.name: queue for queue in base.queues}, {queue.name: queue for queue in live.queues}
            )
        ),
        *(
            Drifted(subject=f"pool {name}", change=change, touched=False)
            for name, change in _changes(
                {pool.name: pool for pool in base.cluster.pools},
                {pool.name: pool for pool in live.cluster.pools},
            )
        ),
    ]
    return tuple(sorted(found, key=lambda item: (not item.touched, item.subject, item.change)))


def stale_reasons(plan: Plan, live: Snapshot) -> tuple[str, ...]:
    """List the reasons for which apply would refuse the plan, in the drift mode of its policy."""
    done = actions_done_in(plan, live)
    if all(change.id in done for change in changes_of(plan.actions)):
        return ()
    if items := drift(plan, live, done=done, mode=plan.policy.drift):
        return tuple(map(str, items))
    violations = verify_remaining(plan, live, done).violations
    return tuple(f"it would break a rule: {broken}" for broken in violations)


def _job_changes(before: Mapping[str, Job], after: Mapping[str, Job]) -> Iterator[tuple[str, str]]:
    for name, change in _changes(before, after):
        old, new = before.get(name), after.get(name)
        if old is not None and new is None and old.running is not None:
            yield name, "has ended"
        elif old is None or new is None or (old.running is None) == (new.running is None):
            yield name, change
        elif new.running is not None:
            nodes = sorted({replica.node for replica in new.running.replicas})
            yield name, f"has started on {', '.join(nodes)}"
        else:
            yield name, "was stopped and waits again"


def _changes(before: Mapping[str, Noun], after: Mapping[str, Noun]) -> Iterator[tuple[str, str]]:
    """Yield (name, change) of each thing that differs."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield name, "is gone"
        elif old is None:
            yield name, "is new"
        elif old != new:
            yield name, f"changed in {', '.join(_fields_that_differ(old, new))}"


def _fields_that_differ(old: Noun, new: Noun) -> list[str]:
    fields: dict[str, Any] = type(old).model_fields
    return sorted(
        field.alias or name for name, field in fields.items() if getattr(old, name) != getattr(new, name)
    )
