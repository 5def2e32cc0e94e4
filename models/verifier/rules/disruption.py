"""Rules about running jobs: what a plan may do to them, and that none keeps a lost place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import holding, unmatched
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import print_seconds
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import format_count, format_replica, truncated_names
from gpuplan.models.verifier.snapshot_facts import keeps_unhealthy, lost_places

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.context import Context


def eviction(case: Context) -> Iterator[Violation]:
    """
    A running job is preempted, resized or migrated only if policy and job allow it, and not changed
    otherwise.

    A preemptible job on a node to be drained, or one that must leave for a window, may be preempted or
    migrated regardless of the policy. A job that was resized recently keeps its size and is not preempted or
    migrated. Neither this nor the minimum runtime counts for what a rollback takes back. The number of
    replicas is checked by the rule `gang`.
    """
    rules = case.policy.disruption
    for stopped in case.stopped:
        for reason in _against_leaving(case, stopped, "preempt", allowed=rules.preempt):
            yield Violation(Rule.EVICTION, f"job {stopped.name}", "stopped", f"keeps running, since {reason}")
    for occupant in case.others:
        if (job := occupant.job) is None or job.running is None:
            continue
        before, after = job.running.replicas, occupant.placement.replicas
        found, allowed = format_count(len(after), "replica"), format_count(len(before), "replica")
        match occupant.change:
            case Change.MOVED:
                reasons = _against_leaving(case, job, "migrate", allowed=rules.migrate)
                found = format_replica(after[unmatched(after, before)[0]])
                allowed = format_replica(before[unmatched(before, after)[0]])
            case Change.SHRUNK:
                reasons = _against_shrinking(case, job)
            case Change.GROWN:
                reasons = _against_growing(case, job)
            case Change.REPLACED:
                new = len(unmatched(after, before))
                found = f"{found} instead of {len(before)}, {new} of them in new places"
                reasons = iter(["only a job that keeps its number of replicas may go elsewhere"])
            case _:
                continue
        for reason in reasons:
            yield Violation(Rule.EVICTION, f"job {job.name}", found, f"{allowed}, since {reason}")


def _against_leaving(case: Context, job: Job, switch: str, *, allowed: bool) -> Iterator[str]:
    """Reasons why a running job may not be preempted or migrated."""
    # A window closes the node in any case: a job may then leave whatever the policy says. What the cluster
    # cannot do at all is refused by the rule `capability`, with a better reason.
    if not job.preemptible:
        yield "it is not preemptible"
    if case.time.must_leave(job):
        return
    if not allowed and case.snapshot.cluster.offers(ActionKind(switch)):
        yield f"disruption.{switch} is off"
    yield from _against_disturbing(case, job)


def _against_shrinking(case: Context, job: Job) -> Iterator[str]:
    if not case.policy.disruption.resize and case.snapshot.cluster.offers(ActionKind.SHRINK):
        yield "disruption.resize is off"
    if not job.preemptible:
        yield "it is not preemptible"
    yield from _against_disturbing(case, job)


def _against_growing(case: Context, job: Job) -> Iterator[str]:
    if not case.policy.disruption.resize and case.snapshot.cluster.offers(ActionKind.GROW):
        yield "disruption.resize is off"
    if job.locality.required:
        yield f"it does not grow while it has to stay within one {job.locality.required}"
    if job.spread:
        yield "it does not grow while its replicas have to be spread"
    yield from _against_resizing_again(case, job)


def _against_resizing_again(case: Context, job: Job) -> Iterator[str]:
    if job.running is None or job.running.resized_at is None or job.name in case.undo.jobs:
        return
    passed = int((case.snapshot.taken_at - job.running.resized_at).total_seconds())
    if passed < (dwell := case.policy.disruption.resize_dwell):
        yield f"it was resized {print_seconds(passed)} ago, less than {print_seconds(dwell)}"


def _against_disturbing(case: Context, job: Job) -> Iterator[str]:
    rules = case.policy.disruption
    least, most = rules.minimum_runtime, rules.max_preemptions
    if job.running and job.name not in case.undo.jobs:
        ran = int((case.snapshot.taken_at - job.running.started_at).total_seconds())
        if ran < least:
            yield f"it has run for {print_seconds(ran)}, less than {print_seconds(least)}"
    if most is not None and job.preemptions >= most:
        yield f"it was preempted {format_count(job.preemptions, 'time')}, and {most:,} is the most"
    yield from _against_resizing_again(case, job)


def damage(case: Context) -> Iterator[Violation]:
    """No running job keeps a replica on a lost place, or fewer replicas than its gang's minimum."""
    if not case.facts.damaged:
        return
    for occupant in case.judged_placements:
        job = occupant.job
        if job is None or (lost := case.facts.damaged.get(job.name)) is None:
            continue
        replicas = occupant.placement.replicas
        kept = [replica for number, replica in enumerate(replicas) if number not in occupant.new]
        for why in sorted({lost[key] for replica in kept if (key := holding(replica)) in lost}):
            yield Violation(
                Rule.DAMAGE, f"job {job.name}", f"a replica that stays, {why}", "places that hold"
            )
        if kept and len(replicas) < job.gang.minimum:
            found = format_count(len(replicas), "replica")
            yield Violation(Rule.DAMAGE, f"job {job.name}", found, f"at least {job.gang.minimum}")


def unnamed_damage(found: Snapshot, sound: Snapshot, named: Collection[str]) -> Iterator[Violation]:
    """
    Check the snapshot that a plan was made from against the one that was `found`.

    Every job with a lost place is in `named`, and no other job is named or changed.
    """
    damaged = lost_places(found)
    left = {job.name for job in found.jobs if job.running and keeps_unhealthy(job, found)}
    for name in sorted((damaged.keys() | left) - set(named)):
        yield Violation(Rule.DAMAGE, f"job {name}", "lost places and no finding", "a finding")
    for name in sorted(set(named) - damaged.keys() - left):
        yield Violation(Rule.DAMAGE, f"job {name}", "a finding and no lost place", "no finding")
    before = found.job_by_name
    for job in sound.jobs:
        if job.name not in damaged and before.get(job.name) != job:
            yield Violation(
                Rule.DAMAGE, f"job {job.name}", "changed without damage", "the job as it was found"
            )
    if missing := before.keys() ^ sound.job_by_name.keys():
        yield Violation(
            Rule.DAMAGE, f"jobs {truncated_names(missing)}", "in one of the two only", "the same jobs"
        )
