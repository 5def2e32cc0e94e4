"""Deadlines: instants of `time.monotonic`, or none."""

from __future__ import annotations

import time


def is_late(deadline: float | None) -> bool:
    """True if a deadline has passed; never without one."""
    return deadline is not None and time.monotonic() >= deadline
