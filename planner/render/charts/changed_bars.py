"""Bars of amounts before and after a change: unchanged part, added part, removed part, and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.charts.canvas import PAGE, figure_of_page, inline_svg, shorten_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

_ROW: Final = 0.46
"""Height in inches: one line of text and a bar below it."""
_BAR: Final = 0.34
"""Height of the bar as a fraction of the row."""


@dataclass(frozen=True, slots=True)
class ChangedBar:
    """An amount before and after; all bars of a chart share one scale."""

    label: str
    before: float
    after: float
    words: str
    whole: float | None = None
    """Total amount, drawn as a frame around the bar."""
    limit: float | None = None
    """Upper limit, drawn as a line across the bar."""
    owed: float | None = None
    """Guaranteed amount, drawn as a triangle below the bar."""
    judged: bool = False
    """If true, the colour of the change shows `better`; if false, it shows whether the amount grows."""
    better: bool | None = None
    """None: neither better nor worse."""

    @property
    def tint(self) -> str:
        """The colour of the changed part."""
        if self.judged:
            return {True: PAGE.arrives, False: PAGE.leaves, None: PAGE.quiet}[self.better]
        return PAGE.arrives if self.after > self.before else PAGE.leaves


def changed_bars_svg(bars: Sequence[ChangedBar], key: str, *, label: str) -> str:
    """A row per bar with its text above it; an empty string without bars."""
    if not bars:
        return ""
    scale = max(max(bar.before, bar.after, bar.whole or 0, bar.limit or 0, bar.owed or 0) for bar in bars)
    with figure_of_page(_ROW * len(bars) + 0.1) as (figure, axes):
        for row, bar in enumerate(bars):
            _draw(axes, -row, bar, scale or 1.0)
        axes.set_xlim(0, 1.004)
        axes.set_ylim(0.55 - len(bars), 0.8)
        axes.set_axis_off()
        told = "; ".join(f"{bar.label} {bar.words}" for bar in bars)
        return inline_svg(figure, key, label=f"{label}: {told}")


def _draw(axes: Axes, y: float, bar: ChangedBar, scale: float) -> None:
    stays = min(bar.before, bar.after) / scale
    before, after = bar.before / scale, bar.after / scale
    if bar.whole:
        axes.barh(y, bar.whole / scale, _BAR, color=PAGE.shade)
    axes.barh(y, stays, _BAR, color=PAGE.kept)
    if after > stays:
        axes.barh(y, after - stays, _BAR, left=stays, color=bar.tint)
    if before > stays:
        axes.barh(y, before - stays, _BAR, left=stays, facecolor="none", edgecolor=bar.tint, hatch="////")
    if bar.limit is not None:
        axes.plot([bar.limit / scale] * 2, [y - 0.28, y + 0.28], color=PAGE.limit, linewidth=1.6)
    if bar.owed:
        axes.plot(
            bar.owed / scale, y - 0.26, marker="^", color=PAGE.limit, markersize=5, clip_on=False, zorder=4
        )
    axes.text(0, y + 0.3, shorten_label(bar.label), va="bottom")
    axes.text(1, y + 0.3, bar.words, va="bottom", ha="right", color=PAGE.quiet)
