"""
The published online policies: which node a pod gets, and which of its GPUs a share gets.

As in Weng et al. (ATC 2023), §6.2, and their artifact (pkg/simulator/plugin in hkust-adsl/
kubernetes-scheduler-simulator). A policy scores each node with room from 0 to 100 (higher is better) and
truncates the score to an integer: nearly equal scores are a tie, and the first node wins. Other tie rules
make FGD allocate less (`benchmarks.saturation.report`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from benchmarks.saturation.fragmentation import Fragmentation
from benchmarks.saturation.stranding import SCARCITY, Stranding
from benchmarks.saturation.trace import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.saturation.fragmentation import Floats
    from benchmarks.saturation.packing import Packing
    from benchmarks.saturation.trace import Ints, Shape, Trace

BEST: Final = 100
_MOST_CPU_MILLI: Final = 128_000
_MOST_GPU_MILLI: Final = 8_000
"""Sizes of the largest node, by which the artifact divides."""


class Policy(Protocol):
    """Scores of nodes for a shape, and the GPU for a share."""

    random_ties: bool

    def scores(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:
        """Scores from 0 to 100 for nodes with room."""
        ...

    def gpu(self, packing: Packing, shape: Shape, node: int) -> int:
        """The GPU for a share."""
        ...


class Simple:
    """A policy with one formula for nodes; shares go to the tightest GPU."""

    random_ties = False

    def __init__(self, formula: Callable[[Packing, Shape, Ints], Ints]) -> None:
        self._formula = formula

    def scores(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:
        return self._formula(packing, shape, nodes)

    def gpu(self, packing: Packing, shape: Shape, node: int) -> int:
        return packing.tightest(shape, node)


def best_fit(packing: Packing, shape: Shape, nodes: Ints) -> Ints:
    """Least remaining CPU and GPUs, each relative to the largest node, with equal weights."""
    cpu = (packing.cpu[nodes] - shape.cpu_milli) / _MOST_CPU_MILLI
    gpu = (packing.gpu[nodes].sum(axis=1) - shape.total_gpu_milli) / _MOST_GPU_MILLI
    score: Ints = (BEST * (1 - (cpu + gpu) / 2)).astype(np.int64)
    return score


def dot_product(packing: Packing, shape: Shape, nodes: Ints) -> Ints:
    """Least product of the request and the free resources (after Tetris, SIGCOMM 2014)."""
    cpu = packing.cpu[nodes] / _MOST_CPU_MILLI * (shape.cpu_milli / _MOST_CPU_MILLI)
    gpu = packing.gpu[nodes].sum(axis=1) / _MOST_GPU_MILLI * (shape.total_gpu_milli / _MOST_GPU_MILLI)
    score: Ints = (BEST * (1 - (cpu + gpu) / 2)).astype(np.int64)
    return score


def gpu_packing(packing: Packing, shape: Shape, nodes: Ints) -> Ints:
    """Shared GPUs first, then free GPUs of used nodes, idle nodes last (after AntMan, OSDI 2020)."""
    if not shape.gpus:
        return np.zeros(len(nodes), dtype=np.int64)
    gpu = packing.gpu[nodes]
    idle = (gpu == MILLI).sum(axis=1)
    shared = np.where((gpu >= shape.gpu_milli) & (gpu < MILLI), gpu, MILLI).min(axis=1)
    on_shared = BEST - shared * 100 // MILLI // 10
    on_free = np.maximum(BEST // 2 - shape.gpus, BEST // 3)
    on_idle = np.maximum(BEST // 3 - idle, idle)
    used = np.where(shape.is_share & (shared < MILLI), on_shared, on_free)
    score: Ints = np.where(idle == packing.count[nodes], on_idle, used)
    return score


def gpu_clustering(packing: Packing, shape: Shape, nodes: Ints) -> Ints:
    """Beside pods that ask for the same number of GPUs, fullest node first (after Gandiva, OSDI 2018)."""
    if not shape.gpus:
        return np.zeros(len(nodes), dtype=np.int64)
    kinds = packing.kinds[nodes] > 0
    alike = kinds[:, 0 if shape.is_share else shape.gpus]
    several = kinds.sum(axis=1)
    quarter = np.where(alike, np.where(several == 1, 3, 2), np.where(several == 0, 1, 0))
    full = BEST // 4 * (_MOST_GPU_MILLI - packing.gpu[nodes].sum(axis=1)) // _MOST_GPU_MILLI
    score: Ints = full + quarter * (BEST // 4)
    return score


class RandomFit:
    """Any node with room, and any GPU with room, at random."""

    random_ties = True

    def __init__(self, seed: int) -> None:
        self._draws = np.random.default_rng((seed, 1))

    def scores(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:  # noqa: ARG002
        return np.zeros(len(nodes), dtype=np.int64)

    def gpu(self, packing: Packing, shape: Shape, node: int) -> int:
        return int(self._draws.choice(np.flatnonzero(packing.gpu[node] >= shape.gpu_milli)))


class FragmentationGradientDescent:
    """
    FGD: the node where expected fragmentation grows least (Weng et al., Algorithm 1).

        score = ⌊100 · sigmoid((F_n before − F_n after) / 1000)⌋, for a share the best over the node's GPUs
    """

    def __init__(self, trace: Trace, packing: Packing, *, random_ties: bool = False) -> None:
        self.random_ties = random_ties
        self._fragmentation = Fragmentation(trace)
        self._accepted = np.array([self._fragmentation.accepted(model) for model in packing.models])

    def scores(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:
        best: Ints = self._on_each_gpu(packing, shape, nodes).max(axis=1)
        return best

    def gpu(self, packing: Packing, shape: Shape, node: int) -> int:
        return int(self._on_each_gpu(packing, shape, np.array([node]))[0].argmax())

    def added(self, packing: Packing, shape: Shape, nodes: Ints) -> Floats:
        """
        F after minus F before, with a column per GPU for a share.

        Infinite if the GPU has no room or is equal to an earlier one. Other pods have one column, because
        they take the first free GPUs.
        """
        cpu, gpu = packing.cpu[nodes], packing.gpu[nodes]
        before = self._fragmentation.of(cpu, gpu, self._accepted[nodes])
        if not shape.is_share:
            whole = gpu == MILLI
            left = np.where(whole & (whole.cumsum(axis=1) <= shape.gpus), 0, gpu)
            after = self._fragmentation.of(cpu - shape.cpu_milli, left, self._accepted[nodes])
            return (after - before)[:, None]
        added: Floats = np.full(gpu.shape, np.inf)
        # The first of several GPUs with equal free amounts represents all of them.
        earlier = np.tri(gpu.shape[1], k=-1, dtype=np.bool_)
        repeated = ((gpu[:, :, None] == gpu[:, None, :]) & earlier).any(axis=2)
        rows, columns = np.nonzero((gpu >= shape.gpu_milli) & ~repeated)
        left = gpu[rows]
        left[np.arange(len(rows)), columns] -= shape.gpu_milli
        after = self._fragmentation.of(cpu[rows] - shape.cpu_milli, left, self._accepted[nodes[rows]])
        added[rows, columns] = after - before[rows]
        return added

    def _on_each_gpu(self, packing: Packing, shape: Shape, nodes: Ints) -> Ints:
        added = self.added(packing, shape, nodes)
        score = (BEST / (1 + np.exp(np.minimum(added, 700_000) / MILLI))).astype(np.int64)
        return np.where(np.isinf(added), -1, score)


PUBLISHED: Final = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD")
"""Names as in the published results, the worst first."""

OWN: Final = ("Stranding", "Stranding + scarcity")


def policy_of(name: str, trace: Trace, packing: Packing, seed: int) -> Policy:
    """The policy with the given name."""
    match name:
        case "Random":
            return RandomFit(seed)
        case "DotProd":
            return Simple(dot_product)
        case "GpuClustering":
            return Simple(gpu_clustering)
        case "GpuPacking":
            return Simple(gpu_packing)
        case "BestFit":
            return Simple(best_fit)
        case "FGD":
            return FragmentationGradientDescent(trace, packing)
        case "FGD, ties at random":
            return FragmentationGradientDescent(trace, packing, random_ties=True)
        case "Stranding":
            return Stranding(trace, packing)
        case "Stranding + scarcity":
            return Stranding(trace, packing, scarcity=SCARCITY)
    raise ValueError(f"no policy {name!r}; expected one of {', '.join((*PUBLISHED, *OWN))}")
