"""Limits of the sizes on the machine named in limits.yaml, to detect regressions."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any, Final

import yaml

LIMITS: Final = Path(__file__).parent / "limits.yaml"

Limits = dict[str, dict[str, dict[str, float]]]
"""Limits by case and figure: mean and spread as measured, and the limit."""


def load(path: Path = LIMITS) -> Limits:
    """Read the limits of a file."""
    found: Limits = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"]
    return found


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """The limited figures of one instance: seconds, gain missed in percent, MiB."""
    stages, plan = measured["stages"], measured["plan"]
    found = {
        f"{name}_s": stages["seconds"][name] for name in ("pose", "greedy", "verify", "formulate", "relax")
    }
    found["plan_s"] = plan["seconds"]
    found["peak_mib"] = max(plan["peak_mib"], plan["solver_peak_mib"])
    found["gain_missed_percent"] = 100 * plan["gain_missed"]
    return found


def exceeded(case: str, found: dict[str, float], limits: Limits, seed: int) -> list[str]:
    """A sentence per figure above its limit; empty for a case without limits."""
    return [
        f"{case}, seed {seed}: {name} is {found[name]:.3g}, "
        f"limit {bounds['limit']:g} (mean {bounds['mean']:g})"
        for name, bounds in limits.get(case, {}).items()
        if name in found and found[name] > bounds["limit"]
    ]


def made_of(records: list[dict[str, Any]]) -> str:
    """
    A limits file from several records of each case.

    Limits are wide because the machine may be busy: three times the seconds plus 0.5 s, 1.5 times the memory,
    two times the gain missed plus 0.25 percentage points. The gap in percent of the objective has no limit:
    where guarantees are missed, it says nothing.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        for name, value in figures(record).items():
            found.setdefault(record["case"], {}).setdefault(name, []).append(value)
    cases = {
        case: {
            name: {
                "mean": _rounded(fmean(values)),
                "spread": _rounded(max(values) - min(values)),
                "limit": _rounded(_limit(name, max(values))),
            }
            for name, values in by_name.items()
        }
        for case, by_name in found.items()
    }
    return yaml.safe_dump({"cases": cases}, sort_keys=True)


def _limit(name: str, largest: float) -> float:
    match name:
        case "gain_missed_percent":
            return 2 * largest + 0.25
        case "peak_mib":
            return 1.5 * largest
        case _:
            return 3 * largest + 0.5


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
