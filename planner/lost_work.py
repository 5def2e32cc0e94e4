"""Work that a plan loses: what is in no checkpoint of the jobs that it stops, shrinks or moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.plan import Action


def lost_gpu_hours(actions: Iterable[Action]) -> float:
    """GPU-hours that actions lose together, to a thousandth, as told in their reasons."""
    return round(sum(float(action.reason.numbers.get("lost_gpu_hours", 0)) for action in actions), 3)
