"""Names of the baselines, which the command line knows before it loads what they need."""

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
"""In the order in which docs/simulation.md describes them."""
