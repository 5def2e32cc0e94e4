"""Warnings of a plan as lines: damage, obligations that it does not meet yet, and what a rollback leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import changes_of
from gpuplan.models.plan.rollback import Rollback, StayingChange, StaysCode
from gpuplan.models.queue import ALL_MODELS, with_all_below
from gpuplan.models.units import MILLI
from gpuplan.models.validation.base import DamageFinding, DamageKind, FindingOutcome
from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
from gpuplan.planner.analysis.quota_headroom import usage_by_queue, usage_of_resource
from gpuplan.planner.analysis.stay_reasons import FIXED, STAYS, StayReasons
from gpuplan.planner.apply.steps.checkpoint_slots import CheckpointSlots
from gpuplan.planner.problem_builder.quotas import guaranteed_demand
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_milli, join_first_names, join_jobs, join_with_and
from gpuplan.planner.waiting.time_messages import window_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


_MOST: Final = 20
_OUTCOMES: Final = {
    FindingOutcome.RESTARTED: "gives up its places and starts again now",
    FindingOutcome.WAITING: "gives up its places and waits again",
    FindingOutcome.CONTINUED: "goes on with the replicas that are left",
    FindingOutcome.COMPLETED: "goes on with the replicas that are left and gets new ones",
}
_LEFT: Final = {
    DamageKind.GPU_UNHEALTHY: "is left there, as it may not be interrupted",
    DamageKind.NODE_OVERFULL: "takes nothing new until there is enough",
    DamageKind.RESERVATION_SHORT: "holds for the nodes that are there",
    DamageKind.RACK_EMPTY: "counts for nothing",
    DamageKind.PROFILE_NOT_OFFERED: "waits until one does",
}


def findings_lines(findings: Sequence[DamageFinding], style: Style, *, verbose: bool, more: str) -> list[str]:
    """A heading, then one entry per finding, or per kind if there are many; `more` shows all."""
    if not findings:
        return []
    head = style.told(f"{format_count(len(findings), 'finding')}:", Tone.CARE)
    if verbose or len(findings) <= _MOST:
        return head + findings_table(findings).lines(style, uncut=verbose, heads=False)
    lines = Table([_kind_row(*key, found) for key, found in _kinds(findings)]).lines(style)
    return [*head, *lines, *style.wrap(f"Grouped by what happened; each one: {more}", 2)]


def findings_table(findings: Sequence[DamageFinding]) -> Table:
    """A row per finding: what becomes of what, and why."""
    rows = [TableRow((f"! {each.outcome}", each.subject), finding_text(each), Tone.CARE) for each in findings]
    return Table(rows, ("Outcome", "What"), note="Why, and what becomes of it")


def finding_text(finding: DamageFinding) -> str:
    """The damage, and the action that the plan takes."""
    return f"{finding.text}; {_outcome(finding)}"


def _outcome(finding: DamageFinding) -> str:
    return _OUTCOMES.get(finding.outcome) or _LEFT.get(finding.kinds[0], "is left as it is")


def _kinds(findings: Sequence[DamageFinding]) -> list[tuple[tuple[str, FindingOutcome], list[DamageFinding]]]:
    """Findings by kind of damage and outcome, the most frequent first."""
    found: dict[tuple[str, FindingOutcome], list[DamageFinding]] = defaultdict(list)
    for each in findings:
        found[", ".join(each.kinds), each.outcome].append(each)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def _kind_row(kinds: str, outcome: FindingOutcome, found: Sequence[DamageFinding]) -> TableRow:
    jobs = sum(each.job is not None for each in found)
    what = format_count(jobs, "job") if jobs else format_count(len(found), "other finding")
    return TableRow((f"! {outcome}", what), note=f"{kinds}; {_outcome(found[0])}", tone=Tone.CARE)


# Obligations that a plan does not meet yet: guarantees of queues, drains, and reservation windows.


def unmet_commitments(plan: Plan) -> list[str]:
    """A sentence per missed guarantee, node that should be empty and is not, and busy checkpoint storage."""
    return [
        *missed_guarantees(plan),
        *waiting_drains(plan),
        *waiting_windows(plan),
        *checkpoint_queues(plan),
    ]


def missed_guarantees(plan: Plan) -> list[str]:
    """`queue research: 8 of 12 guaranteed GPUs`: GPUs held, of the guarantee that its jobs ask for."""
    snapshot = plan.snapshot
    before = usage_by_queue(snapshot, snapshot.running_placements)
    after = usage_by_queue(snapshot, plan.placements, added=plan.target.added)
    found = []
    for resource in sorted({ALL_MODELS, *(model for queue in snapshot.queues for model in queue.gpu_models)}):
        held = with_all_below(snapshot.queues, usage_of_resource(after, resource))
        for queue in snapshot.queues:
            quota = queue.quota_for(resource)
            if quota is None or not quota.guarantee:
                continue
            demand = _demand(snapshot, usage_of_resource(before, resource), resource, quota.guarantee)
            owed = min(quota.guarantee, with_all_below(snapshot.queues, demand)[queue.name])
            if held[queue.name] < owed:
                model = f"{resource} " if resource else ""
                gpus = f"{format_milli(owed)} guaranteed {model}GPU{'' if 0 < owed <= MILLI else 's'}"
                found.append((queue.name, resource, f"{format_milli(held[queue.name])} of {gpus}"))
    return [f"queue {name}: {text}" for name, _, text in sorted(found)]


def _demand(snapshot: Snapshot, held: Mapping[str, int], resource: str, amount: int) -> dict[str, int]:
    """Usage of jobs directly in each queue, plus the demand of waiting jobs that fit within `amount`."""
    demand = Counter(held)
    for job in snapshot.jobs:
        if job.running is None:
            demand[job.queue] += guaranteed_demand(job, resource, amount)
    return demand


def waiting_drains(plan: Plan) -> list[str]:
    """`node h100-2: drain waits for serve (not preemptible)`: jobs left on nodes to drain, and why."""
    draining = {node.name for node in plan.snapshot.cluster.nodes if node.drain}
    jobs = plan.snapshot.job_by_name
    reasons = StayReasons(plan)
    left: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for placement in sorted(plan.placements, key=lambda placement: placement.job):
        for node in placement.nodes & draining:
            left[node][reasons.of_drain(jobs[placement.job])].append(placement.job)
    found = []
    for node, names in sorted(left.items()):
        order = sorted(names, key=lambda why: (why != FIXED, why == STAYS, why))
        told = [f"{join_jobs(names[why])} ({why})" for why in order]
        found.append(f"node {node}: drain waits for {join_with_and(told)}")
    return found


def waiting_windows(plan: Plan) -> list[str]:
    """`maintenance m1: train-a is still on h100-2 (stays)`: jobs that a reservation window should move."""
    if not plan.snapshot.cluster.reservations:
        return []
    windows, jobs = (
        ProjectedSchedule(plan.snapshot, plan.policy, plan.target).windows,
        plan.snapshot.job_by_name,
    )
    reasons, found = StayReasons(plan), []
    for placement in sorted(plan.placements, key=lambda placement: placement.job):
        job = jobs[placement.job]
        window = windows.forced_leave_window(job)
        left = sorted(placement.nodes & (window.nodes if window else set()))
        if window is not None and left:
            what = f"{join_jobs([job.name])} is still on {join_first_names(left)}"
            found.append(f"{window_name(window)}: {what} ({reasons.of_window(job)})")
    return sorted(found)


def checkpoint_queues(plan: Plan) -> list[str]:
    """`storage lustre: 6 jobs save their state, 2 at a time`: applies wait there for a checkpoint slot."""
    queues = CheckpointSlots(plan).queues(changes_of(plan.actions))
    return [
        f"storage {storage}: {format_count(count, 'job')} save their state, {slots} at a time"
        for storage, (count, slots) in queues.items()
    ]


# Of a rollback: the plan that it undoes, and what of that plan stays.


_ID: Final = 8
"""Characters of a plan's id that are shown."""
_MEANING: Final = {
    StaysCode.FINISHED: "has ended, or is gone",
    StaysCode.CHANGED: "was changed again since",
    StaysCode.LOST: "its places are lost",
    StaysCode.WORK_LOST: "work since the last checkpoint stays lost",
    StaysCode.TAKEN: "its place is taken",
    StaysCode.IN_USE: "is in use",
    StaysCode.STARTED: "runs on; --stop-started stops it",
    StaysCode.RULE: "a rule forbids it",
    StaysCode.INCAPABLE: "no plan can do the opposite",
}


