"""
Parameters of the block model: limits of its size, and which valid inequalities it has.

The docstring of each field gives the unit, the meaning, and the case that set the default.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FormulationParams:
    """Parameters of the block model; none of them changes which plans are feasible."""

    gang_covers: bool = True
    """Add gang cover rows to the linear relaxation. 100K × 20K: the bound fell by 3.1 % (decision 0008)."""

    least_cover_violation: float = 1e-3
    """
    Replicas, or units of what counts against a quota; smallest violation for which a cover row is added. No
    record of the case that set it.
    """

    max_gang_covers: int = 8
    """
    Gang cover rows added per domain at a time, those with the largest violation. No record of the case that
    set it.
    """

    quota_covers: bool = True
    """
    Add quota cover rows that an answer violates. 200 queues on 157 nodes, seed 1: without them an answer 17 %
    above greedy's plan loses two thirds of that when it is placed (decision 0045).
    """

    max_claim_unions: int = 2_048
    """
    Unions of claims for which quota cover rows are looked for. 200 queues on 157 nodes have 675 and 1,300 on
    seeds 3 and 1 (decision 0045).
    """

    max_quota_covers: int = 4
    """Quota cover rows added per queue at a time, those with the largest violation (decision 0045)."""

    stranded_gpu: bool = True
    """
    State the rows of stranded GPUs (C15). They lower the bound by 0.3 to 0.8 %, and the counts then fit on
    nodes (decision 0009). A mix of openb in which 25 % of the pods name models: 0.4 % worse without
    (docs/benchmarks.md).
    """

    max_stranding_units: int = 256
    """
    Units in which a node's amount of a resource is counted at most in the rows of stranded GPUs. No record of
    the case that set it.
    """

    max_replicas_per_node: int = 8
    """
    Rows of CPU and memory are stated for replicas of which at most this many fit a node; the total covers
    smaller ones. No record of the case that set it.
    """

    max_patterns_per_node: int = 1_024
    """
    Eviction patterns of one node; a node with more is crowded. L5: with 256, three crowded nodes made the
    bound 0.5 % larger, and 50 of 1,544 jobs found no place; with 1,024 none is crowded, and one job finds no
    place (decision 0005).
    """

    max_patterns: int = 6_000
    """
    Eviction patterns of all nodes; nodes with the most patterns become crowded until it is met …
    `scenarios/production` with preemption: 33,238 patterns made 1.7 million coefficients and no bound in
    time, 5,962 a bound 4.8 % above the plan (decision 0005).
    """

    max_average_patterns: int = 8
    """… or until the average per node is at most this. 12,500 nodes (decision 0008)."""

    max_release_coefficients: int = 1_000_000
    """
    Coefficients in rows without gain columns above which early releases are counted slot by slot. With fewer,
    HiGHS loses more time than the smaller model saves (decision 0009, which does not name the case).
    """
