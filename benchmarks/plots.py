"""Plots of the gap over time, where matplotlib is installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from benchmarks.progress import gaps

if TYPE_CHECKING:
    from pathlib import Path

_FLOOR = 1e-3
"""Percent; a logarithmic axis has no 0."""


def plot_gaps(records: list[dict[str, Any]], path: Path) -> bool:
    """One staircase an instance, both axes logarithmic; False without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    mpl: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    # The same text for the same figures: no date, no random names.
    mpl.rcParams |= {"svg.hashsalt": "gpuplan", "svg.fonttype": "none"}
    figure = figures.Figure(figsize=(6.4, 3.8))
    axes = figure.add_subplot()
    for record in records:
        steps = list(gaps(record["plan"]["milestones"]))
        last = (record["plan"]["seconds"], steps[-1][1])
        times, ratios = zip(*steps, last, strict=True)
        axes.step(times, [max(_FLOOR, 100 * gap) for gap in ratios], where="post", label=record["case"])
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="proven gap, %")
    axes.grid(visible=True, which="major", linewidth=0.3)
    axes.legend(fontsize="small", frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return True
