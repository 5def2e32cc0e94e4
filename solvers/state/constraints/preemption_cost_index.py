"""Offers: the nodes on which room for one more replica costs least, the cheapest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.solvers.state.constraints.preemption_candidates import PreemptionCandidates
    from gpuplan.solvers.state.ledger import Ledger
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]


class PreemptionCosts:
    """
    Lower bounds on the loss of fitting one more replica of a tenant on each of some nodes.

    They are kept up to date: only nodes that changed since the last look are examined again.
    """

    def __init__(
        self,
        ledger: Ledger,
        victims: PreemptionCandidates,
        tenant: PlacementProfile,
        nodes: Ints,
        whole: PreemptionCosts | None = None,
    ) -> None:
        """`whole` are the offers of more nodes, which include these; it shares what either learns."""
        self.nodes = nodes
        self._ledger, self._victims, self._tenant, self._whole = ledger, victims, tenant, whole
        self._at: Ints = np.full(len(ledger.problem.nodes), -1, dtype=np.int64)
        self._at[nodes] = np.arange(len(nodes))
        self._seen = len(ledger.capacity.changes)
        self._bounds: Floats = np.zeros(len(nodes))
        self._learnt: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Changes of a node before its bound was learnt do not matter to that bound."""
        if whole is None:
            self._look(np.arange(len(nodes)))
        else:
            self._bounds = whole.lower_bounds()[whole.positions(nodes)]

    def restricted_to(self, nodes: Ints) -> PreemptionCosts:
        """Offers of some of the nodes only."""
        return PreemptionCosts(self._ledger, self._victims, self._tenant, nodes, self)

    def positions(self, nodes: Ints) -> Ints:
        """Positions of the nodes among those of the offers."""
        return self._at[nodes]

    def cheapest_first(self) -> Iterator[tuple[float, int]]:
        """(bound, node), the cheapest first, with the bounds at the start; infinite bounds are left out."""
        self._refresh()
        bounds = self._bounds.copy()
        while len(bounds):
            position = int(bounds.argmin())
            bound = float(bounds[position])
            if bound == np.inf:
                return
            bounds[position] = np.inf
            yield bound, int(self.nodes[position])

    def set_exact_loss(self, node: int, loss: float) -> None:
        """Store the exact loss on a node, until the node changes."""
        self._bounds[self._at[node]] = loss
        self._learnt[self._at[node]] = len(self._ledger.capacity.changes)
        if self._whole is not None:
            self._whole.set_exact_loss(node, loss)

    def lower_bounds(self) -> Floats:
        """Bounds of all nodes."""
        self._refresh()
        return self._bounds

    def _refresh(self) -> None:
        changes = self._ledger.capacity.changes
        if len(changes) == self._seen:
            return
        last = {node: change for change, node in enumerate(changes[self._seen :], self._seen)}
        at, when = self._at[np.array(list(last))], np.array(list(last.values()))
        mine = at >= 0
        stale = at[mine][when[mine] >= self._learnt[at[mine]]]
        if len(stale):
            self._look(stale)
        self._seen = len(changes)

    def _look(self, positions: Ints) -> None:
        tenant, nodes = self._tenant, self.nodes[positions]
        losses = self._victims.loss_lower_bounds(tenant, nodes)
        possible = self._ledger.rank_admits(tenant, nodes)
        if tenant.shape.mig:
            possible &= self._ledger.capacity.supports_mig(nodes)
        self._bounds[positions] = np.where(possible, losses, np.inf)
