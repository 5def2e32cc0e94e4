"""Names of GPU models that can mean the same."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import NodeGpus
from gpuplan.planner.sources.nvml.merge import same_model

MEMORY = {
    "NVIDIA-H100-80GB-HBM3": 81_559,
    "NVIDIA-H100-PCIe": 81_559,
    "NVIDIA-H100-NVL": 95_830,
    "NVIDIA-H200": 143_771,
    "NVIDIA-A100-SXM4-40GB": 40_960,
    "NVIDIA-A100-SXM4-80GB": 81_920,
    "NVIDIA-GH200-480GB": 97_871,
    "NVIDIA-B200": 183_359,
    "NVIDIA-GB200": 189_471,
    "NVIDIA-A30": 24_576,
    "NVIDIA-A10": 23_028,
    "Tesla-T4": 15_360,
}


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("h100", "NVIDIA-H100-80GB-HBM3"),
        ("gpu", "NVIDIA-H100-80GB-HBM3"),
        ("H100-80GB", "NVIDIA-H100-80GB-HBM3"),
        ("H100-80GB-SXM5", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia_h100_80gb_hbm3", "NVIDIA-H100-80GB-HBM3"),
        ("H100-80GB-PCIe", "NVIDIA-H100-PCIe"),
        ("H100-94GB-NVL", "NVIDIA-H100-NVL"),
        ("H200-141GB", "NVIDIA-H200"),
        ("A100-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("a100-sxm4-40gb", "NVIDIA-A100-SXM4-40GB"),
        ("H100-96GB-GH200", "NVIDIA-GH200-480GB"),
        ("B200-180GB", "NVIDIA-B200"),
        ("GB200-186GB", "NVIDIA-GB200"),
        ("A30-24GB", "NVIDIA-A30"),
        ("t4", "Tesla-T4"),
        ("T4-16GB", "Tesla-T4"),
    ],
)
def test_short_and_long_names_are_one_model(stated, found):
    assert same_model(stated, NodeGpus(model=found, count=1, memory_mib=MEMORY[found]))


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("a100", "NVIDIA-H100-80GB-HBM3"),
        ("H100-94GB-NVL", "NVIDIA-H100-80GB-HBM3"),
        ("H100-80GB-PCIe", "NVIDIA-H100-80GB-HBM3"),
        ("H100-80GB", "NVIDIA-H100-NVL"),
        ("A100-40GB", "NVIDIA-A100-SXM4-80GB"),
        ("A100-80GB", "NVIDIA-A100-SXM4-40GB"),
        ("a100", "NVIDIA-A10"),
        ("B200-180GB", "NVIDIA-GB200"),
        ("h100", "NVIDIA-H200"),
    ],
)
def test_other_models_are_others(stated, found):
    assert not same_model(stated, NodeGpus(model=found, count=1, memory_mib=MEMORY[found]))
