"""Names of the baselines, apart from them so that the command line need not import their dependencies."""

from __future__ import annotations

from typing import Final

BASELINE_NAMES: Final = (
    "fifo",
    "fifo-skip",
    "easy",
    "conservative",
    "sjf",
    "srpt",
    "srsf",
    "lrpt",
    "las",
    "least-slack",
    "max-min",
    "drf",
    "first-fit",
    "best-fit",
    "most-allocated",
    "least-allocated",
    "requested-to-capacity-ratio",
)
"""In the order of docs/simulation.md."""