def undone_plan(plan: Plan) -> list[str]:
    """`undoes plan 8705c9e6, of which 3 actions were done`; empty for other plans."""
    if (undo := plan.rollback) is None:
        return []
    done = f"{format_count(undo.done, 'action')} {'was' if undo.done == 1 else 'were'} done"
    return [f"undoes plan {undo.plan_id[:_ID]}, of which {done}"]


def staying_lines(undo: Rollback | None, style: Style, *, verbose: bool, more: str) -> list[str]:
    """A heading, then one entry for each change that stays, or for each reason if there are many."""
    if undo is None or not undo.stays:
        return []
    head = style.told("Stays as it is:", Tone.CARE)
    if verbose or len(undo.stays) <= _MOST:
        rows = [TableRow(("= stay", each.subject), each.text, Tone.CARE) for each in undo.stays]
        return head + Table(rows).lines(style, uncut=verbose, heads=False)
    alike: dict[tuple[StaysCode, str], list[StayingChange]] = defaultdict(list)
    for each in undo.stays:
        alike[each.code, each.rule or ""].append(each)
    rows = [
        TableRow(
            ("= stay", format_count(len(found), "change")),
            f"{_MEANING[code]}{f': {rule}' if rule else ''}",
            Tone.CARE,
        )
        for (code, rule), found in sorted(alike.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return [*head, *Table(rows).lines(style), *style.wrap(f"Grouped by reason; each one: {more}", 2)]
