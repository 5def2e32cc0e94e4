"""Environment of Slurm's commands: that of this process, without what changes the meaning of a command."""

from __future__ import annotations

import os
from typing import Final

_OPTIONS: Final = ("SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_", "SLURM_TIME_FORMAT", "SLURM_JSON")
"""
Beginnings of the names of variables that stand for options. `SQUEUE_USERS` hides the jobs of other users, and
`SCANCEL_INTERACTIVE` waits for an answer: man pages of squeue, sinfo, scontrol and scancel, ENVIRONMENT
VARIABLES.
"""


def slurm_environment() -> dict[str, str]:
    """The variables for a command of Slurm: lists of array tasks in full, times in seconds since 1970."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OPTIONS)}
    return kept | {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"}
