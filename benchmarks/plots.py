"""Plots of the gap over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.progress import gaps

if TYPE_CHECKING:
    from pathlib import Path

_FLOOR = 1e-3
"""Percent; a logarithmic axis has no 0."""


def plot_gaps(records: list[dict[str, Any]], path: Path) -> None:
    """One step line per instance, both axes logarithmic."""
    # Reproducible output for the same figures: no date, no random names.
    with rc_context({"svg.hashsalt": "gpuplan", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4, 3.8))
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
