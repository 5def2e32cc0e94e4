"""Of a rollback: the plan that it undoes, and what of that plan stays."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.rollback import StaysCode
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.rollback import Rollback, StayingChange
    from gpuplan.planner.render.style import Style

_MOST: Final = 20
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
