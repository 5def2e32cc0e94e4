"""gpuplan's own rule for choosing a node, as an online policy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.saturation.trace import MILLI

if TYPE_CHECKING:
    from benchmarks.saturation.fragmentation import Floats
    from benchmarks.saturation.packing import Packing
    from benchmarks.saturation.trace import Ints, Shape, Trace

_STRANDING: Final = 10**13
"""Larger than any cost, because scores must not be negative."""

_LAST_RESORT: Final = 100.0
_WIDEST: Final = 16
"""More GPUs than a node has, so that the number of free GPUs only breaks ties."""

SCARCITY: Final = 0.01
"""Measured: values from 0.003 to 0.1 make no difference on gpuspec10 (`Stranding`)."""


class Stranding:
    """
    The rule of gpuplan's greedy (gpuplan.solvers.state.stranded_gpus, profile pack), pod by pod.

    A pod goes to the node where it adds least to the stranded GPUs, all amounts relative to the whole node,

        strand(n) = max(0, free GPUs / GPUs − min(free CPU / CPU, free memory / memory))²

    then to the node with the fewest wholly free GPUs. A share goes to a shared GPU if one has room.

    With `scarcity`, a pod that needs GPUs also avoids models that other pods require. The penalty is the part
    of the model's GPUs that pods with a list of models ask for. It is small, so it only decides between
    places that strand about the same amount.
    """

    random_ties = False

    def __init__(self, trace: Trace, packing: Packing, *, scarcity: float = 0.0) -> None:
        self._gpu = 1 / np.maximum(1, packing.gpu.sum(axis=1))
        self._cpu = 1 / packing.cpu
        self._memory = 1 / packing.memory
        pressure = pressures(trace)
        self._shunned = scarcity * np.array([pressure[model] for model in packing.models])

    def scores(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:
        """Scores up to `_STRANDING` (not 100), in billionths of the cost."""
        gpu, cpu, memory = packing.gpu[nodes], packing.cpu[nodes], packing.memory[nodes]
        before = self._strand(nodes, gpu.sum(axis=1), cpu, memory)
        left = gpu.sum(axis=1) - shape.total_gpu_milli, cpu - shape.cpu_milli, memory - shape.memory_mib
        cost = self._strand(nodes, *left) - before
        if shape.gpus:
            cost += self._shunned[nodes]
        if shape.is_share:
            shared = ((gpu >= shape.gpu_milli) & (gpu < MILLI)).any(axis=1)
            cost += np.where(shared, 0, _LAST_RESORT)
        whole = (gpu == MILLI).sum(axis=1)
        score: Ints = _STRANDING - _WIDEST * np.floor(cost * 1e9 + 0.5).astype(np.int64) - whole
        return score

    def gpu(self, packing: Packing, shape: Shape, node: int) -> int:
        return packing.tightest(shape, node)

    def _strand(self, nodes: Ints, gpu: Ints, cpu: Ints, memory: Ints) -> Floats:
        scarcest = np.minimum(cpu * self._cpu[nodes], memory * self._memory[nodes])
        lack: Floats = np.maximum(0.0, gpu * self._gpu[nodes] - scarcest)
        return lack * lack


def pressures(trace: Trace) -> dict[str, float]:
    """Per GPU model: demand of pods that name models, split over these by size, as a part of its GPUs."""
    have: Counter[str] = Counter()
    for machine in trace.machines:
        have[machine.model] += MILLI * machine.gpus
    pressure = dict.fromkeys(have, 0.0)
    for index, count in Counter(trace.pods.tolist()).items():
        shape = trace.shapes[index]
        named = [model for model in shape.models if model in have]
        for model in named:
            pressure[model] += count * shape.total_gpu_milli / sum(have[each] for each in named)
    return pressure
