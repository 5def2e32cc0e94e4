"""The targets of the project, one per row, beside the last measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.markdown import mebibytes, percent, seconds, table
from benchmarks.progress import gap_at, seconds_to

if TYPE_CHECKING:
    from collections.abc import Callable

Record = dict[str, Any]

NOT_MEASURED: Final = "–"


def targets_table(records: list[Record]) -> str:
    """All targets with the last record of each case."""
    last = {(record["benchmark"], record.get("case", "")): record for record in records}

    def cell(benchmark: str, case: str, say: Callable[[Record], str]) -> str:
        record = last.get((benchmark, case))
        return NOT_MEASURED if record is None else say(record)

    rows = [(what, target, cell(benchmark, case, say)) for what, target, benchmark, case, say in TARGETS]
    return table(("what", "target", "measured"), rows)


def _greedy(record: Record) -> str:
    stages = record["stages"]
    return f"{seconds(stages['seconds']['greedy'])}, {percent(stages['greedy_gap'], 1)} below the LP"


def _bound(record: Record) -> str:
    took = record["stages"]["seconds"]
    return f"{seconds(took['formulate'] + took['relax'])} (LP {seconds(took['relax'])})"


def _gap(*, wanted: float, within: float) -> Callable[[Record], str]:
    """The gap after `within` seconds, and when the gap `wanted` was reached."""

    def say(record: Record) -> str:
        plan = record["plan"]
        found = gap_at(plan["milestones"], within)
        when = seconds_to(plan["milestones"], wanted)
        reached = (
            f"{percent(wanted)} after {seconds(when)}" if when is not None else f"{percent(wanted)} never"
        )
        return f"{percent(found, 3)} at {within:g} s; {reached}; {percent(plan['gap'], 3)} at the end"

    return say


def _memory(record: Record) -> str:
    plan = record["plan"]
    return f"{mebibytes(plan['peak_mib'])}, the solver's process {mebibytes(plan['solver_peak_mib'])}"


def _missed(record: Record) -> str:
    plan = record["plan"]
    placed = plan["placed"]["started"] + plan["placed"]["later"]
    return f"{plan['missed']:,} of {placed + plan['missed']:,} jobs"


TARGETS: Final[tuple[tuple[str, str, str, str, Callable[[Record], str]], ...]] = (
    ("greedy, 1,000 jobs on 10,000 GPUs (L)", "≤ 25 ms", "sizes", "L", _greedy),
    ("greedy, 10,000 jobs on 100,000 GPUs (XL)", "≤ 300 ms; gap ≤ 8 %", "sizes", "XL", _greedy),
    ("greedy, admission 10K × 1,000", "≤ 0.3 s; gap ≤ 1 %", "admission", "10K x 1,000", _greedy),
    ("greedy, admission 100K × 20K", "≤ 3 s; gap ≤ 1 %", "admission", "100K x 20K", _greedy),
    ("LP bound with its formulation, XL", "≤ 1.5 s", "sizes", "XL", _bound),
    ("LP bound with its formulation, 100K × 50K", "≤ 1.5 s", "admission", "100K x 50K", _bound),
    ("admission 10K × 1,000", "proven in 0.5 s", "admission", "10K x 1,000", _gap(wanted=0.0001, within=0.5)),
    ("admission 10K × 5,000", "≤ 0.1 % in 8 s", "admission", "10K x 5,000", _gap(wanted=0.001, within=8)),
    ("admission 100K × 20K", "≤ 0.2 % in 45 s", "admission", "100K x 20K", _gap(wanted=0.002, within=45)),
    ("admission 100K × 50K", "≤ 0.2 % in 45 s", "admission", "100K x 50K", _gap(wanted=0.002, within=45)),
    ("full model, M", "0.5 % in 2 s", "sizes", "M", _gap(wanted=0.005, within=2)),
    ("full model, L", "2 % in 10 s", "sizes", "L", _gap(wanted=0.02, within=10)),
    ("full model, L", "1 % in 60 s", "sizes", "L", _gap(wanted=0.01, within=60)),
    ("full model, L5", "1 % in 8 s", "sizes", "L5", _gap(wanted=0.01, within=8)),
    ("full model, XL", "3 % in 15 s", "sizes", "XL", _gap(wanted=0.03, within=15)),
    ("full model, XL", "2 % in 60 s", "sizes", "XL", _gap(wanted=0.02, within=60)),
    ("memory, XL", "≤ 1 GB", "sizes", "XL", _memory),
    ("12 slots, XL", "0.1 % in 15 s", "sizes", "XL, 12 slots", _gap(wanted=0.001, within=15)),
    ("jobs of the aggregate answer that found no place, L", "≤ 0.5 %", "sizes", "L", _missed),
    ("the same, XL", "≤ 0.5 %", "sizes", "XL", _missed),
)
"""Description, target, and where to find the measured figure."""
