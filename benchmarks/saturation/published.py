"""Published figures for comparison."""

from __future__ import annotations

from typing import Final

PUBLISHED: Final = {
    "default": (86.30, 90.62, 91.65, 91.78, 92.86, 95.23),
    "gpushare40": (84.86, 89.30, 89.76, 89.77, 91.44, 93.96),
    "multigpu20": (86.92, 91.85, 93.34, 93.50, 93.73, 95.53),
    "gpuspec10": (86.26, 90.17, 91.96, 92.24, 93.10, 94.66),
}
"""
GPUs allocated in % when the demand reaches the number of GPUs, by variant, in the order of
`policies.PUBLISHED`.

Means of the authors' ten seeds: hkust-adsl/kubernetes-scheduler-simulator, experiments/analysis/
expected_results/analysis_allo_discrete.csv, column 100.
"""

CEILING: Final = {"default": 96.89, "gpushare40": 95.69, "multigpu20": 97.30, "gpuspec10": 96.84}
"""
Upper bounds in % on the allocation of any plan that knows all pods at once, from configuration linear
programs.

For the authors' seed 42, only pods with GPUs, without memory. An online policy cannot reach them.
"""
