from __future__ import annotations

import pytest

from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_duration,
    format_gib,
    format_gpu_hours,
    format_gpus,
    format_mig_layout,
    format_money,
    format_resize,
    gang_size,
    join_first_names,
    join_jobs,
    join_with_and,
    node_size,
    placement_size,
)
from tests.support.builders.build import job, layout, node, placement, replica
from tests.support.harness.verify_helpers import asking, sliced


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (format_count(1, "job"), "1 job"),
        (format_count(1047, "job"), "1,047 jobs"),
        (format_gpus(0), "0 GPUs"),
        (format_gpus(460), "0.46 GPU"),
        (format_gpus(1000), "1 GPU"),
        (format_gpus(1_131_500), "1,131.5 GPUs"),
        (format_cpus(500), "0.5 CPU"),
        (format_cpus(16_000), "16 CPUs"),
        (format_gib(1024), "1 GiB"),
        (format_gib(512), "0.5 GiB"),
        (format_gib(102_400), "100 GiB"),
        (format_duration(0), "0s"),
        (format_duration(45), "45s"),
        (format_duration(3 * 3600 + 10 * 60 + 59), "3h10m"),
        (format_duration(86_400), "1d"),
        (format_duration(2 * 86_400 + 59), "2d"),
        (join_with_and(["a"]), "a"),
        (join_with_and(["a", "b", "c"]), "a, b and c"),
        (join_first_names(["a", "b", "c"]), "a, b and c"),
        (join_first_names(["a", "b", "c", "d"]), "a, b and 2 more"),
        (join_jobs(["a", "b", "c", "d"]), "a, b and 2 more"),
        (join_jobs(["16"]), "job 16"),
        (join_jobs(["3_1", "a"]), "jobs 3_1 and a"),
        (join_jobs(["10", "11", "12", "13"]), "jobs 10, 11 and 2 more"),
        (join_jobs(["a", "b", "c", "4"]), "a, b and 2 more"),
        (format_gpu_hours(3_600_000), "1 GPU-hour"),
        (format_gpu_hours(8 * 1000 * 1800), "4 GPU-hours"),
        (format_gpu_hours(1000 * 5000), "1.4 GPU-hours"),
        (format_gpu_hours(1000), "less than 0.1 GPU-hours"),
        (format_gpu_hours(0), "0 GPU-hours"),
        (format_money(1234.5), "1,234.50"),
        (format_mig_layout(None), "MIG off"),
        (format_mig_layout(()), "no instances"),
        (format_mig_layout(layout(("1g.10gb", 5), ("3g.40gb", 0), ("1g.10gb", 4))), "3g.40gb + 2 × 1g.10gb"),
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

    assert format_resize(before, after) == "4 → 1 × 2 GPUs"
