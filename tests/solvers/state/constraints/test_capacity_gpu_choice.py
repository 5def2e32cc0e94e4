"""Whole GPUs of one replica are close together, and large groups stay whole."""

from __future__ import annotations

import pytest

from gpuplan.solvers.state.constraints.capacity import choose_gpus

# GPUs 0 to 3 in NVLink group 0, 4 to 7 in group 1; two NUMA nodes in each group.
PAIRED = tuple((gpu // 4, gpu // 2) for gpu in range(8))


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 4, (0, 1, 2, 3)),
        ([0, 1, 2, 3, 5, 6, 7], 2, (6, 7)),
        ([0, 1, 2, 3, 5, 6, 7], 3, (5, 6, 7)),
        ([1, 3, 4, 5, 6], 2, (1, 3)),
        ([0, 1, 2, 3, 6], 1, (6,)),
        ([0, 2, 3, 5, 6, 7], 5, (0, 2, 3, 6, 7)),
        ([1, 2, 5, 6], 3, (1, 2, 5)),
        ([2, 6], 2, (2, 6)),
    ],
)
def test_smallest_group_that_has_enough_is_taken(free, count, chosen):
    assert choose_gpus(free, PAIRED, count) == chosen


def test_without_nvlink_numa_nodes_decide():
    groups = tuple((-1, gpu // 4) for gpu in range(8))

    assert choose_gpus([0, 1, 2, 3, 4, 5], groups, 2) == (4, 5)


def test_where_nothing_is_known_the_first_are_taken():
    assert choose_gpus([3, 5, 6], (), 2) == (3, 5)
