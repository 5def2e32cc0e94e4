"""`python -m benchmarks sizes` and `admission`: instances measured in stages, each in new processes."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fresh import fresh
from benchmarks.instances import FLEET, Instance
from benchmarks.markdown import mebibytes, percent, seconds, table
from benchmarks.progress import first_plan, gap_at
from benchmarks.records import append
from benchmarks.stages import measure_plan, measure_stages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SIZE_INSTANCES: Final = (
    *(Instance("S", 5), Instance("M", 10), Instance("L", 60), Instance("L5", 30), Instance("XL", 60)),
    Instance("XL", 60, slots=12),
)
"""Instances with the time limits of the targets."""

ADMISSION_INSTANCES: Final = (
    *(Instance("10K x 1,000", 5), Instance("10K x 5,000", 10)),
    *(Instance("100K x 20K", 45), Instance("100K x 50K", 60)),
    *(Instance("10K x 1,000", 10, slots=8), Instance("10K x 5,000", 30, slots=8)),
    *(Instance("100K x 20K", 60, slots=8), Instance("100K x 50K", 120, slots=8)),
)

FLEET_INSTANCES: Final = (Instance(FLEET, 30),)
"""Measured together with admission if the environment names the fleet's file."""

ODD_INSTANCES: Final = (
    *(Instance("shares, 400 GPUs", 20), Instance("shares, 10K GPUs", 20)),
    *(Instance("MIG, 25 nodes", 20), Instance("MIG, 200 nodes", 60)),
    *(Instance("200 queues, M", 20), Instance("200 queues, L", 60)),
)
"""Cases that no rule was tuned for; each is measured with several seeds."""

_INSTANTS: Final = (1, 2, 5, 10, 15, 30, 60)
"""Seconds at which the gap is shown."""

Measured = list[tuple[Instance, dict[str, Any]]]


def measure(benchmark: str, instances: Iterable[Instance], log: Path | None) -> Measured:
    """Stages and plan of each instance, each in its own process."""
    found: Measured = []
    for instance in instances:
        stages = fresh(measure_stages, instance)
        plan = fresh(measure_plan, instance)
        named = {"case": instance.title, "seed": instance.seed, "time_limit": instance.seconds}
        measured = named | {"stages": stages, "plan": plan}
        append(log, benchmark, measured)
        found.append((instance, measured))
    return found


def tables(measured: Measured) -> str:
    """All tables of the instances."""
    return "\n".join(make(measured) for make in (stage_table, family_table, plan_table))


def seed_table(measured: Measured) -> str:
    """One line for each case, with the median of its seeds and the worst in parentheses."""
    head = (
        *("case", "seeds", "limit", "took", "greedy to LP bound"),
        *("gap", "gain missed", "missed", "plan by"),
    )
    cases: dict[Instance, list[dict[str, Any]]] = {}
    for instance, found in measured:
        cases.setdefault(replace(instance, seed=0), []).append(found)
    return table(head, (_seed_cells(instance, found) for instance, found in cases.items()))


def _seed_cells(instance: Instance, found: list[dict[str, Any]]) -> list[str]:
    def spread(values: list[float]) -> str:
        return f"{percent(median(values))} ({percent(max(values))})"

    plans = [each["plan"] for each in found]
    greedy = [each["stages"]["greedy_gap"] for each in found if each["stages"]["greedy_gap"] is not None]
    return [
        instance.title,
        ", ".join(str(each["seed"]) for each in found),
        f"{instance.seconds:g} s",
        seconds(max(plan["seconds"] for plan in plans)),
        spread(greedy) if greedy else "",
        spread([plan["gap"] for plan in plans]),
        spread([plan["gain_missed"] for plan in plans]),
        f"{max(plan['missed'] for plan in plans):,}",
        ", ".join(sorted({plan["solver"] for plan in plans})),
    ]


def stage_table(measured: Measured) -> str:
    """The stages before the search."""
    head = (
        *("case", "nodes", "running / waiting", "classes", "columns", "rows", "non-zeros"),
        *("pose", "greedy", "verify", "formulate", "LP", "greedy to LP bound", "peak"),
    )
    return table(head, (_stage_cells(instance, found["stages"]) for instance, found in measured))


def _stage_cells(instance: Instance, stages: dict[str, Any]) -> list[str]:
    took, sizes = stages["seconds"], stages["sizes"]
    counts = (f"{sizes[name]:,}" for name in ("classes", "columns", "rows", "non_zeros"))
    return [
        f"{instance.title}, seed {instance.seed}",
        f"{sizes['nodes']:,}",
        f"{sizes['running']:,} / {sizes['waiting']:,}",
        *counts,
        *(seconds(took[name]) for name in ("pose", "greedy", "verify", "formulate", "relax")),
        percent(stages["greedy_gap"]),
        mebibytes(stages["peak_mib"]),
    ]


def family_table(measured: Measured) -> str:
    """Rows and non-zeros per family of constraints; blank if an instance has none."""
    names = sorted({name for _, found in measured for name in found["stages"]["families"]})
    head = (
        "family, rows / non-zeros",
        *(f"{instance.title}, seed {instance.seed}" for instance, _ in measured),
    )
    return table(head, ([name, *_family_cells(name, measured)] for name in names))


def _family_cells(name: str, measured: Measured) -> Iterator[str]:
    for _, found in measured:
        family = found["stages"]["families"].get(name)
        yield f"{family['rows']:,} / {family['non_zeros']:,}" if family else ""


def plan_table(measured: Measured) -> str:
    """The gap over time, and the result of the search."""
    head = (
        *("case", "limit", "took", "first plan"),
        *(f"{instant} s" for instant in _INSTANTS),
        *(
            "gap",
            "gain missed",
            "plan by",
            "started / stopped / later",
            "GPUs held",
            "missed",
            "peak, solver's",
        ),
    )
    return table(head, (_plan_cells(instance, found["plan"]) for instance, found in measured))


def _plan_cells(instance: Instance, plan: dict[str, Any]) -> list[str]:
    placed, milestones = plan["placed"], plan["milestones"]
    at = (gap_at(milestones, instant) if instant <= plan["seconds"] else None for instant in _INSTANTS)
    return [
        f"{instance.title}, seed {instance.seed}",
        f"{instance.seconds:g} s",
        seconds(plan["seconds"]),
        seconds(first_plan(milestones)),
        *(percent(gap) for gap in at),
        percent(plan["gap"], 4),
        percent(plan["gain_missed"], 4),
        plan["solver"],
        f"{placed['started']:,} / {placed['stopped']:,} / {placed['later']:,}",
        percent(placed["gpu_ratio"], 1),
        f"{plan['missed']:,}",
        f"{mebibytes(plan['peak_mib'])}, {mebibytes(plan['solver_peak_mib'])}",
    ]
