"""
Preemption order: which job classes may use what a preempted job frees, as sets of victims.

A class may use it if its rank is at least that of the victim, or if it has a claim on what the victim holds.
This gives one condition for each set of victims: all other new placements must still fit if these victims
stay and no class that may follow one of them is placed. It suffices to check the sets of all victims with at
least a given rank that have claims only in a given set.

Which priority follows a running job depends on its turn: that of a job that plans have stopped k times lasts
until it has run for (2^k − 1) times its recovery. Meanwhile no equal follows it, and if its queue may
reclaim, no priority of another queue. So however the worth of jobs changes, each is stopped for these reasons
a few times only, and the time lost is a small part of the time run. Doubling quanta: Corbató, Merwin-Daggett
and Daley, AFIPS Spring Joint Computer Conference 21, 1962.

A job that starved is not stopped for equals, or it would wait again and delay the next starving job.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from gpuplan.models.problem.jobs import Incumbent
from gpuplan.models.timing.progress import unserved_seconds
from gpuplan.models.value.disruption_cost import recovery_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy

RankAndClaims: TypeAlias = tuple[int, frozenset[int]]
"""(rank of a running job, claims on what it holds)."""

_MAX_DOUBLINGS: Final = 40
"""Limit on doublings of a turn, which is then 30,000 years."""

MAX_CLAIM_UNIONS: Final = 32
"""Limit on unions of claims for which views are built: their number can double with each claim."""


def least_follower(policy: Policy, job: Job, now: datetime) -> int:
    """Lowest priority of jobs that may take what a running job gives up, unless they reclaim it."""
    gap = policy.disruption.priority_gap
    return job.priority + (gap if gap or yields_to_equals(policy, job, now) else 1)


def yields_to_equals(policy: Policy, job: Job, now: datetime) -> bool:
    """True if a running job may be stopped or shrunk for jobs of equal priority."""
    starving = policy.horizon.backfill.starving
    if job.running is None or (starving is not None and unserved_seconds(job, now) >= starving):
        return False
    return not is_in_turn(policy, job, now)


def is_in_turn(policy: Policy, job: Job, now: datetime) -> bool:
    """True if a running job has run for less than its turn."""
    if job.running is None or not job.preemptions:
        return False
    return max(0.0, (now - job.running.started_at).total_seconds()) < turn_seconds(policy, job)


def turn_seconds(policy: Policy, job: Job) -> int:
    """Turn of a job: 2^preemptions − 1 times its recovery, 0 if it was never preempted."""
    unit = max(policy.objective.shortest, recovery_seconds(policy, job))
    return unit * ((1 << min(job.preemptions, _MAX_DOUBLINGS)) - 1)


class Claimant(Protocol):
    """Something that may take freed capacity: it has a rank and a claim."""

    @property
    def rank(self) -> int:
        """Its rank in the preemption order."""

    @property
    def claim(self) -> int:
        """Its claim; 0 for none."""


ClaimantOrIncumbent: TypeAlias = "Claimant | Incumbent"


class VictimView(NamedTuple):
    """Victims of at least a rank with claims in a set only; it binds classes that may follow none of them."""

    rank: int
    claims: frozenset[int]
    ignored: frozenset[int] = frozenset()
    """Claims that do not count: they neither keep a running job out of the set, nor free a class of it."""

    def keeps(self, incumbent: Incumbent) -> bool:
        """True if a running job is one of the victims."""
        return self._keeps(incumbent.rank, incumbent.claims)

    def _keeps(self, rank: int, claims: Iterable[int]) -> bool:
        allowed = self.claims | self.ignored if self.ignored else self.claims
        return rank >= self.rank and allowed.issuperset(claims)

    def binds(self, taker: Claimant) -> bool:
        """True if a class may follow none of the victims."""
        return taker.rank < self.rank and taker.claim not in self.claims


def is_bound(view: VictimView, comer: ClaimantOrIncumbent) -> bool:
    """True if a class, or a preempted job that resumes, must fit beside the victims of a view."""
    return not view.keeps(comer) if isinstance(comer, Incumbent) else view.binds(comer)


def may_use_freed(taker: Claimant, order: RankAndClaims) -> bool:
    """True if a class may use what a running job of this rank, with these claims on it, frees."""
    return taker.rank >= order[0] or taker.claim in order[1]


def victim_views(incumbents: Iterable[Incumbent], most: int = MAX_CLAIM_UNIONS) -> tuple[VictimView, ...]:
    """All sets of victims that matter; only some of them if there are more than `most` unions of claims."""
    return _views(_orders(incumbents), most)[0]


def conservative_victim_views(
    incumbents: Iterable[Incumbent], first: Iterable[int] = (), most: int = MAX_CLAIM_UNIONS
) -> tuple[VictimView, ...]:
    """
    All sets of victims that matter, or stricter ones if there are more than `most` unions of claims.

    Then only some claims count, as many as possible in the order of `first`. A class with another claim is
    treated as if it had none.
    """
    return _conservative_views(_orders(incumbents), tuple(first), most)


def rank_and_claims(incumbent: Incumbent) -> RankAndClaims:
    """All that views tell running jobs apart by."""
    return incumbent.rank, frozenset(incumbent.claims)


def _orders(incumbents: Iterable[Incumbent]) -> frozenset[RankAndClaims]:
    return frozenset(rank_and_claims(each) for each in incumbents if each.rank)


@lru_cache(maxsize=4096)
def _conservative_views(
    orders: frozenset[RankAndClaims], first: tuple[int, ...], most: int
) -> tuple[VictimView, ...]:
    found, complete = _views(orders, most)
    if complete:
        return found
    claims = frozenset[int]().union(*(claims for _, claims in orders))
    counted = frozenset[int]()
    for claim in dict.fromkeys((*(each for each in first if each in claims), *sorted(claims))):
        more = counted | {claim}
        if _unions({claims & more for _, claims in orders}, most)[1]:
            counted = more
    found, _ = _views(frozenset((rank, claims & counted) for rank, claims in orders), most)
    return tuple(view._replace(ignored=claims - counted) for view in found)


@lru_cache(maxsize=4096)
def _views(orders: frozenset[RankAndClaims], most: int) -> tuple[tuple[VictimView, ...], bool]:
    """The views, and whether the list is complete."""
    unions, complete = _unions({claims for _, claims in orders}, most)
    found = set()
    for least in {rank for rank, _ in orders}:
        for union in unions:
            kept = [(rank, claims) for rank, claims in orders if rank >= least and claims <= union]
            if kept:
                rank = min(rank for rank, _ in kept)
                found.add(VictimView(rank, frozenset[int]().union(*(claims for _, claims in kept))))
    return tuple(sorted(found, key=lambda view: (view.rank, sorted(view.claims)))), complete


def _unions(sets: set[frozenset[int]], most: int) -> tuple[list[frozenset[int]], bool]:
    """Unions of any of the sets, smaller sets first, and whether the list is complete."""
    ordered = sorted(sets, key=lambda each: (len(each), sorted(each)))
    found = dict.fromkeys(ordered)
    for one in ordered:
        for other in list(found):
            if one | other not in found:
                if len(found) >= most:
                    return list(found), False
                found[one | other] = None
    return list(found), True
