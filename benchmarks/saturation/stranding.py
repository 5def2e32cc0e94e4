"""Gpuplan's own way to choose a node, as an online policy."""

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
"""Above any cost: scores must not be negative."""

_LAST_RESORT: Final = 100.0
_WIDEST: Final = 16
"""More GPUs than a node has, so that the tightest breaks ties and no more."""

SCARCITY: Final = 0.01
"""Measured: 0.003 to 0.1 make no difference on gpuspec10 (`Stranding`)."""


class Stranding:
    """
    What gpuplan's greedy goes by (gpuplan.solvers.state.node_scoring, profile pack), pod by pod.

    A pod goes where it adds least to the GPUs that a node strands, each part in terms of the whole node,

        strand(n) = max(0, free GPUs / GPUs − min(free CPU / CPU, free memory / memory))²

    then to the node with fewest wholly free GPUs; a share goes to a GPU already shared where one has room.

    With `scarcity`, a pod that needs GPUs also shuns models that other pods insist on, by the part of a
    model's GPUs that pods of the trace which name a model ask for. It counts for little: it decides between
    places that strand about as much.
    """

    random_ties = False

    def __init__(self, trace: Trace, packing: Packing, *, scarcity: float = 0.0) -> None:
        self._gpu = 1 / np.maximum(1, packing.gpu.sum(axis=1))
        self._cpu = 1 / packing.cpu
        self._memory = 1 / packing.memory
        pressure = pressures(trace)
        self._shunned = scarcity * np.array([pressure[model] for model in packing.models])

    def scores(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:
        """Not from 0 to 100 but up to `_STRANDING`, in billionths of the cost."""
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
    """By GPU model: what pods that name models ask for, spread over these by size, in parts of its GPUs."""
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
