"""What all explanations have: whom they are about, by which plan, and texts behind labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.units import print_timestamp
from gpuplan.planner.rendering.header import short
from gpuplan.planner.rendering.style import Style, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.explanation import Explanation
    from gpuplan.models.explanation_node import NodeExplanation
    from gpuplan.models.explanation_queue import QueueExplanation


def explained(
    head: str,
    found: Explanation | NodeExplanation | QueueExplanation,
    entries: Iterable[tuple[str, str]],
    style: Style,
    *,
    label: int,
) -> list[str]:
    """The lines of an explanation; labels take so many columns, and one that goes on is empty."""
    where = f"(plan {short(found.plan_id)}, epoch {print_timestamp(found.epoch)})"
    lines = [style.paint(style.clean(head), Tone.STRONG), *style.wrap(where, 0)]
    for name, text in entries:
        first, *below = style.wrap(text, 2 + label)
        lines += [f"  {style.clean(name):<{label}}{first.strip()}", *below]
    return lines
