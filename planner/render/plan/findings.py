"""The damage that a plan found, as lines: one per finding, or one per kind if there are many."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.validation.base import DamageFinding, DamageKind, FindingOutcome
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import TableRow, table
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.render.style import Style

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
    head = [
        style.paint(line, Tone.CARE) for line in style.wrap(f"{format_count(len(findings), 'finding')}:", 0)
    ]
    if verbose or len(findings) <= _MOST:
        rows = [
            TableRow((f"! {each.outcome}", each.subject), finding_text(each), Tone.CARE) for each in findings
        ]
        return head + table(rows, style, uncut=verbose)
    lines = table([_kind_row(kinds, outcome, found) for (kinds, outcome), found in _kinds(findings)], style)
    return [*head, *lines, *style.wrap(f"Grouped by what happened; each one: {more}", 2)]


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
