"""
Expected fragmentation: the free GPUs of a node that a pod drawn from the workload could not use.

Weng et al. (ATC 2023), §4: with the workload M as shapes and their popularity p,

    F_n(M) = Σ_m p_m · F_n(m)

where F_n(m) is all that is free on the GPUs of n if m does not fit there (or needs no GPU), and otherwise
what is free on those of its GPUs that have less free than m needs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.saturation.trace import Bools, Ints, Trace

    Floats: TypeAlias = NDArray[np.float64]

POPULAR: Final = 0.95
"""The most frequent shapes that cover this part of the pods are typical (the authors' setting)."""


class Fragmentation:
    """F of many node states at once, for the typical pods of a trace."""

    def __init__(self, trace: Trace, popular: float = POPULAR) -> None:
        # Memory is not part of a typical pod: pods that differ only in memory are counted together.
        counts = Counter(replace(trace.shapes[index], memory_mib=0) for index in trace.pods.tolist())
        total = counts.total()
        # Most frequent first; the larger shape first if frequencies are equal.
        ranked = sorted(counts, key=lambda shape: (counts[shape], shape), reverse=True)
        covered = np.cumsum([counts[shape] for shape in ranked]) >= popular * total
        self.typical = ranked[: int(covered.argmax()) + 1]
        weight = np.array([counts[shape] for shape in self.typical])
        self.weight = weight / weight.sum()
        self._cpu = np.array([shape.cpu_milli for shape in self.typical])
        self._gpus = np.array([shape.gpus for shape in self.typical])
        self._sizes, self._size = np.unique([shape.gpu_milli for shape in self.typical], return_inverse=True)
        self._needs_gpu = self._gpus > 0

    def accepted(self, model: str) -> Bools:
        """Typical pods that accept a GPU model."""
        return np.array([not shape.models or model in shape.models for shape in self.typical])

    def of(self, cpu: Ints, gpu: Ints, accepted: Bools) -> Floats:
        """F in thousandths of GPUs; rows are node states, `accepted` has a column per typical pod."""
        total = gpu.sum(axis=1)
        fitting = np.stack([(gpu >= max(1, size)).sum(axis=1) for size in self._sizes], axis=1)
        lost = np.stack([np.where(gpu < size, gpu, 0).sum(axis=1) for size in self._sizes], axis=1)
        fits = (
            self._needs_gpu & accepted & (fitting[:, self._size] >= self._gpus) & (cpu[:, None] >= self._cpu)
        )
        wasted: Floats = np.where(fits, lost[:, self._size], total[:, None]) @ self.weight
        return wasted
