"""Sets of victims that matter, with the classes that may follow none of them."""

from itertools import chain, combinations
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.eligibility.preemption_order import (
    MAX_CLAIM_UNIONS,
    VictimView,
    conservative_victim_views,
    may_use_freed,
    victim_views,
)


class Victim(NamedTuple):
    rank: int
    claims: tuple[int, ...] = ()


class Comer(NamedTuple):
    rank: int
    claim: int = 0


VICTIMS = st.builds(
    Victim, st.integers(1, 3), st.sets(st.integers(1, 3)).map(lambda each: tuple(sorted(each)))
)
COMERS = [Comer(rank, claim) for rank in range(4) for claim in range(4)]


def test_without_claims_there_is_one_set_for_each_rank():
    found = victim_views([Victim(2), Victim(5), Victim(5), Victim(0)])

    assert found == (VictimView(2, frozenset()), VictimView(5, frozenset()))


@given(st.lists(VICTIMS, min_size=1, max_size=5))
def test_any_victims_are_kept_by_a_set_that_binds_all_that_may_follow_none_of_them(victims):
    found = victim_views(victims)

    for some in chain.from_iterable(combinations(victims, count) for count in range(1, len(victims) + 1)):
        free = {
            comer
            for comer in COMERS
            if any(may_use_freed(comer, (each.rank, frozenset(each.claims))) for each in some)
        }
        assert any(
            all(map(view.keeps, some)) and {comer for comer in COMERS if not view.binds(comer)} == free
            for view in found
        )


@given(st.lists(VICTIMS, min_size=1, max_size=5))
def test_a_set_binds_only_what_may_follow_none_of_those_that_it_keeps(victims):
    for view in victim_views(victims):
        for comer in filter(view.binds, COMERS):
            kept = filter(view.keeps, victims)
            assert not any(may_use_freed(comer, (each.rank, frozenset(each.claims))) for each in kept)


def test_of_too_many_claims_the_safe_sets_count_as_many_as_they_may_in_order():
    victims = [Victim(1, (claim,)) for claim in range(1, 8)]

    found = conservative_victim_views(victims, first=(7, 3), most=8)

    assert 2**7 > MAX_CLAIM_UNIONS >= len({view.claims for view in victim_views(victims)})
    assert {claim for view in found for claim in view.claims} >= {3, 7}
    assert len(found) <= 8
    assert conservative_victim_views(victims[:2]) == victim_views(victims[:2])


@given(st.lists(VICTIMS, min_size=1, max_size=5), st.permutations([1, 2, 3]), st.integers(1, 4))
def test_the_safe_sets_are_at_least_as_strict_as_all_sets(victims, first, most):
    found = conservative_victim_views(victims, first, most)

    for view in victim_views(victims):
        kept = [each for each in victims if view.keeps(each)]
        bound = [each for each in COMERS if view.binds(each)]
        assert any(all(map(safe.keeps, kept)) and all(map(safe.binds, bound)) for safe in found)
