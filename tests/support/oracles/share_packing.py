"""Whether shares fit GPUs, by trying everything."""

from __future__ import annotations

import itertools
from functools import cache


@cache
def packs(milli, gpus):
    """True if shares fit so many GPUs, by trying everything."""
    return any(
        max(
            (sum(m for m, at in zip(milli, where, strict=True) if at == gpu) for gpu in range(gpus)),
            default=0,
        )
        <= 1000
        for where in itertools.product(range(gpus), repeat=len(milli))
    )
