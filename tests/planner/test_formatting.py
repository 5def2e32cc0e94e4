from __future__ import annotations

import pytest

from gpuplan.planner.formatting import (
    counted,
    duration,
    gang_size,
    in_cpus,
    in_gib,
    in_gpu_hours,
    in_gpus,
    layout_text,
    listed,
    money,
    named,
    node_size,
    placement_size,
    resized,
)
from tests.support.builders.build import job, layout, node, placement, replica
from tests.support.harness.verify_helpers import asking, sliced


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (counted(1, "job"), "1 job"),
        (counted(1047, "job"), "1,047 jobs"),
        (in_gpus(0), "0 GPUs"),
        (in_gpus(460), "0.46 GPU"),
        (in_gpus(1000), "1 GPU"),
        (in_gpus(1_131_500), "1,131.5 GPUs"),
        (in_cpus(500), "0.5 CPU"),
        (in_cpus(16_000), "16 CPUs"),
        (in_gib(1024), "1 GiB"),
        (in_gib(512), "0.5 GiB"),
        (in_gib(102_400), "100 GiB"),
        (duration(0), "0s"),
        (duration(45), "45s"),
        (duration(3 * 3600 + 10 * 60 + 59), "3h10m"),
        (duration(86_400), "1d"),
        (duration(2 * 86_400 + 59), "2d"),
        (listed(["a"]), "a"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (named(["a", "b", "c"]), "a, b and c"),
        (named(["a", "b", "c", "d"]), "a, b and 2 more"),
        (in_gpu_hours(3_600_000), "1 GPU-hour"),
        (in_gpu_hours(8 * 1000 * 1800), "4 GPU-hours"),
        (in_gpu_hours(1000 * 5000), "1.4 GPU-hours"),
        (in_gpu_hours(1000), "less than 0.1 GPU-hours"),
        (in_gpu_hours(0), "0 GPU-hours"),
        (money(1234.5), "1,234.50"),
        (layout_text(None), "MIG off"),
        (layout_text(()), "no instances"),
        (layout_text(layout(("1g.10gb", 5), ("3g.40gb", 0), ("1g.10gb", 4))), "3g.40gb + 2 × 1g.10gb"),
        (node_size(node(gpus=4)), "4 × H100-80GB"),
        (node_size(node(gpus=0, cpus=64)), "64 CPUs"),
    ],
)
def test_amounts_read_as_people_write_them(found, expected):
    assert found == expected


@pytest.mark.parametrize(
    ("waiting", "size"),
    [
        (job(gpus=8), "8 GPUs"),
        (job(gpus=8, replicas=4), "4 × 8 GPUs"),
        (job(milli=460, replicas=(2, 8)), "2-8 × 0.46 GPU"),
        (job(gpus=1, replicas=(1, 2)), "1-2 × 1 GPU"),
        (asking(job(), mig={"1g.10gb": 2, "3g.40gb": 1}), "2 × 1g.10gb + 3g.40gb"),
        (job(cpus=16, memory_gib=64), "16 CPUs"),
        (job(memory_gib=64), "64 GiB"),
        (job(), "no GPU"),
    ],
)
def test_a_gang_is_told_by_its_scarcest_part(waiting, size):
    assert gang_size(waiting.request, waiting.gang.minimum, waiting.gang.maximum) == size


@pytest.mark.parametrize(
    ("replicas", "size"),
    [
        ([replica(gpus=range(8))] * 4, "4 × 8 GPUs"),
        ([replica(gpus=[3], milli=460)], "0.46 GPU"),
        ([sliced(replica(), (0, "1g.10gb", 0), (0, "1g.10gb", 1))], "2 × 1g.10gb"),
        ([replica(cpus=2)], "2 CPUs"),
    ],
)
def test_a_placement_reads_like_the_request_it_serves(replicas, size):
    assert placement_size(placement("a", *replicas)) == size


def test_a_gang_that_changes_in_size_tells_both():
    before = placement("a", *[replica(gpus=[0, 1])] * 4)
    after = placement("a", replica(gpus=[0, 1]))

    assert resized(before, after) == "4 → 1 × 2 GPUs"
