from __future__ import annotations

from gpuplan.models.policy.policy import Prices
from tests.support.builders import build
from tests.support.harness.solved_model import solved

POLICY = build.by_value(prices=Prices(fragmentation=3, reference_gpus=8))


def test_free_gpus_beside_blocks_of_the_reference_size_are_wasted():
    jobs = [build.job("a", gpus=2, weight=1)]

    assert solved(build.snapshot(nodes=build.cluster(2), jobs=jobs), POLICY).points == 200 - 3 * 6


def test_nothing_is_wasted_while_all_is_free_or_all_in_use():
    whole = [build.job("a", gpus=8)]

    assert solved(build.snapshot(nodes=build.cluster(2), jobs=whole), POLICY).points == 800
    assert solved(build.snapshot(nodes=build.cluster(2)), POLICY).points == 0


def test_nodes_smaller_than_the_reference_are_wasted_whole():
    assert solved(build.snapshot(nodes=build.cluster(1, gpus=4)), POLICY).points == -12


def test_small_jobs_share_a_node_so_that_the_other_stays_whole():
    jobs = [build.job(f"a{number}", gpus=4) for number in range(2)]

    assert solved(build.snapshot(nodes=build.cluster(2), jobs=jobs), POLICY).points == 800
