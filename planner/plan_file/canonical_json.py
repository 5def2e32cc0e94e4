"""
Canonical JSON of the parts of a plan, with all their fields; the plan's id is a hash of it.

Most of a plan is about jobs that do not change. The texts of these entries are composed from the texts of
their placements and reasons, which are cached because they occur elsewhere too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.base import canonical_string
from gpuplan.models.plan.actions import Keep, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.plan.actions import Action
    from gpuplan.models.plan.forecast import Waiting
    from gpuplan.models.plan.plan import Plan

_OF_TIME: Final = (
    "projected_start",
    "promised",
    "earlier_promise",
    "promise_changed",
    "waits_for",
    "remaining",
)
"""Fields that are empty for most pending jobs."""


def part_texts(plan: Plan) -> dict[str, Iterator[str]]:
    """Texts of the entries of a plan's long lists, by the name of the list."""
    return {
        "actions": map(_action, plan.actions),
        "placements": (placement.full_text for placement in plan.placements),
        "nodes": (state.full_text for state in plan.nodes),
        "waiting": map(_waiting, plan.waiting),
    }


def _action(action: Action) -> str:
    if type(action) is Keep and action.before is action.after:
        return _at_rest(action, action.before.full_text)
    if type(action) is Wait:
        return _at_rest(action, "null")
    return action.full_text


def _at_rest(action: Keep | Wait, place: str) -> str:
    """Text of an action without a change; `place` is the text of the job's placement, before and after."""
    if action.preconditions or action.after_actions:
        return action.full_text
    return (
        f'{{"after":{place},"after_actions":[],"before":{place},"id":{canonical_string(action.id)},'
        f'"job":{canonical_string(action.job)},"preconditions":[],"reason":{action.reason.full_text},'
        f'"type":"{action.type}"}}'
    )


def _waiting(waiting: Waiting) -> str:
    if any(getattr(waiting, name) for name in _OF_TIME):
        return waiting.full_text
    job, reason = canonical_string(waiting.job), waiting.reason.full_text
    return f'{{"job":{job},"projected_start":null,"reason":{reason}}}'
