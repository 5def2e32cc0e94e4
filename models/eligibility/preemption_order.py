"""
Outranking: which classes may take what a preempted incumbent frees, as sets of victims with their rivals.

A class may if its rank is at least the incumbent's, or if it has a claim on what the incumbent holds. So for
any set of victims: had these stayed, and no class come that may take the place of any of them, then all else
that is new would still fit. Enough are the sets with all victims from a rank on that only some claims are on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from gpuplan.models.problem.jobs import Incumbent

if TYPE_CHECKING:
    from collections.abc import Iterable

Order: TypeAlias = tuple[int, frozenset[int]]
"""Rank of an incumbent, and the claims on it."""

MOST_UNIONS: Final = 32
"""Of claims of which views are made: their number may double with each claim."""


class Taker(Protocol):
    """What may take a place: it has a rank and a claim."""

    @property
    def rank(self) -> int:
        """Its rank."""

    @property
    def claim(self) -> int:
        """Its claim; 0 for none."""


Comer: TypeAlias = "Taker | Incumbent"


class View(NamedTuple):
    """Victims of a rank and above on which there are only some claims, and classes that may follow none."""

    rank: int
    claims: frozenset[int] | None
    """None if claims count for nothing."""

    def keeps(self, incumbent: Incumbent) -> bool:
        """True if an incumbent is one of the victims."""
        return self._keeps(incumbent.rank, incumbent.claims)

    def _keeps(self, rank: int, claims: Iterable[int]) -> bool:
        return rank >= self.rank and (self.claims is None or self.claims.issuperset(claims))

    def binds(self, taker: Taker) -> bool:
        """True if a class may follow none of the victims."""
        return taker.rank < self.rank and (self.claims is None or taker.claim not in self.claims)


def is_bound(view: View, comer: Comer) -> bool:
    """True if a class, or an incumbent that comes back, has to fit beside the victims of a view."""
    return not view.keeps(comer) if isinstance(comer, Incumbent) else view.binds(comer)


def may_follow(taker: Taker, order: Order) -> bool:
    """True if a class may take what an incumbent of such a rank, with such claims on it, frees."""
    return taker.rank >= order[0] or taker.claim in order[1]


def views(incumbents: Iterable[Incumbent], most: int = MOST_UNIONS) -> tuple[View, ...]:
    """All sets of victims that matter; with more unions of claims than `most` some of them."""
    return _views(_orders(incumbents), most)[0]


def safe_views(incumbents: Iterable[Incumbent]) -> tuple[View, ...]:
    """All sets of victims that matter, or stricter ones where these are too many."""
    orders = _orders(incumbents)
    found, complete = _views(orders, MOST_UNIONS)
    return found if complete else tuple(View(rank, None) for rank in sorted({rank for rank, _ in orders}))


def _orders(incumbents: Iterable[Incumbent]) -> frozenset[Order]:
    return frozenset((each.rank, frozenset(each.claims)) for each in incumbents if each.rank)


@lru_cache(maxsize=4096)
def _views(orders: frozenset[Order], most: int) -> tuple[tuple[View, ...], bool]:
    """The views, and whether these are all."""
    unions, complete = _unions({claims for _, claims in orders}, most)
    found = set()
    for least in {rank for rank, _ in orders}:
        for union in unions:
            kept = [(rank, claims) for rank, claims in orders if rank >= least and claims <= union]
            if kept:
                rank = min(rank for rank, _ in kept)
                found.add(View(rank, frozenset[int]().union(*(claims for _, claims in kept))))
    return tuple(sorted(found, key=lambda view: (view.rank, sorted(view.claims or ())))), complete


def _unions(sets: set[frozenset[int]], most: int) -> tuple[list[frozenset[int]], bool]:
    """Unions of any of some sets, the smaller sets first, and whether these are all."""
    ordered = sorted(sets, key=lambda each: (len(each), sorted(each)))
    found = dict.fromkeys(ordered)
    for one in ordered:
        for other in list(found):
            if one | other not in found:
                if len(found) >= most:
                    return list(found), False
                found[one | other] = None
    return list(found), True
