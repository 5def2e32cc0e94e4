"""
The openb trace as numbers, and the arrival order of its pods in the published experiment.

Weng et al., "Beware of Fragmentation", USENIX ATC 2023. Their simulator (hkust-adsl/
kubernetes-scheduler-simulator, experiments/run_scripts and pkg/simulator) shuffles the pods by a seed, then
draws pods from the trace with replacement until the demand is 130 % of the GPUs, and gives the nodes a random
order by the same seed, which breaks ties between equal scores. Pods only arrive; none ends. Only the 1,213
nodes with GPUs exist, so that pods without GPUs take CPU from pods that need both. Our random numbers differ
from theirs: equal seeds give other orders.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]

MILLI: Final = 1000
VARIANTS: Final = ("default", "gpushare40", "multigpu20", "gpuspec10")
TUNED: Final = 1.3
"""Total demand of the arrivals, relative to the GPUs."""


@dataclass(frozen=True, order=True, slots=True)
class Shape:
    """The request of a pod; pods of one shape are interchangeable."""

    cpu_milli: int
    gpu_milli: int
    """Thousandths per GPU: 1000 with whole GPUs, less for a share of one."""
    gpus: int
    models: tuple[str, ...]
    """Allowed GPU models; empty means any."""
    memory_mib: int

    @property
    def total_gpu_milli(self) -> int:
        return self.gpus * self.gpu_milli

    @property
    def is_share(self) -> bool:
        return self.gpus == 1 and self.gpu_milli < MILLI


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes with GPUs, shapes of pods, and the shape of each pod in the order of the trace."""

    name: str
    machines: tuple[Machine, ...]
    shapes: tuple[Shape, ...]
    pods: Ints

    @property
    def gpu_milli(self) -> int:
        """Total GPUs in thousandths."""
        return MILLI * sum(machine.gpus for machine in self.machines)

    def demand(self) -> Ints:
        """Thousandths of GPUs per shape."""
        return np.array([shape.total_gpu_milli for shape in self.shapes], dtype=np.int64)


def read_trace(folder: Path, variant: str = "default") -> Trace:
    """Read the nodes with GPUs and the pods of one variant."""
    with (folder / "openb_node_list_gpu_node.csv").open(newline="") as file:
        machines = tuple(
            Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        )
    with (folder / f"openb_pod_list_{variant}.csv").open(newline="") as file:
        return trace_of(variant, machines, [_shape(row) for row in csv.DictReader(file)])


def trace_of(name: str, machines: Iterable[Machine], pods: Iterable[Shape]) -> Trace:
    """A trace with these pods; its shapes have a fixed order."""
    listed = list(pods)
    shapes = tuple(sorted(set(listed)))
    number = {shape: index for index, shape in enumerate(shapes)}
    return Trace(name, tuple(machines), shapes, np.array([number[pod] for pod in listed], dtype=np.int64))


def _shape(row: dict[str, str]) -> Shape:
    gpus = int(row["num_gpu"])
    return Shape(
        cpu_milli=int(row["cpu_milli"]),
        gpu_milli=int(row["gpu_milli"]) if gpus else 0,
        gpus=gpus,
        models=tuple(sorted(set((row.get("gpu_spec") or "").split("|")) - {""})),
        memory_mib=int(row["memory_mib"]),
    )


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Pods in arrival order, and nodes in the order that breaks ties."""

    shapes: Ints
    """Shape of each arriving pod."""
    nodes: Ints
    """Indices of machines; the first wins a tie."""
    arrived: Ints
    """Cumulative demand in thousandths of GPUs, including the pod itself."""

    def until(self, milli: int) -> int:
        """Number of first pods that together ask for `milli`; all pods if they ask for less."""
        return min(len(self.shapes), int(np.searchsorted(self.arrived, milli)) + 1)


def shuffled(trace: Trace, seed: int, ratio: float = TUNED) -> Arrivals:
    """The trace's pods in random order, then pods drawn from it until the demand is `ratio` of the GPUs."""
    draws = np.random.default_rng(seed)
    demand = trace.demand()
    order = draws.permutation(trace.pods)
    missing = int(ratio * trace.gpu_milli) - int(demand[order].sum())
    if missing > 0:
        mean = float(demand[order].mean())
        extra = draws.choice(trace.pods, size=int(2 * missing / mean) + 100)
        order = np.concatenate([order, extra[np.cumsum(demand[extra]) <= missing]])
    nodes = draws.permutation(len(trace.machines))
    return Arrivals(order, nodes, np.cumsum(demand[order]))
