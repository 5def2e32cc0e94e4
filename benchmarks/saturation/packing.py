"""Free resources of the nodes while pods arrive, for many nodes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.saturation.trace import MILLI

if TYPE_CHECKING:
    from benchmarks.saturation.trace import Bools, Ints, Machine, Shape


class Packing:
    """
    Free CPU, memory and GPUs per node, and the kinds of running pods.

    Arrays have one row per node, in the order that breaks ties, and one column per GPU; columns of GPUs that
    a node lacks hold 0, as if used.
    """

    def __init__(self, machines: list[Machine]) -> None:
        widest = max(machine.gpus for machine in machines)
        self.count = np.array([machine.gpus for machine in machines])
        self.cpu = np.array([machine.cpu_milli for machine in machines])
        self.memory = np.array([machine.memory_mib for machine in machines])
        self.gpu = np.where(np.arange(widest) < self.count[:, None], MILLI, 0)
        self.models = [machine.model for machine in machines]
        self.kinds = np.zeros((len(machines), widest + 1), dtype=np.int64)
        """Pods by the number of GPUs they ask for; shares count in column 0."""
        self.allocated = 0
        """Thousandths of GPUs."""
        self.version = 0
        self.changed_at = np.zeros(len(machines), dtype=np.int64)

    def allowed(self, shape: Shape) -> Bools:
        """Nodes with a GPU model that the shape accepts."""
        if not shape.models:
            return np.ones(len(self.models), dtype=np.bool_)
        return np.array([model in shape.models for model in self.models])

    def room(self, shape: Shape, nodes: Ints) -> Bools:
        """Nodes with enough free resources, whatever their model."""
        fitting = (self.gpu[nodes] >= max(1, shape.gpu_milli)).sum(axis=1) >= shape.gpus
        room: Bools = fitting & (self.cpu[nodes] >= shape.cpu_milli)
        return room & (self.memory[nodes] >= shape.memory_mib)

    def tightest(self, shape: Shape, node: int) -> int:
        """The GPU with the least free amount that has room for a share; the first of equal ones."""
        free = self.gpu[node]
        return int(np.where(free >= shape.gpu_milli, free, 2 * MILLI).argmin())

    def place(self, shape: Shape, node: int, gpu: int | None) -> None:
        """Place a pod: a share on the given GPU, whole GPUs on the first free ones."""
        if shape.is_share:
            assert gpu is not None
            taken = np.array([gpu])
        else:
            taken = np.flatnonzero(self.gpu[node] == MILLI)[: shape.gpus]
        self.gpu[node, taken] -= shape.gpu_milli
        self.cpu[node] -= shape.cpu_milli
        self.memory[node] -= shape.memory_mib
        if shape.gpus:
            self.kinds[node, 0 if shape.is_share else shape.gpus] += 1
        if len(taken) != shape.gpus or min(self.gpu[node].min(), self.cpu[node], self.memory[node]) < 0:
            raise ValueError(f"node {node} has no room for {shape}")
        self.allocated += shape.total_gpu_milli
        self.version += 1
        self.changed_at[node] = self.version
