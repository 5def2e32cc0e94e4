"""How many random worlds tests look at."""

import os

EVERY_SEED = bool(os.environ.get("GPUPLAN_EVERY_SEED"))
"""True if tests take all their worlds; by default they take a part, so that all of them end in time."""


def examples(number: int) -> int:
    """Examples or seeds of a property: all of them with `EVERY_SEED`, else half."""
    return number if EVERY_SEED else number // 2
