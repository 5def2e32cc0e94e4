"""OnPaper: what a node would have free if some replicas left it, in plain numbers without a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.problem.jobs import HeldResources, Shape
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities


class HypotheticalNode:
    """Free GPUs and amounts of a node; MIG instances and power are left out."""

    def __init__(self, capacity: NodeCapacities, node: int) -> None:
        self._gpus: list[int] = capacity.gpu_free[node].tolist()
        self._free = list(capacity.balance[node])

    def leave(self, shape: Shape, holds: Iterable[HeldResources], times: int = 1) -> None:
        """Remove replicas from this hypothetical node; `times` -1 adds them back."""
        milli = times * (shape.gpu_milli or MILLI)
        for hold in holds:
            for gpu in hold.gpus:
                self._gpus[gpu] += milli
            for resource, amount in enumerate(shape.amounts):
                self._free[resource] += times * amount

    def room(self, shape: Shape) -> int:
        """Replicas that would fit, as `NodeCapacities.room` counts them on a usable node."""
        counts = [
            max(0, free) // amount for free, amount in zip(self._free, shape.amounts, strict=True) if amount
        ]
        if shape.gpus:
            counts.append(self._gpus.count(MILLI) // shape.gpus)
        elif shape.gpu_milli:
            counts.append(sum(milli // shape.gpu_milli for milli in self._gpus))
        return min(counts, default=2**31)
