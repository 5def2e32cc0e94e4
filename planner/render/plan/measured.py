"""What was measured of GPUs, beside a plan: what the rules of health found, and how much was used."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.health.findings import HealthFinding, health_findings
from gpuplan.models.health.measurement import HealthAction
from gpuplan.models.placement import GpuShare
from gpuplan.models.units import MILLI, print_seconds
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_gpus, hostlist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuplan.models.health.measurement import Measurement
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


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


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """Use of some GPUs; what is unknown of a GPU is left out of the average."""

    gpu_milli: int
    """GPUs that were measured, in thousandths: a job's share of a GPU counts as such."""
    utilization: float | None
    """Part of the time in which they computed, from 0 to 1, on average; None if unknown of all."""
    memory: float | None
    """Most memory in use on each, as a part of what they have together, from 0 to 1; None if unknown."""
    period: int
    """Shortest time in seconds for which one of them was watched."""


def measured_use(snapshot: Snapshot) -> MeasuredUse | None:
    """Use of all measured GPUs; None without measurements."""
    known = _known(snapshot)
    return _use(((each, MILLI) for each in known.values()), snapshot)


def measured_use_by_queue(snapshot: Snapshot) -> dict[str, MeasuredUse]:
    """Use of the measured GPUs that the running jobs of each queue hold, as wholes or in shares, by name."""
    known = _known(snapshot)
    parts: dict[str, list[tuple[Measurement, int]]] = defaultdict(list)
    for job in snapshot.jobs if known else ():
        for replica in job.running_replicas:
            for part in replica.gpus:
                seen = known.get((replica.node, part.index))
                if seen is not None and isinstance(part, GpuShare):
                    parts[job.queue].append((seen, part.milli))
    uses = {name: _use(found, snapshot) for name, found in sorted(parts.items())}
    return {name: use for name, use in uses.items() if use is not None}


def _known(snapshot: Snapshot) -> Mapping[tuple[str, int], Measurement]:
    """Measurements of GPUs that are there."""
    nodes = snapshot.cluster.node_by_name
    return {
        (each.node, each.index): each
        for each in snapshot.measured
        if each.node in nodes and each.index < nodes[each.node].gpu_count
    }


def _use(parts: Iterable[tuple[Measurement, int]], snapshot: Snapshot) -> MeasuredUse | None:
    nodes = snapshot.cluster.node_by_name
    total = busy = watched = used = there = 0
    period: int | None = None
    for seen, milli in parts:
        total += milli
        period = seen.period if period is None else min(period, seen.period)
        if seen.utilization is not None:
            busy += milli * seen.utilization
            watched += milli
        gpus = nodes[seen.node].gpus
        if seen.memory_mib is not None and gpus is not None and gpus.memory_mib:
            used += milli * min(seen.memory_mib, gpus.memory_mib)
            there += milli * gpus.memory_mib
    if period is None or not total:
        return None
    utilization = busy / (100 * watched) if watched else None
    return MeasuredUse(total, utilization, used / there if there else None, period)
