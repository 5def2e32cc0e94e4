"""Place jobs on given sites, as a known plan has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.ledger import Ledger


def place_on_sites(ledger: Ledger, index: int, sites: Sequence[ReplicaSite]) -> bool:
    """Place one job of a class on exactly these sites; False, and nothing is taken, if that is impossible."""
    if not sites or not take_sites(ledger, index, sites):
        return False
    group = ledger.group_of[sites[0].node]
    for option in ledger.problem.classes[index].options:
        if group in option.groups:
            return bool(ledger.settle(index, option, list(sites), jobs=1))
    for site in sites:
        ledger.release_site(index, site)
    return False


def take_sites(ledger: Ledger, index: int, sites: Sequence[ReplicaSite]) -> bool:
    """Take exactly these sites for replicas of a class; False, and none is taken, if one is not free."""
    for number, site in enumerate(sites):
        if not ledger.may_take(index, site):
            for taken in sites[:number]:
                ledger.release_site(index, taken)
            return False
        ledger.take_site(index, site)
    return True
