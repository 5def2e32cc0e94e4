"""Patterns of shares on one GPU cover exactly what can be packed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.solvers.improve.column_generation.bin_packing import cutting_patterns
from gpuplan.solvers.params.improve import ColumnGenerationParams
from tests.support.oracles.share_packing import packs

pytestmark = pytest.mark.slow

FEW_SHARES = st.lists(st.sampled_from((90, 210, 300, 340, 410, 500, 590, 810, 1000)), max_size=6)


@given(FEW_SHARES.filter(bool), st.integers(1, 3))
def test_shares_fit_patterns_exactly_if_they_can_be_packed(milli, gpus):
    sizes = tuple(sorted(set(milli), reverse=True))
    wanted = [sum(share >= size for share in milli) for size in sizes]

    patterns = cutting_patterns(sizes, 1000, ColumnGenerationParams().max_patterns)
    fits = any(
        all(sum(places) >= want for places, want in zip(zip(*chosen, strict=True), wanted, strict=True))
        for chosen in itertools.combinations_with_replacement(patterns, gpus)
    )

    assert fits == packs(tuple(sorted(milli)), gpus)
