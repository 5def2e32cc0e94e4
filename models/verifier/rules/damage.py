"""The rule about damage: no replica keeps a lost place, and each damaged job is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.replica_identity import holding
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.messages import format_count, truncated_names
from gpuplan.models.verifier.snapshot_facts import keeps_unhealthy, lost_places

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.context import Context


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
