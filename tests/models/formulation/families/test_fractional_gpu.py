from __future__ import annotations

from tests.support.builders import build
from tests.support.harness.family_rows import most, rows


def shares(count, milli):
    return [build.job(f"s{index}", milli=milli) for index in range(count)]


def test_no_shares_no_rows():
    assert rows(build.snapshot(jobs=[build.job(gpus=1)]), "fractional_gpu") == []


def test_shares_fill_a_gpu_exactly_and_one_more_does_not():
    nodes = build.cluster(1, gpus=1)

    assert most(build.snapshot(nodes=nodes, jobs=shares(4, 250)), "fractional_gpu", "gpu_capacity") == 4
    assert most(build.snapshot(nodes=nodes, jobs=shares(5, 250)), "fractional_gpu", "gpu_capacity") == 4


def test_two_shares_just_below_a_half_fit_a_gpu_and_a_third_does_not():
    assert (
        most(
            build.snapshot(nodes=build.cluster(1, gpus=1), jobs=shares(3, 470)),
            "fractional_gpu",
            "gpu_capacity",
        )
        == 2
    )


def test_shares_above_a_half_take_a_gpu_each():
    jobs = [build.job("a", milli=510), build.job("b", milli=600), build.job("c", milli=999)]

    assert (
        most(build.snapshot(nodes=build.cluster(1, gpus=2), jobs=jobs), "fractional_gpu", "gpu_capacity") == 2
    )


def test_gpu_already_shared_takes_what_it_has_left():
    running = build.job("r", milli=600, at=[build.replica("n0", gpus=(0,), milli=600)])
    nodes = build.cluster(1, gpus=1)

    assert most(build.snapshot(nodes=nodes, jobs=[running, *shares(2, 200)])) == 2
    assert most(build.snapshot(nodes=nodes, jobs=[running, *shares(1, 410)])) == 0


def test_opened_gpus_are_not_left_for_whole_requests():
    jobs = [build.job("w", gpus=2), *shares(1, 100)]

    assert most(build.snapshot(nodes=build.cluster(1, gpus=2), jobs=jobs)) == 1
