"""Names of solvers and baselines; separate, so that the command line need not import what they depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SOLVER_NAMES: Final = ("auto", "milp", "cpsat", "greedy")
"""Solvers that may plan; `auto` is as the policy says."""

ALL_BASELINES: Final = "all-baselines"
"""Stands for each of the baselines."""

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


def known_names(names: Iterable[str]) -> tuple[str, ...]:
    """
    Names of solvers and baselines, each once, `all-baselines` spelled out.

    Raises
    ------
    ValueError
        One of them is neither.
    """
    spelled = [each for name in names for each in (BASELINE_NAMES if name == ALL_BASELINES else (name,))]
    if strange := [name for name in spelled if name not in (*SOLVER_NAMES, *BASELINE_NAMES)]:
        listed = ", ".join((*SOLVER_NAMES, ALL_BASELINES, *BASELINE_NAMES))
        raise ValueError(f"{strange[0]!r} is none of {listed}.")
    return tuple(dict.fromkeys(spelled))
