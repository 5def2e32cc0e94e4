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
