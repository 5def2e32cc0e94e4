"""
Goals beside rules of the literature on days of the Philly trace, with exact, wrong and no estimates.

The jobs of a day, compressed to a load, for each goal and each rule; no constant was chosen on these days.
The tables divide by shortest job first (SJF), a rule of ten lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks import presets, same_knowledge
from benchmarks.markdown import table
from benchmarks.records import append
from benchmarks.same_knowledge import Cell, Source, trace_of
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.records import Record

NAME: Final = "goals"
JUDGED: Final = ("2017-10-12", "2017-10-26", "2017-11-08", "2017-11-28", "2017-12-11")
"""Days that had no part in any choice."""
_JOBS: Final = 457
_CLOCK: Final = EpochClock(15 * 60, at_events=True, apart=60)
_TURNS: Final = {"disruption": {"priority_gap": 0, "minimum_runtime": "30m"}}
_AHEAD: Final = {"horizon": {"slots": 16, "length": "15m", "backfill": {"depth": 1}}}

POLICIES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "ahead": _AHEAD,
    "value": {"objective": {"goal": "value"}},
    "with turns": _TURNS,
    "research": presets.preset("research").model_dump(mode="json", by_alias=True, exclude_unset=True),
    "fairness, turns": {"objective": {"goal": "fairness"}, **_TURNS},
    "least-attained-service, turns": {"objective": {"goal": "least-attained-service"}, **_TURNS},
    "makespan, turns": {"objective": {"goal": "makespan"}, **_TURNS},
}
"""Settings that differ from the defaults; `research` is the starter policy."""

_FEW: Final = ("default", "with turns", "easy", "sjf", "srsf", "las")
_EVERY: Final = (*POLICIES, "fifo", "easy", "sjf", "srsf", "las", "least-slack")


@dataclass(frozen=True)
class Group:
    """The days at one load, with one kind of estimates."""

    load: float
    estimates: str = "exact"
    entrants: tuple[str, ...] = _FEW


GROUPS: Final[dict[str, Group]] = {
    "load 1.8": Group(1.8, entrants=_EVERY),
    "load 1.4": Group(1.4),
    "load 1.0": Group(1.0),
    "load 1.8, estimates within a factor of 2": Group(1.8, "factor 2"),
    "load 1.8, no estimates": Group(1.8, "none"),
}


def measure(names: Iterable[str], philly: Path, *, log_file: Path | None) -> list[Record]:
    """Each entrant on each day of the groups, planned by greedy only; append the records to the log."""
    records = []
    for name in names:
        group = GROUPS[name]
        source = Source(same_knowledge.philly_days(philly, JUDGED, _JOBS), ())
        for seed, day in enumerate(JUDGED):
            trace = trace_of(source, Cell("Philly", group.load, group.estimates), seed)
            for entrant in group.entrants:
                policy = Policy.model_validate({**POLICIES.get(entrant, {}), "solvers": []})
                baseline = None if entrant in POLICIES else entrant
                found = replay(trace, policy, _CLOCK, seed=seed, baseline=baseline)
                scores = found.scores
                record = {
                    "case": name,
                    "day": day,
                    "entrant": entrant,
                    "jobs": scores.jobs,
                    "completion": scores.completion.mean.value,
                    "p95": scores.completion.p95.value,
                    "makespan": scores.makespan.value if scores.makespan else 0.0,
                    "worst": scores.finish_time_fairness_max.value if scores.finish_time_fairness_max else 0,
                    "unfair": scores.unfair_share.value if scores.unfair_share else 0.0,
                    "restarts": scores.restarts,
                    "lost": scores.lost_gpu_hours + scores.idle_gpu_hours,
                }
                append(log_file, NAME, record)
                records.append(record)
    return records


# --- tables -------------------------------------------------------------------------------------------------

_REFERENCE: Final = "sjf"
_RATIOS: Final = {"completion": "completion, mean", "p95": "p95", "makespan": "makespan"}


def tables(records: Iterable[Record]) -> str:
    """
    A table per group with a row per entrant: ratios to SJF, then absolute figures.

    Each is the median over the days, with the worst (the largest) in parentheses.
    """
    last = {(each["case"], each["day"], each["entrant"]): each for each in records}
    found = {
        name: [day for day in JUDGED if all((name, day, each) in last for each in group.entrants)]
        for name, group in GROUPS.items()
    }
    return "\n".join(_table(name, days, last) for name, days in found.items() if days)


def _table(name: str, days: Sequence[str], last: dict[tuple[str, str, str], Record]) -> str:
    rule = [last[name, day, _REFERENCE] for day in days]
    rows = []
    for entrant in GROUPS[name].entrants:
        own = [last[name, day, entrant] for day in days]
        ratios = ([each[key] / other[key] for each, other in zip(own, rule, strict=True)] for key in _RATIOS)
        rows.append(
            [
                f"`{entrant}`",
                *map(_shown, ratios),
                _shown([each["worst"] for each in own], "{:.1f}"),
                _shown([100 * each["unfair"] for each in own], "{:.0f} %"),
                _shown([each["restarts"] for each in own], "{:.0f}"),
                _shown([each["lost"] for each in own], "{:.0f}"),
            ]
        )
    absolute = ("ρ worst", "unfair", "restarts", "GPU-hours lost")
    return table([f"{name}, {len(days)} days", *_RATIOS.values(), *absolute], rows)


def _shown(values: Sequence[float], form: str = "{:.2f}") -> str:
    return f"{form.format(median(values))} ({form.format(max(values))})"
