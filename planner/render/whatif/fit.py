"""How many more copies of a job fit, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.hostlist import hostlist
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import TableRow, table
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.whatif.answers.fit import Fit

_MOST_ROWS: Final = 10


def fit_text(fit: Fit, *, width: int, colour: bool, ascii_only: bool) -> str:
    """The number with its proof, the nodes of the copies, and why one more would wait."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    asks = f"Job {fit.job}  {fit.asks_for}  queue {fit.queue}"
    lines = [style.paint(style.clean(asks), Tone.STRONG), *style.wrap(_answer(fit), 0)]
    if fit.nodes:
        lines += ["", *table(list(_nodes(fit)), style, right=(0,))]
    if fit.limit is not None:
        lines += ["", *style.wrap(f"One more would wait: {fit.limit.code}, {fit.limit.text}.", 0, hanging=2)]
    return "\n".join(lines) + "\n"


def _answer(fit: Fit) -> str:
    beside = "beside what runs, disturbing no job"
    if fit.at_most is None:
        return f"At least {fit.fits:,} more fit {beside}; no more were counted."
    if fit.exact and not fit.fits:
        return f"None fits {beside} (proven by {fit.proof})."
    if fit.exact:
        fits, do_not = ("fits", "do not") if fit.fits == 1 else ("fit", "do not")
        return f"{fit.fits:,} more {fits} {beside}; {fit.fits + 1:,} {do_not} (proven by {fit.proof})."
    return (
        f"Between {fit.fits:,} and {fit.at_most:,} more fit {beside}: {fit.fits:,} were placed, "
        f"{fit.at_most + 1:,} do not fit (proven by {fit.proof})."
    )


def _nodes(fit: Fit) -> Iterator[TableRow]:
    """Nodes grouped by the number of replicas, most first."""
    by_count: dict[int, list[str]] = {}
    for node, count in fit.nodes.items():
        by_count.setdefault(count, []).append(node)
    for count in sorted(by_count, reverse=True)[:_MOST_ROWS]:
        nodes = by_count[count]
        each = "" if len(nodes) == 1 else f"on each of {format_count(len(nodes), 'node')}: "
        yield TableRow((f"{count:,}",), note=f"{each}{hostlist(nodes)}")
    if (left := len(by_count) - _MOST_ROWS) > 0:
        yield TableRow(("",), note=f"and fewer on others ({left:,} more lines)")
