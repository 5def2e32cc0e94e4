"""What was measured of GPUs, beside a plan: what the rules of health found, and how much was used."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.health.findings import HealthFinding, health_findings
from gpuplan.models.health.rules import HealthAction
from gpuplan.models.units import print_seconds
from gpuplan.planner.analysis.measured_use import MeasuredUse, measured_use, measured_use_by_queue
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_gpus, hostlist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.plan.plan import Plan

_MOST: Final = 20
_EFFECTS: Final = {HealthAction.EXCLUDE: "! excluded", HealthAction.WARN: "! look at"}


def gpu_findings(plan: Plan) -> tuple[HealthFinding, ...]:
    """What the plan's rules of health find at its GPUs, those that they exclude first."""
    found = health_findings(plan.snapshot, plan.policy.health)
    return tuple(sorted(found, key=lambda each: each.action is not HealthAction.EXCLUDE))


def health_lines(plan: Plan, style: Style, *, verbose: bool, more: str) -> list[str]:
    """A heading, then one entry per finding, or per rule if there are many; `more` shows all."""
    found = gpu_findings(plan)
    if not found:
        return []
    head = style.told(f"{format_count(len(found), 'finding')} at GPUs:", Tone.CARE)
    if verbose or len(found) <= _MOST:
        return head + health_table(found).lines(style, uncut=verbose, heads=False)
    lines = Table(_rule_rows(found)).lines(style)
    return [*head, *lines, *style.wrap(f"Grouped by rule; each one: {more}", 2)]


def health_table(found: Sequence[HealthFinding]) -> Table:
    """A row per finding: the GPU, and what was measured."""
    rows = [
        TableRow((_EFFECTS[each.action], f"{each.node} GPU {each.index}"), each.text, Tone.CARE)
        for each in found
    ]
    return Table(rows, ("Outcome", "GPU"), note="What was measured")


def _rule_rows(found: Sequence[HealthFinding]) -> list[TableRow]:
    """A row per rule that was broken, with the nodes."""
    rules: dict[tuple[str, str], list[HealthFinding]] = defaultdict(list)
    for each in found:
        rules[_EFFECTS[each.action], each.fault].append(each)
    return [
        TableRow((effect, format_count(len(some), "GPU")), f"{fault}; {_nodes(some)}", Tone.CARE)
        for (effect, fault), some in sorted(rules.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]


def _nodes(found: Sequence[HealthFinding]) -> str:
    return f"on {hostlist(each.node for each in found)}"


# How much of the GPUs was used.


def measured_figures(plan: Plan) -> list[str]:
    """`measured 43 % busy`, `61 % of memory in use`, `8 GPUs over 15m`; nothing without measurements."""
    use = measured_use(plan.snapshot)
    if use is None:
        return []
    told = [f"{busy_text(use)} busy"] if use.utilization is not None else []
    told += [f"{memory_text(use)} of memory in use"] if use.memory is not None else []
    return [f"measured {', '.join([*told, scope_text(use)])}"]


def busy_text(use: MeasuredUse) -> str:
    """`43.1 %`; `unknown` where no utilization was told."""
    return _percent(use.utilization)


def memory_text(use: MeasuredUse) -> str:
    """`61.0 %`; `unknown` where no memory was told."""
    return _percent(use.memory)


def scope_text(use: MeasuredUse) -> str:
    """`8 GPUs over 15m`; without the time for a single look."""
    over = f" over {print_seconds(use.period)}" if use.period else ""
    return f"{format_gpus(use.gpu_milli)}{over}"


def _percent(part: float | None) -> str:
    return "unknown" if part is None else f"{100 * part:.1f} %"


def queue_use_table(plan: Plan) -> Table:
    """What the running jobs of each queue use of the GPUs that they hold; those that use least first."""
    uses = measured_use_by_queue(plan.snapshot)
    least = sorted(uses.items(), key=lambda item: (item[1].utilization is None, item[1].utilization, item[0]))
    rows = [
        TableRow((name, format_gpus(use.gpu_milli), busy_text(use), memory_text(use))) for name, use in least
    ]
    return Table(rows, ("Queue", "Measured", "Busy", "Memory in use"), right=(1, 2, 3))
