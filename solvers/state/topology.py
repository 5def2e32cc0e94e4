"""Locality domains of the nodes, as arrays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.cluster import Level
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.solvers.state.constraints.constraint import Constraint, SharedLimit, Shortage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import LocalityRule
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.constraints.constraint import Places

    Ints: TypeAlias = NDArray[np.int64]


class Topology(Constraint):
    """The domain of every node at every level in use; where replicas must be together, or apart."""

    def __init__(self, problem: Problem) -> None:
        self._of: dict[Level, Ints] = {
            level: np.array(domains, dtype=np.int64) for level, domains in problem.domains
        }
        self._of.setdefault(Level.NODE, np.arange(len(problem.nodes), dtype=np.int64))
        self._nodes: dict[Level, list[Ints]] = {}

    def of(self, level: Level) -> Ints:
        """Domain number of each node."""
        return self._of[level]

    def count(self, level: Level) -> int:
        """One more than the largest number of a domain."""
        return int(self._of[level].max(initial=-1)) + 1

    def nodes(self, level: Level, domain: int) -> Ints:
        """Nodes of one domain."""
        if level not in self._nodes:
            order = np.argsort(self._of[level], kind="stable")
            sizes = np.bincount(self._of[level], minlength=self.count(level))
            self._nodes[level] = np.split(order, np.cumsum(sizes)[:-1])
        return self._nodes[level][domain]

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`."""
        together, replicas = places.job_class.together, places.replicas
        if together.required is not None:
            places.domains = self.of(together.required)[places.nodes]
        if together.spread is not None:
            groups = self.of(together.spread)
            costs: Ints = np.ones(len(places.nodes), dtype=np.int64)
            left = [together.most] * self.count(together.spread)
            places.shared.append(SharedLimit(groups[places.nodes], costs, left))
        if places.fits:
            return None
        if together.required is None or replicas == 1:
            return Shortage(ReasonCode.FRAGMENTED, {"replicas": replicas, "found": places.count()})
        numbers = {"needed": replicas, "largest": places.count(), "level": together.required.value}
        return Shortage(ReasonCode.DOMAIN, numbers)

    def satisfies(self, rules: LocalityRule, sites: Sequence[ReplicaSite]) -> bool:
        """True if sites of one job are in one domain of the required level and within its spread limit."""
        if rules.required is not None:
            of = self.of(rules.required)
            if len({int(of[site.node]) for site in sites}) > 1:
                return False
        if rules.spread is not None:
            of = self.of(rules.spread)
            in_domain = Counter(int(of[site.node]) for site in sites)
            return all(count <= rules.most for count in in_domain.values())
        return True
