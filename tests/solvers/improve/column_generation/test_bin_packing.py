"""Shares are packed on GPUs exactly if they fit."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.solvers.improve.column_generation.bin_packing import pack_shares
from gpuplan.solvers.params.improve import ColumnGenerationParams
from tests.support.oracles.share_packing import packs

pytestmark = pytest.mark.slow

FEW_SHARES = st.lists(st.sampled_from((90, 210, 300, 340, 410, 500, 590, 810, 1000)), max_size=6)


@given(FEW_SHARES, st.integers(1, 3))
def test_packing_finds_one_exactly_if_there_is_one(milli, gpus):
    found = pack_shares(milli, [1000] * gpus, ColumnGenerationParams().packing_steps)

    assert (found is not None) == packs(tuple(sorted(milli)), gpus)
    if found is not None:
        held_by = Counter()
        for share, gpu in zip(milli, found, strict=True):
            held_by[gpu] += share
        assert all(gpu < gpus and total <= 1000 for gpu, total in held_by.items())


PARTS = st.lists(st.sampled_from((110, 160, 180, 260, 270, 360, 390, 410, 420, 530, 600, 650)), max_size=9)


@given(st.lists(PARTS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_packing_that_is_known_to_exist_is_found(parts, shuffled):
    """Also on GPUs of which a part is taken, each of which just holds its shares."""
    free = [min(1000, sum(each) + 40) for each in parts]
    held = [fitting(each, room) for each, room in zip(parts, free, strict=True)]
    shares = [share for each in held for share in each]
    shuffled.shuffle(shares)

    found = pack_shares(shares, free, ColumnGenerationParams().packing_steps)

    assert found is not None
    used = Counter()
    for share, gpu in zip(shares, found, strict=True):
        used[gpu] += share
    assert all(used[gpu] <= room for gpu, room in enumerate(free))


def test_many_equal_shares_do_not_exhaust_the_search():
    """Best fit puts two shares of 410 on a GPU, and then the last of 270 have no place."""
    shares = [410] * 8 + [270] * 16

    found = pack_shares(shares, [1000] * 8, ColumnGenerationParams().packing_steps)

    assert found is not None
    assert sorted(Counter(zip(shares, found, strict=True)).values()) == [1] * 8 + [2] * 8


def fitting(shares, room):
    """Shares that fit, in their order."""
    kept = []
    for share in shares:
        if sum(kept) + share <= room:
            kept.append(share)
    return kept
