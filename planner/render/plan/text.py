"""Plans as text for a terminal or a pipe; the text only shows decisions made elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.rollback import StaysCode
from gpuplan.models.units import print_timestamp
from gpuplan.planner.analysis.effects import likely_executor
from gpuplan.planner.apply.promises import promise_step
from gpuplan.planner.render.plan.action_groups import SortedActions, sort_actions
from gpuplan.planner.render.plan.actions import job_lines, job_table, node_lines, places_table, wait_lines
from gpuplan.planner.render.plan.forecast import promise_and_deadline_lines
from gpuplan.planner.render.plan.header import (
    change_counts,
    gap_text,
    header_lines,
    left_out_text,
    metrics_lines,
    short_id,
    waiting_text,
)
from gpuplan.planner.render.plan.measured import health_lines, measured_figures
from gpuplan.planner.render.plan.warnings import findings_lines, staying_lines, unmet_commitments
from gpuplan.planner.render.style import Style, Tone, paragraphs, typed_path

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.plan_file.excerpt import JobEntries

_MOST_UNMET: Final = 10


def plan_text(plan: Plan, style: Style, *, verbose: bool, path: str | None = None) -> str:
    """
    The plan for review: header, damage, starts, changes of running jobs and of nodes, waiting jobs with their
    reasons, and the next step.

    Many actions are grouped unless `verbose`; a line tells what is not shown. `path` is the plan file for the
    commands shown.
    """
    file = typed_path(path)
    more = f"gpuplan show {file} --all" if file else "gpuplan plan … --all"
    actions = sort_actions(plan.actions)
    sections = [
        header_lines(plan, style, verbose=verbose),
        findings_lines(plan.findings, style, verbose=verbose, more=more),
        health_lines(plan, style, verbose=verbose, more=more),
        job_lines(actions.starts, plan.snapshot, style, verbose=verbose, more=more),
        job_lines(actions.disturbances, plan.snapshot, style, verbose=verbose, more=more),
        node_lines(actions.nodes, style, verbose=verbose, more=more),
        staying_lines(plan.rollback, style, verbose=verbose, more=more),
        wait_lines(actions.waits, plan, style, verbose=verbose, more=more),
        *promise_and_deadline_lines(plan, style, verbose=verbose, more=more),
        [
            *metrics_lines(plan, style),
            *(line for text in measured_figures(plan) for line in style.wrap(text, 0, hanging=2)),
            *_unmet_lines(plan, style, verbose=verbose, more=more),
            *_summary(plan, actions, style),
        ],
    ]
    if file and (plan.has_changes or promise_step(plan)):
        sections[-1].append(
            style.clean(f"Next: gpuplan apply {file} --executor {likely_executor(plan.snapshot)}")
        )
    return paragraphs(sections)


def job_entries_text(found: JobEntries, style: Style, *, plan: Plan) -> str:
    """What a plan says about one job: its actions as in the plan for review, its places, earlier actions."""
    actions = sort_actions(found.actions)
    queue = plan.snapshot.job_by_name[found.job].queue
    moving = [*actions.starts, *actions.disturbances, *actions.keeps]
    changes = job_table(moving, found.epoch).beside("Queue", lambda _: f"queue {queue}")
    places = found.placement.replicas if found.placement else found.planned.replicas if found.planned else ()
    return paragraphs(
        [
            [style.clean(f"Plan {short_id(found.plan_id)}  epoch {print_timestamp(found.epoch)}")],
            findings_lines(
                [each for each in plan.findings if each.job == found.job], style, verbose=True, more=""
            ),
            changes.lines(style, uncut=True, heads=False),
            wait_lines(actions.waits, plan, style, verbose=True, more=""),
            places_table(places).lines(style, uncut=True),
            [
                line
                for action in found.actions
                for early in [", ".join(action.after_actions)]
                if early
                for line in style.wrap(f"{action.id} comes after {early}", 0, hanging=2)
            ],
        ]
    )


def _unmet_lines(plan: Plan, style: Style, *, verbose: bool, more: str) -> list[str]:
    """Guarantees and drains that are not met yet."""
    found = unmet_commitments(plan)
    told = found if verbose or len(found) <= _MOST_UNMET else found[: _MOST_UNMET - 1]
    lines = [line for text in told for line in style.told(text, Tone.CARE, hanging=2)]
    if rest := len(found) - len(told):
        lines += style.wrap(f"… {rest:,} more such lines; each one: {more}", 0)
    return lines


def _why_at_rest(actions: SortedActions) -> str:
    """Why a plan that is proven optimal changes nothing."""
    if not actions.waits:
        return "nothing waits, and no change pays"
    if any(wait.reason.code is ReasonCode.NOT_CHOSEN for wait in actions.waits):
        return "no change pays"
    return "nothing that waits can start now"


def _summary(plan: Plan, actions: SortedActions, style: Style) -> list[str]:
    jobs = plan.metrics.jobs
    counts = f"{waiting_text(jobs.waiting, jobs.preempted)}, {len(actions.keeps):,} unchanged."
    if plan.has_changes:
        changes = ", ".join(text for _, text in change_counts(actions))
        text = f"Plan: {changes}, {counts}"
    elif plan.rollback is not None:
        of = f"of plan {short_id(plan.rollback.plan_id)}"
        left = any(each.code is not StaysCode.WORK_LOST for each in plan.rollback.stays)
        why = f"what is left {of} stays" if left else f"nothing {of} is left to undo"
        text = f"No changes: {why}. {counts}"
    elif plan.solution.gap == 0:
        proof = f"proven, {gap_text(plan.solution)}{left_out_text(plan.solution)}"
        text = f"No changes: {_why_at_rest(actions)} ({proof}). {counts}"
    else:
        text = f"No changes: nothing better was found ({gap_text(plan.solution)}). {counts}"
    return style.told(text, Tone.STRONG)
