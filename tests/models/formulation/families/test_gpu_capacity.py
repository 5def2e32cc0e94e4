from __future__ import annotations

from tests.support.builders import build
from tests.support.harness.family_rows import most, rows


def fragmented():
    """Two nodes of eight GPUs with 5 and 3 free."""
    taken = [
        build.job(f"r{node}", gpus=count, at=[build.replica(node, gpus=range(count))])
        for node, count in (("n0", 3), ("n1", 5))
    ]
    return build.cluster(2, gpus=8), taken


def test_blocks_are_counted_node_by_node():
    nodes, running = fragmented()
    jobs = [build.job(f"j{gpus}", gpus=gpus) for gpus in (1, 2, 4)]

    blocks = {
        row.key[1]: row.upper
        for row in rows(build.snapshot(nodes=nodes, jobs=[*running, *jobs]), "gpu_capacity")
    }

    assert blocks == {1: 8, 2: 3, 4: 1}


def test_pairs_of_gpus_fit_exactly_and_one_more_does_not():
    nodes, running = fragmented()
    pairs = [build.job(f"j{index}", gpus=2) for index in range(4)]

    assert most(build.snapshot(nodes=nodes, jobs=[*running, *pairs]), "gpu_capacity") == 3


def test_sizes_that_do_not_divide_leave_a_true_bound():
    """Four jobs of 3 on two nodes of 5: two fit; the rows allow no more than two."""
    threes = [build.job(f"j{index}", gpus=3) for index in range(4)]

    assert most(build.snapshot(nodes=build.cluster(2, gpus=5), jobs=threes), "gpu_capacity") == 2


def test_node_out_of_cpu_has_no_blocks():
    nodes = build.cluster(1, gpus=8, cpus=20)
    jobs = [build.job(f"j{index}", gpus=1, cpus=8) for index in range(8)]

    (row,) = rows(build.snapshot(nodes=nodes, jobs=jobs), "gpu_capacity")

    assert row.upper == 2


def test_gpu_opened_for_shares_is_a_block_of_one():
    jobs = [build.job("whole", gpus=1), build.job("share", milli=500)]

    (row,) = rows(build.snapshot(nodes=build.cluster(1, gpus=1), jobs=jobs), "gpu_capacity")

    assert row.coefficients.tolist() == [1, 1]
    assert row.upper == 1


def test_unhealthy_gpus_and_gpus_in_mig_mode_are_no_blocks():
    details = [{"index": 0, "healthy": False}, {"index": 1, "mig": []}]
    node = build.node(gpus=4)
    node = node.model_copy(
        update={"gpus": node.gpus.model_validate(node.gpus.document() | {"details": details})}
    )

    (row,) = rows(build.snapshot(nodes=[node], jobs=[build.job(gpus=1)]), "gpu_capacity")

    assert row.upper == 2
