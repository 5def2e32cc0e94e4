"""The common layout of explanations: subject, plan, and texts behind labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.units import print_timestamp
from gpuplan.planner.render.plan.header import short_id
from gpuplan.planner.render.style import Style, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.planner.explain.answers.job import Explanation
    from gpuplan.planner.explain.answers.node import NodeExplanation
    from gpuplan.planner.explain.answers.queue import QueueExplanation


def explanation_lines(
    head: str,
    found: Explanation | NodeExplanation | QueueExplanation,
    entries: Iterable[tuple[str, str]],
    style: Style,
    *,
    label: int,
) -> list[str]:
    """The lines of an explanation; labels are `label` columns wide, and a continued label is empty."""
    where = f"(plan {short_id(found.plan_id)}, epoch {print_timestamp(found.epoch)})"
    lines = [style.paint(style.clean(head), Tone.STRONG), *style.wrap(where, 0)]
    for name, text in entries:
        first, *below = style.wrap(text, 2 + label)
        lines += [f"  {style.clean(name):<{label}}{first.strip()}", *below]
    return lines
