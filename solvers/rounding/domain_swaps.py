"""Distribute the sites taken for equal gangs among these gangs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import Level
    from gpuplan.models.problem.jobs import LocalityRule
    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.ledger import Ledger


def distribute_sites(
    ledger: Ledger, rules: LocalityRule, sites: list[ReplicaSite], jobs: int, minimum: int, maximum: int
) -> tuple[list[list[ReplicaSite]], list[ReplicaSite]]:
    """
    Sites of each of `jobs` jobs, as many as there are and as each may have; also the sites left over.

    With a spread, the sites of each domain are dealt in turn, so that no job gets more of one domain than it
    must. With a preferred level, one job after the other gets sites in as few domains as possible.
    """
    if jobs == 0:
        return [], sites
    used = min(len(sites), jobs * maximum)
    sizes = [used // jobs + (position < used % jobs) for position in range(jobs)]
    if used < jobs * minimum:
        return [], sites
    if rules.spread is not None:
        return _distribute_spread(ledger, rules.spread, sites, sizes)
    if rules.preferred is not None:
        return _distribute_compact(ledger, rules.preferred, sites, sizes)
    hands, start = [], 0
    for size in sizes:
        hands.append(sites[start : start + size])
        start += size
    return hands, sites[used:]


def satisfies_locality_rule(ledger: Ledger, rules: LocalityRule, sites: list[ReplicaSite]) -> bool:
    """True if a job on these sites is in one domain of the required level and within its spread limit."""
    if rules.required is not None and len(_by_domain(ledger, rules.required, sites)) > 1:
        return False
    return rules.spread is None or all(
        len(members) <= rules.most for members in _by_domain(ledger, rules.spread, sites).values()
    )


def _distribute_spread(
    ledger: Ledger, level: Level, sites: list[ReplicaSite], sizes: list[int]
) -> tuple[list[list[ReplicaSite]], list[ReplicaSite]]:
    """
    Deal sites domain by domain, each to the jobs in turn.

    Surplus sites are taken from the fullest domains, which are closest to the limit.
    """
    by_domain = _by_domain(ledger, level, sites)
    over = [max(by_domain.values(), key=len).pop() for _ in range(len(sites) - sum(sizes))]
    hands: list[list[ReplicaSite]] = [[] for _ in sizes]
    position = 0
    for members in by_domain.values():
        for site in members:
            while len(hands[position % len(sizes)]) >= sizes[position % len(sizes)]:
                position += 1
            hands[position % len(sizes)].append(site)
            position += 1
    return hands, over


def _distribute_compact(
    ledger: Ledger, level: Level, sites: list[ReplicaSite], sizes: list[int]
) -> tuple[list[list[ReplicaSite]], list[ReplicaSite]]:
    """One job after the other: the tightest domain with enough sites, or else the fullest ones."""
    by_domain = _by_domain(ledger, level, sites)
    hands = []
    for size in sizes:
        hand: list[ReplicaSite] = []
        while len(hand) < size:
            members = [each for each in by_domain.values() if each]
            missing = size - len(hand)
            enough = [each for each in members if len(each) >= missing]
            domain = min(enough, key=len) if enough else max(members, key=len)
            hand += domain[:missing]
            del domain[:missing]
        hands.append(hand)
    return hands, [site for members in by_domain.values() for site in members]


def _by_domain(ledger: Ledger, level: Level, sites: list[ReplicaSite]) -> dict[int, list[ReplicaSite]]:
    of = ledger.domains.of(level)
    found: dict[int, list[ReplicaSite]] = defaultdict(list)
    for site in sites:
        found[int(of[site.node])].append(site)
    return found
