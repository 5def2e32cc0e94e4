"""Lifeline: a process ends with the one that started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""Of prctl(2)."""


def end_with(parent: int) -> None:
    """
    Have the kernel kill this process when its parent, of that process id, has ended; on Linux alone.

    What counts as the parent's end there is that of the thread that has started this process.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before it was said what that means
        os._exit(1)
