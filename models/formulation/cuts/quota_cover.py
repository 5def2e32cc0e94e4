"""
Quota cover cuts: what queues hold if some victims of preemption had stayed, and what they keep from lending.

The rows of (C16) count a queue as if each queue below it passed up what it uses beyond what it does not
lend, also where it uses less, and only for some sets of victims if there are many. The rows that forbid the
rest are too many to state: a cutting plane loop adds those that a solution violates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.eligibility.preemption_order import MAX_CLAIM_UNIONS, victim_views
from gpuplan.models.formulation.rows import row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.params import FormulationParams
    from gpuplan.models.formulation.rows import Floats, Ints, Row
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import Problem, QueueBudget


@dataclass(frozen=True, slots=True)
class QuotaCover:
    """
    Usage of queues in one budget, for each set of victims ρ (`victim_views`), in the unit of its resource.

        Σ_{q ∈ S ∪ {t}} ( own_q + placed_ρ[q] − left_ρ[q] )  −  Σ_{q ∈ S} kept_q   ≤  limit_t    ∀ ρ, t, S

    S is any set of queues below t that has, with each queue, also those between it and t. A queue passes up
    max(0, usage − kept), so the sum over any S is at most the usage of t. Terms are those of (C16).
    """

    budget: QueueBudget
    columns: Ints
    """Columns that count …"""
    amounts: Ints
    """… what one unit of each adds to the usage …"""
    queue: Ints
    """… of which queue …"""
    order: Ints
    """… and what decides whether it counts beside a set of victims."""
    counts: Floats
    """1 if it does, 0 if not; shape (orders, sets of victims)."""
    unit: int
    """Greatest common divisor of the amounts."""
    params: FormulationParams

    def likely(self) -> Iterator[tuple[int, ...]]:
        """None: which limits bind is not known before."""
        return iter(())

    def has(self, chosen: tuple[int, ...]) -> bool:
        """True if `chosen` is a set of victims ρ, a queue t with a limit and the queues of an S."""
        queues, parent = len(self.budget.own), self.budget.parent
        if len(chosen) < 2 or not 0 <= chosen[0] < self.counts.shape[1]:
            return False
        if not all(0 <= each < queues for each in chosen[1:]) or self.budget.limit[chosen[1]] is None:
            return False
        members = set(chosen[1:])
        return len(members) == len(chosen) - 1 and all(parent[each] in members for each in chosen[2:])

    def broken(self, values: Floats) -> Iterator[tuple[int, ...]]:
        """Rows that (possibly fractional) values of all columns violate, of each queue the worst first."""
        budget, orders = self.budget, len(self.counts)
        by_order = np.bincount(
            self.queue * orders + self.order,
            weights=self.amounts * values[self.columns],
            minlength=len(budget.own) * orders,
        )
        usage = by_order.reshape(-1, orders) @ self.counts + np.array(budget.own)[:, np.newaxis]
        passed = np.zeros(usage.shape, dtype=bool)
        for queue in budget.leaves_first:
            parent, limit = budget.parent[queue], budget.limit[queue]
            if limit is not None:
                yield from self._worst(queue, usage[queue] - limit, passed)
            if parent is not None:
                beyond = usage[queue] - budget.kept[queue]
                passed[queue] = beyond > 0
                usage[parent] += np.maximum(0, beyond)

    def _worst(self, queue: int, excess: Floats, passed: NDArray[np.bool_]) -> Iterator[tuple[int, ...]]:
        """The rows of a queue that are violated most, each with another sum."""
        least, seen = self.params.least_cover_violation * self.unit, set[bytes]()
        if excess.max() <= least:
            return
        for view in np.argsort(-excess, kind="stable").tolist():
            if excess[view] <= least or len(seen) >= self.params.max_quota_covers:
                return
            members = self._passing(queue, passed[:, view])
            if (key := self._counted(view, members).tobytes()) not in seen:
                seen.add(key)
                yield view, *members

    def _counted(self, view: int, members: list[int]) -> NDArray[np.bool_]:
        """Which of the columns count in these queues beside a set of victims."""
        found: NDArray[np.bool_] = np.isin(self.queue, members) & (self.counts[self.order, view] > 0)
        return found

    def _passing(self, top: int, passed: NDArray[np.bool_]) -> list[int]:
        """A queue and the queues below it that pass up something, with all between them."""
        parent, found = self.budget.parent, {top}
        for queue in reversed(self.budget.leaves_first):
            if passed[queue] and parent[queue] in found:
                found.add(queue)
        return [top, *sorted(found - {top})]

    def row(self, key: tuple[str | int, ...], chosen: tuple[int, ...]) -> Row:
        """The row of a set of victims, a queue and queues below it."""
        view, *members = chosen
        budget = self.budget
        counted = self._counted(view, members)
        fixed = sum(budget.own[each] for each in members) - sum(budget.kept[each] for each in members[1:])
        return row_of_arrays(
            "preemption",
            key,
            self.columns[counted],
            self.amounts[counted],
            upper=(budget.limit[members[0]] or 0) - fixed,
        )


def quota_covers(problem: Problem, x: Columns) -> Iterator[QuotaCover]:
    """The cuts of all budgets for which (C16) does not state all rows."""
    for budget in problem.budgets if x.params.quota_covers else ():
        victims = [
            one
            for one in problem.incumbents
            if one.quota_of(budget.resource) and (one.stop_points is not None or one.shrinkable)
        ]
        if not victims or not any(limit is not None for limit in budget.limit):
            continue
        if not any(budget.kept) and _are_few(victims):
            continue
        used = list(x.counted(budget.resource))
        places: dict[tuple[bool, int, object], int] = {}
        order = [places.setdefault(each.order, len(places)) for each in used]
        amounts = np.array([each.amount for each in used], dtype=np.int64)
        yield QuotaCover(
            budget=budget,
            columns=np.array([each.column for each in used], dtype=np.int64),
            amounts=amounts,
            queue=np.array([each.queue for each in used], dtype=np.int64),
            order=np.array(order, dtype=np.int64),
            counts=_counts(places, victim_views(victims, x.params.max_claim_unions)),
            unit=max(1, int(np.gcd.reduce(amounts, initial=0))),
            params=x.params,
        )


def _are_few(victims: Sequence[Incumbent]) -> bool:
    """True if (C16) states a row for every set of victims."""
    views = victim_views(victims, MAX_CLAIM_UNIONS + 1)
    return len({view.claims for view in views}) <= MAX_CLAIM_UNIONS


def _counts(orders: Iterable[tuple[bool, int, object]], views: Sequence[VictimView]) -> Floats:
    """`CountedUsage.counts` for each `CountedUsage.order` and view, shape (orders, views)."""
    rank = np.array([view.rank for view in views])
    known = frozenset[int]().union(*(view.claims for view in views))
    inside = {claim: np.array([claim in view.claims for view in views]) for claim in known}
    never = np.zeros(len(views), dtype=bool)
    found = []
    for _, own, claims in orders:
        if isinstance(claims, frozenset):
            kept = rank <= own
            for claim in claims:
                kept = kept & inside.get(claim, never)
            found.append(~kept)
        elif isinstance(claims, int):
            found.append((rank > own) & ~inside.get(claims, never))
        else:
            found.append(~never)
    return np.array(found, dtype=np.float64)
