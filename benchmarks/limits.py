"""Limits: what the sizes may cost at most on the machine of the comment, to see when something got slow."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any, Final

import yaml

LIMITS: Final = Path(__file__).parent / "limits.yaml"

Limits = dict[str, dict[str, dict[str, float]]]
"""By case and figure: mean and spread as once measured, and the limit."""


def load(path: Path = LIMITS) -> Limits:
    """Limits of a file."""
    found: Limits = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"]
    return found


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """What is limited of one instance: seconds, gaps in percent, MiB; what was not measured is left out."""
    stages, plan = measured["stages"], measured["plan"]
    found = {
        f"{name}_s": stages["seconds"][name] for name in ("pose", "greedy", "verify", "formulate", "relax")
    }
    found["plan_s"] = plan["seconds"]
    found["peak_mib"] = max(plan["peak_mib"], plan["solver_peak_mib"])
    found["gap_percent"] = 100 * plan["gap"]
    return found


def exceeded(case: str, found: dict[str, float], limits: Limits) -> list[str]:
    """A sentence for each figure above its limit; a case without limits has none."""
    return [
        f"{case}: {name} is {found[name]:.3g}, limit {bounds['limit']:g} (mean {bounds['mean']:g})"
        for name, bounds in limits.get(case, {}).items()
        if name in found and found[name] > bounds["limit"]
    ]


def made_of(records: list[dict[str, Any]]) -> str:
    """
    A limits file from several records of each case.

    Generous on purpose: seconds may triple and half a second more, as the machine may be busy; memory may
    grow by half; a gap may double and half a point of percent more.
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
        case "gap_percent":
            return 2 * largest + 0.5
        case "peak_mib":
            return 1.5 * largest
        case _:
            return 3 * largest + 0.5


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
