"""How many random worlds tests look at."""

import os

EVERY_SEED = bool(os.environ.get("GPUPLAN_EVERY_SEED"))
"""True if tests take all their worlds; by default they take a part, so that all of them end in time."""
