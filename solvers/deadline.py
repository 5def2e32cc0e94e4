"""Deadlines: instants of `time.monotonic`, or None for no deadline."""

from __future__ import annotations

import time


def is_late(deadline: float | None) -> bool:
    """True if the deadline has passed; always False without a deadline."""
    return deadline is not None and time.monotonic() >= deadline
