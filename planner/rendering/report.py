"""
The plan as one HTML page for review: no script, no network, light and dark, made to be printed too.

The page shows what `plan_text` shows, and pictures of what changes: queues against their limits, GPU models,
and every node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jinja2

from planner.diffing import diff
from planner.models.units import print_timestamp
from planner.rendering.actions import MARKS, kind_note, node_words, size_and_nodes, why_text
from planner.rendering.grouping import job_kinds, node_kinds, sort_actions, wait_kinds
from planner.rendering.header import (
    cares,
    change_counts,
    cost_text,
    has_free_gpus,
    percent,
    short,
    shown_terms,
    signed,
    waiting_text,
)
from planner.rendering.hostlist import hostlist
from planner.rendering.pictures import model_bars, queue_bars, strips
from planner.rendering.timeline import timeline
from planner.rendering.timing import (
    at_risk,
    change_of_promise,
    changed_start,
    due_text,
    finish_text,
    horizon_parts,
    projections,
)
from planner.rendering.unmet import unmet
from planner.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.models.plan import NodeAction, Plan
    from planner.rendering.grouping import JobKind, Moving, NodeKind, SortedActions

_MOST_LINES: Final = 40
"""Lines of one section before they are gathered into kinds, and then into coarser ones."""
_MOST_REASONS: Final = 8
"""Reasons of one code shown at once."""


def report_html(plan: Plan) -> str:
    """The page; all text in it is escaped."""
    change = diff(plan)
    actions = sort_actions(plan.actions)
    return _template().render(
        plan=plan,
        summary=_summary(plan),
        cares=[*cares(plan.solution), *unmet(plan)],
        terms=[(name, signed(value)) for name, value in shown_terms(plan.solution)],
        title=_title(plan, actions),
        starts=_job_section(actions.starts, plan),
        disturbances=_job_section(actions.disturbances, plan),
        node_actions=_node_section(actions.nodes),
        queue_of={job.name: job.queue for job in plan.snapshot.jobs},
        wait_kinds=wait_kinds(actions.waits),
        most_lines=_MOST_LINES,
        most_reasons=_MOST_REASONS,
        kept=hostlist(keep.job for keep in actions.keeps),
        counts={"keeps": len(actions.keeps), "waits": len(actions.waits)},
        waiting=waiting_text(plan.metrics.jobs.waiting, plan.metrics.jobs.preempted),
        queues=queue_bars(change),
        gpu_models=model_bars(change),
        strips=strips(plan),
        timeline=timeline(plan),
        horizon=horizon_parts(plan)[1:],
        projections=projections(plan),
        promises=[waiting for waiting in plan.waiting if change_of_promise(waiting)],
        deadlines=at_risk(plan),
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """Actions of one sort: each on a line, or gathered into kinds where they are many."""

    count: int
    few: tuple[Any, ...]
    kinds: tuple[JobKind | NodeKind, ...]


def _job_section(actions: Sequence[Moving], plan: Plan) -> _Section:
    if len(actions) <= _MOST_LINES:
        return _Section(len(actions), tuple(actions), ())
    return _Section(len(actions), (), tuple(job_kinds(actions, plan.snapshot, most=_MOST_LINES)))


def _node_section(actions: Sequence[NodeAction]) -> _Section:
    if len(actions) <= _MOST_LINES:
        return _Section(len(actions), tuple(actions), ())
    return _Section(len(actions), (), tuple(node_kinds(actions)))


def _title(plan: Plan, actions: SortedActions) -> str:
    """`3 to start, 0 to preempt, 4 waiting, 2 unchanged`."""
    changes = change_counts(actions) if plan.has_changes else ["no changes"]
    jobs = plan.metrics.jobs
    return ", ".join(
        [*changes, waiting_text(jobs.waiting, jobs.preempted), f"{len(actions.keeps):,} unchanged"]
    )


def _summary(plan: Plan) -> list[tuple[str, str, str]]:
    """Name, value and remark of the figures at the top."""
    solution, metrics = plan.solution, plan.metrics
    proof = "nobody proved a bound" if solution.bound is None else f"bound {solution.bound:,}"
    return [
        ("Objective", f"{solution.objective:,}", f"greedy alone {solution.greedy_objective:,}"),
        ("Gap", "unknown" if solution.gap is None else percent(solution.gap), proof),
        ("Solver", solution.solver, f"{solution.status.lower()}, in {solution.seconds:.1f} s"),
        (
            "GPUs allocated",
            percent(metrics.gpu_allocation_ratio),
            f"{percent(metrics.gpu_allocation_ratio_before)} before",
        ),
        (
            "In whole nodes",
            percent(1 - metrics.fragmentation_ratio) if has_free_gpus(plan) else "none free",
            "of the free GPUs, in blocks of 8 on a node",
        ),
        ("Fairness", f"{metrics.jain_index:.2f}", "Jain's index of the queues' met demand"),
        ("Cost", cost_text(metrics), "per hour, all ready nodes"),
    ]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        change_of_promise=change_of_promise,
        changed_start=changed_start,
        counted=counted,
        due=due_text,
        finish=finish_text,
        kind_note=kind_note,
        mark=lambda type_: f"{MARKS[type_][0]} {type_}",
        node_words=node_words,
        number=lambda value: f"{value:,}",
        short=short,
        size_and_nodes=size_and_nodes,
        timestamp=print_timestamp,
        why=why_text,
    )
    return environment.from_string(
        files("planner.rendering").joinpath("report.html.j2").read_text(encoding="utf-8")
    )
