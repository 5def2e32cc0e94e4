"""The rule that a plan changes nothing that the cluster cannot change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.action_kinds import INFINITIVES, ActionKind
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.rules.pools import node_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.verifier.context import Context

_KINDS = {Change.MOVED: ActionKind.MIGRATE, Change.SHRUNK: ActionKind.SHRINK, Change.GROWN: ActionKind.GROW}
"""Kinds of action by the changes of jobs that stay, but for those that every cluster can carry out."""


def capability(case: Context) -> Iterator[Violation]:
    """Each change is of a kind that the cluster can carry out (`can`); MIG instances are created by one."""
    can = case.snapshot.cluster.can
    if can is None:
        return
    for subject, found, kind in sorted({*_jobs(case), *node_changes(case), *_gpus(case)}):
        if kind not in can:
            allowed = f"no such change, since the cluster cannot {INFINITIVES[kind]}"
            yield Violation(Rule.CAPABILITY, subject, found, allowed)


def _jobs(case: Context) -> Iterator[tuple[str, str, ActionKind]]:
    """Changes of running jobs as (subject, found, kind)."""
    for job in case.stopped:
        yield f"job {job.name}", "stopped", ActionKind.PREEMPT
    for occupant in case.judged_placements:
        if kind := _KINDS.get(occupant.change):
            yield f"job {occupant.placement.job}", occupant.change.value, kind


def _gpus(case: Context) -> Iterator[tuple[str, str, ActionKind]]:
    """GPUs that get another MIG layout: a job comes to an instance that is not there, or it is put back."""
    for layout in case.undo.layouts:
        yield f"node {layout.node} gpu {layout.gpu}", "a MIG layout put back", ActionKind.REPARTITION
    for (name, index), holders in case.newly_used_gpus.items():
        gpus = case.nodes[name].gpus
        there = {(each.profile, each.start) for each in gpus.by_index[index].mig or ()} if gpus else set()
        for holder in holders:
            held = holder.held
            if not isinstance(held, GpuShare) and not holder.kept and (held.profile, held.start) not in there:
                found = f"an instance {held.profile} created at slice {held.start}"
                yield f"node {name} gpu {index}", found, ActionKind.REPARTITION
