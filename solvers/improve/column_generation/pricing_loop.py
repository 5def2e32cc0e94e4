"""Column generation: add configurations to the master while its prices ask for more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

from gpuplan.solvers.improve.column_generation.bin_packing import pack_shares
from gpuplan.solvers.improve.column_generation.master import Configuration
from gpuplan.solvers.improve.column_generation.pricing_problem import Pricer
from gpuplan.solvers.improve.column_generation.subproblem import PRICE_SCALE
from gpuplan.solvers.interface import RELATIVE_ERROR, integer_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.problem.problem import Charges
    from gpuplan.solvers.improve.column_generation.master import DualPrices, Master
    from gpuplan.solvers.improve.column_generation.subproblem import Contents, PricedPattern, RepackProblem


_LEAST_GAIN: Final = 1
"""Parts of a point by which contents must be better, so that rounding errors do not count as gains."""


@dataclass(frozen=True, slots=True)
class PricingResult:
    """Result of column generation."""

    configurations: int
    """Number of configurations of the master."""
    rounds: int
    bound: int | None
    """Upper bound over all packings, in points; None if none was proven."""


def generate_columns(
    master: Master, question: RepackProblem, charges: Charges, *, deadline: float, seed: int
) -> PricingResult:
    """
    Add configurations to the master until none pays, the bound is reached, or time is up.

    The contents of the current plan come first. A round ends early once it has found many configurations,
    since better prices are then available; the next round continues with the following node class. The exact
    pricing problem is solved only where the quick one finds nothing.

    After a round over all node classes the bound is that of Lagrangian relaxation at its prices (Lasdon,
    Optimization Theory for Large Systems, 1970; Farley, Operations Research 38, 1990): the rest of the
    master, plus for each node the most that contents bring on it.
    """
    search = _PricingLoop(master, question, charges, seed)
    rounds, least = 0, inf
    while (prices := master.relax(deadline)) is not None and time.monotonic() < deadline:
        rounds += 1
        added, bound = search.price(prices, deadline)
        least = min(least, bound)
        if not added or (isfinite(least) and _whole(least) <= prices.value):
            break
    return PricingResult(search.configurations, rounds, _whole(least) if isfinite(least) else None)


class _PricingLoop:
    """Rounds of pricing over the node classes."""

    def __init__(self, master: Master, question: RepackProblem, charges: Charges, seed: int) -> None:
        self._master, self._question, self._charges = master, question, charges
        self._pricers = [
            Pricer(question.items, each, charges, seed, question.params) for each in question.node_classes
        ]
        self._next = 0
        self.configurations = 0
        for index, contents in _previous_contents(question):
            self._add(index, contents)

    def price(self, prices: DualPrices, deadline: float) -> tuple[int, float]:
        """(configurations added, bound in points or infinity)."""
        count, added = len(self._pricers), 0
        bounds = [inf] * count
        for index in [*range(self._next, count), *range(self._next)]:
            priced = self._pricers[index].price_heuristically(prices.places, deadline)
            bounds[index] = priced.bound
            added += self._offer(index, priced, prices)
            if added >= self._question.params.columns_per_round:
                self._next = (index + 1) % count
                break
        for index, pricer in enumerate(self._pricers) if not added else ():
            if bounds[index] > prices.node_class_prices[index] + _LEAST_GAIN:
                priced = pricer.exact(prices.places, deadline)
                bounds[index] = min(bounds[index], priced.bound)
                added += self._offer(index, priced, prices)
        nodes = zip(bounds, self._question.node_classes, strict=True)
        return added, prices.rest + sum(each / PRICE_SCALE * len(one.nodes) for each, one in nodes)

    def _offer(self, index: int, priced: PricedPattern, prices: DualPrices) -> bool:
        """Add contents if they are new and bring more than nodes already do; True if so."""
        return priced.value > prices.node_class_prices[index] + _LEAST_GAIN and self._add(
            index, priced.contents
        )

    def _add(self, index: int, contents: Contents) -> bool:
        added = self._master.add(_configuration(self._question, index, contents, self._charges))
        self.configurations += added
        return added


def _whole(bound: float) -> int:
    return integer_bound(bound, relative_error=RELATIVE_ERROR)


def _previous_contents(question: RepackProblem) -> Iterator[tuple[int, Contents]]:
    """(node class, contents that some node of it had before)."""
    for index, node_class in enumerate(question.node_classes):
        for node in node_class.nodes:
            if node in question.before:
                yield index, question.before[node]


def _configuration(
    question: RepackProblem, index: int, contents: Contents, charges: Charges
) -> Configuration:
    node_class, items = question.node_classes[index], question.items
    points = sum(count * dict(items[item].node_points).get(node_class.group, 0) for item, count in contents)
    if charges.fragmentation:
        left = node_class.whole - _whole_gpus_used(question, index, contents)
        waste = left % charges.reference_gpus - node_class.whole % charges.reference_gpus
        points -= charges.fragmentation * waste
    return Configuration(index, contents, points)


def _whole_gpus_used(question: RepackProblem, index: int, contents: Contents) -> int:
    """Wholly free GPUs that contents take, in whole or in part."""
    node_class, items = question.node_classes[index], question.items
    whole = sum(count * items[item].shape.gpus for item, count in contents)
    shares = [items[item].shape.gpu_milli for item, count in contents for _ in range(count)]
    gpus = pack_shares(
        [share for share in shares if share], node_class.gpus[whole:], question.params.packing_steps
    )
    return whole + len({gpu for gpu in gpus or () if gpu < node_class.whole - whole})
