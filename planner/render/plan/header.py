"""The header of a plan: identity, quality, and everything unusual about the search."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ACTIONS, ActionKind
from gpuplan.models.plan.solution import StopReason
from gpuplan.models.policy.policy import BudgetMode, Policy
from gpuplan.models.policy.settings import Objective
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR, print_timestamp
from gpuplan.planner.analysis.job_changes import lost_gpu_hours
from gpuplan.planner.analysis.policy_changes import settings_without_effect
from gpuplan.planner.render.plan.forecast import horizon_parts
from gpuplan.planner.render.plan.warnings import undone_plan
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.text_format import format_count, format_gpu_hours, format_money

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.plan.plan import Metrics, Plan, SolutionSummary
    from gpuplan.planner.render.plan.action_groups import Moving, SortedActions
    from gpuplan.planner.whatif.runner import WhatIf


_LARGEST_GAP: Final = 1
"""A multiple of the objective; a gap from this on is given in points."""
_SMALLEST_REST: Final = 0.5
"""Share of what a plan brings that is left after its prices; below it the gap is given in points."""
_ALWAYS_COUNTED: Final = (ActionKind.START, ActionKind.PREEMPT)
_NOT_COUNTED: Final = ActionKind.CORDON
"""A cordon is part of a removal."""


def short_id(fingerprint: str) -> str:
    """The first characters of a fingerprint, enough to recognise it."""
    return fingerprint[:8]


def percent(ratio: float) -> str:
    """`0.9 %`."""
    return f"{100 * ratio:.1f} %"


def format_gap(objective: int, gap: float | None) -> str:
    """
    `1.6 %` of the objective; in points if a percentage is not meaningful, for example with objective 0.

    A plan that changes nothing has objective 0, and may be far from proven optimal.
    """
    if gap is None:
        return "unknown"
    if gap and (objective <= 0 or gap >= _LARGEST_GAP):
        return format_count(round(gap * max(1, abs(objective))), "point")
    return percent(gap)


def request_lines(title: str, found: WhatIf, style: Style) -> list[str]:
    """The question, and the snapshot, policy and seed that it was asked of."""
    *begun, last = style.wrap(f"{title}, at {print_timestamp(found.epoch)}", 0, hanging=2)
    about = [f"snapshot {short_id(found.snapshot)}", f"policy {short_id(found.policy)}", f"seed {found.seed}"]
    return [style.paint(line, Tone.STRONG) for line in (*begun, *style.flow([last, *about]))]


def header_lines(plan: Plan, style: Style, *, verbose: bool) -> list[str]:
    """Identity, solution, its terms, and warnings."""
    solution = plan.solution
    identity = [
        f"Plan {short_id(plan.plan_id)}",
        f"epoch {print_timestamp(plan.epoch)}",
        f"snapshot {short_id(plan.base.snapshot)}",
        f"policy {short_id(plan.base.policy)}{_policy_origin(plan)}",
    ]
    terms = [f"{name} {format_signed(value)}" for name, value in shown_terms(solution)]
    greedy = [] if plan.rollback else [f"(greedy {solution.greedy_objective:,})"]
    lines = [
        *(style.paint(line, Tone.STRONG) for line in style.flow(identity)),
        *style.flow(undone_plan(plan) or _quality(solution)),
        *(line for text in _stages(solution) for line in style.wrap(text, 0, hanging=2)),
        *style.flow([*_goal(plan), "terms", *terms, *greedy]),
        *style.flow(horizon_parts(plan)),
    ]
    if verbose and solution.phases:
        lines += style.flow(
            ["seconds", *(f"{phase} {seconds:.2f}" for phase, seconds in sorted(solution.phases.items()))]
        )
    lines += [line for text in search_remarks(plan) for line in style.told(text, Tone.CARE)]
    return [line for line in lines if line]


def _goal(plan: Plan) -> list[str]:
    """The goal of the plan, unless it is the default goal."""
    objective = plan.policy.objective
    if objective == Objective():
        return []
    others = objective.queue_labels
    return [f"goal {objective.words}", *([f"({others})"] if others else [])]


def _policy_origin(plan: Plan) -> str:
    """` (policy.yaml)`, ` (default)`, or empty if a program gave the policy."""
    if plan.policy_file is not None:
        return f" ({PurePath(plan.policy_file).name})"
    return " (default)" if plan.base.policy == Policy().fingerprint() else ""


def metrics_lines(plan: Plan, style: Style) -> list[str]:
    """Metrics of the cluster after the plan."""
    metrics = plan.metrics
    before, after = percent(metrics.gpu_allocation_ratio_before), percent(metrics.gpu_allocation_ratio)
    figures = [
        f"allocated {before} → {after}" if before != after else f"allocated {after}",
    ]
    if has_free_gpus(plan):
        figures.append(f"free GPUs in whole nodes {percent(1 - metrics.fragmentation_ratio)}")
    figures.append(f"fairness {metrics.jain_index:.2f}")
    if metrics.hourly_cost or metrics.hourly_cost_before:
        figures.append(f"cost {cost_text(metrics)}/h")
    return style.flow(figures)


def cost_text(metrics: Metrics) -> str:
    """`196.00`, or `196.00 → 245.50` where the plan changes it."""
    before, after = metrics.hourly_cost_before, metrics.hourly_cost
    if before is None or before == after:
        return format_money(after)
    return f"{format_money(before)} → {format_money(after)}"


def has_free_gpus(plan: Plan) -> bool:
    """True if a schedulable node has a free part of a GPU after the plan."""
    nodes = (*plan.snapshot.cluster.nodes, *plan.target.added)
    open_ = {node.name for node in nodes if node.schedulable} - set(plan.target.removed)
    return any(any(state.free_gpus) for state in plan.nodes if state.name in open_)


def shown_terms(solution: SolutionSummary) -> list[tuple[str, int]]:
    """The terms of the objective that are not 0; the completion term is always shown."""
    return [(name, value) for name, value in sorted(solution.terms.items()) if value or name == "completion"]


def format_signed(value: int) -> str:
    """`+1,200`, `-40`, `0`."""
    return f"{value:+,}" if value else "0"


def change_counts(actions: SortedActions) -> list[tuple[ActionKind, str]]:
    """
    Kinds of change in the plan with text: `3 to start`, `1 to preempt`, `2 nodes to add`.

    Starts and preemptions are always counted, because reviewers ask for them first.
    """
    jobs, nodes = [], []
    for kind, info in ACTIONS.items():
        count = actions.count(kind)
        if kind is _NOT_COUNTED or not (count or kind in _ALWAYS_COUNTED):
            continue
        if info.nouns[0] == "node":
            nodes.append((kind, f"{format_count(count, 'node')} to {info.verb}"))
        else:
            jobs.append((kind, f"{count:,} to {info.verb}{_lost(actions, kind)}"))
    return [*jobs, *nodes]


def _lost(actions: SortedActions, type_: str) -> str:
    """` (206 GPU-hours lost)` by all actions of a type; empty if none is lost."""
    lost = lost_text(action for action in actions.disturbances if action.type == type_)
    return f" ({lost} lost)" if lost else ""


def lost_text(actions: Iterable[Moving]) -> str:
    """Lost work, that is work after the last checkpoint, `206 GPU-hours`; empty if none is lost."""
    hours = lost_gpu_hours(actions)
    return gpu_hours_text(hours) if hours else ""


def gpu_hours_text(hours: float) -> str:
    """`206 GPU-hours`."""
    return format_gpu_hours(round(hours * MILLI * SECONDS_PER_HOUR))


def waiting_text(waiting: int, stopped: int) -> str:
    """`301 waiting (78 of them stopped by this plan)`."""
    if not stopped:
        return f"{waiting:,} waiting"
    if waiting == stopped:
        return f"{waiting:,} waiting (stopped by this plan)"
    return f"{waiting:,} waiting ({stopped:,} of them stopped by this plan)"


def gap_text(solution: SolutionSummary) -> str:
    """`gap 0.9 %`, or `bound unknown`."""
    return "bound unknown" if solution.gap is None else f"gap {format_gap_of(solution)}"


def gap_or_unknown(objective: int, gap: float | None) -> str:
    """`gap 0.9 %`, or `bound unknown`."""
    return "bound unknown" if gap is None else f"gap {format_gap(objective, gap)}"


def format_gap_of(solution: SolutionSummary) -> str:
    """
    The gap as `format_gap` writes it; in points too where prices have eaten most of what the plan brings.

    An unmet guarantee costs about what all jobs bring, and says nothing of them: as a share of the small rest
    a gap of one job would look like half of the plan.
    """
    brings = sum(max(0, points) for points in solution.terms.values())
    if solution.gap and solution.bound is not None and solution.objective < _SMALLEST_REST * brings:
        return format_count(solution.bound - solution.objective, "point")
    return format_gap(solution.objective, solution.gap)


def left_out_text(solution: SolutionSummary) -> str:
    """`; left out: disturbing jobs that waiting ones wait for (2)`: what the proof does not cover."""
    told = ", ".join(f"{each.what} ({each.count:,})" for each in solution.left_out)
    return f"; left out: {told}" if told else ""


def _quality(solution: SolutionSummary) -> list[str]:
    parts = [f"{solution.solver} {solution.status}", f"objective {solution.objective:,}"]
    if solution.bound is None or solution.gap is None:
        parts.append("bound unknown")
    else:
        parts += [f"bound {solution.bound:,}", gap_text(solution)]
    return [*parts, f"in {solution.seconds:.1f} s"]


def _stages(solution: SolutionSummary) -> list[str]:
    """With priorities in order: the points of each priority, and which plans the bound covers."""
    if not solution.stages:
        return []
    told = [
        f"{each.priority} brings {each.points:,} points{'' if each.proven else ' (not proven the most)'}"
        for each in solution.stages
    ]
    return [f"in order of priority: {', '.join(told)}; the bound is of plans that bring these as much"]


def _rejected_text(rejected: str) -> str:
    """A rejected answer; that the last plan breaks a rule now is no fault: the cluster has changed since."""
    if (why := rejected.removeprefix("last plan: ")) != rejected:
        return f"The last plan cannot be carried on, since the cluster has changed: {why}"
    return f"Rejected an answer that breaks a rule: {rejected}"


def search_remarks(plan: Plan) -> list[str]:
    """Warnings about a search that did not end in the usual way, and about settings without effect."""
    solution, found = plan.solution, []
    if solution.ended is StopReason.INTERRUPTED:
        found.append(f"The search was interrupted after {solution.seconds:.1f} s; {gap_text(solution)}")
    if solution.ended is StopReason.TIME and plan.policy.budget.mode is BudgetMode.DETERMINISTIC:
        found.append(
            f"The clock ended the search after {solution.seconds:.1f} s, before its deterministic work was "
            "done: the same question may get another plan next time"
        )
    if (fallback := solution.fallback) is not None:
        found.append(f"Fell back from {fallback.tried} to {fallback.used}: {fallback.reason}")
    found += map(_rejected_text, solution.rejected)
    if solution.left_out and solution.gap == 0 and plan.has_changes:
        found.append(f"Proven best of all that was considered{left_out_text(solution)}")
    if solution.not_disaggregated:
        jobs = format_count(solution.not_disaggregated, "job")
        found.append(f"{jobs} of the solver's answer found no concrete place and wait")
    return [*found, *settings_without_effect(plan.policy, plan.snapshot)]
