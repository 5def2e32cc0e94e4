"""End a process when the process that started it ends, for whatever reason."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2)."""


def kill_on_parent_exit(parent: int) -> None:
    """
    Have the kernel kill this process when its parent, of that process id, has ended; on Linux only.

    The parent counts as ended when the thread that started this process ends.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the signal was set up
        os._exit(1)
