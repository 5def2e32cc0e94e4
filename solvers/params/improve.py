"""
Parameters of improvement: neighbourhoods, parts of a large cluster, and repacking by column generation.

The docstring of each field gives the unit, the meaning, and the case that set the default. A field of type
bool switches an improver off.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LnsParams:
    """Large neighbourhood search."""

    enabled: bool = True
    """
    Without it no neighbourhood is solved; parts and repacking stay. S with 20 ticks: 0.6, 1.0 and 1.7 % worse
    without (docs/benchmarks.md).
    """

    nodes: int = 12
    """
    Fewest nodes of a neighbourhood at first (decision 0007; no record of the case that set the number) …
    """

    share_of_nodes: float = 0.04
    """
    … or this fraction of the nodes, if that is more. L, seed 0, by value, from a plan 9 % below the bound:
    after 25 s of CPU neighbourhoods of 12, 24, 48, 96 and 160 nodes had gained 3.0, 3.6, 4.1, 4.1 and 4.4 %
    (decision 0036) …
    """

    most_nodes: int = 48
    """… but at most this many: after 8 s 24 and 48 nodes had gained most (decision 0036)."""

    most_size: int = 20_000
    """
    Pairs of a replica type and a node up to which neighbourhoods grow if nothing helps. No record of the case
    that set it.
    """

    base_weight_milli: int = 100
    """
    Thousandths of a GPU added to the free GPUs of each node when neighbourhoods are drawn, so that full nodes
    are drawn too. No record of the case that set it.
    """

    seconds: float = 1.0
    """
    Maximum of a neighbourhood of `nodes` nodes, in proportion to its nodes, if the clock limits the work. No
    record of the case that set it.
    """

    gap: float = 0.0005
    """
    Relative gap of a neighbourhood's answer; a smaller one is not worth the time. No record of the case that
    set it.
    """

    max_failures: int = 4
    """
    Failures in a row, for each neighbourhood that fits into the cluster, until neighbourhoods grow; the
    search ends if they have all nodes. No record of the case that set it.
    """

    report_seconds: float = 1.0
    """Minimum seconds between two reports of better plans … No record of the case that set it."""

    report_factor: int = 4
    """… and at least this many times what one report takes. No record of the case that set it."""

    per_tick: int = 2
    """
    Neighbourhoods per unit of deterministic work. No record of the case that set it; the plans of tests/net
    are made with it.
    """

    max_replicas_without_gpu: int = 64
    """
    Replicas without GPUs that the problem of some nodes considers per node at most. No record of the case
    that set it.
    """


@dataclass(frozen=True, slots=True)
class AnswerRepairParams:
    """Repair of a placed answer of the block model, some nodes at a time."""

    enabled: bool = True
    """
    Without it, jobs of an answer that found no place are left to neighbourhoods (decision 0032).
    """

    nodes: int = 32
    """
    Nodes of one round. M, seed 1: every job has its place after 0.9 s of CPU time with 32 nodes, after 7 s
    with 48 and after 10 s with 60; L, seed 1: most points per second with 32 to 48 (decision 0032).
    """

    seconds: float = 2.0
    """
    Maximum of one round, if the clock limits the work: twice what most rounds of M and L take (decision
    0032).
    """

    max_failures: int = 4
    """Rounds in a row without a better plan that end the repair. No record of the case that set it."""

    share_of_time: float = 0.6
    """
    Maximum fraction of the time left; neighbourhoods get the rest. No record of the case that set it.
    """

    share_before_finer_model: float = 0.1
    """
    The same if the finer model comes next. M, seed 0, with priorities in order and 10 s: 1.8 % below the
    bound with a share of 0.6, which left the finer model 2 s (decision 0036).
    """


@dataclass(frozen=True, slots=True)
class FinerModelParams:
    """The block model of the whole problem with a node group for each kind of node."""

    enabled: bool = True
    """
    Without it only neighbourhoods and repacking improve the plan of the block model. S, seed 1, and M, seed
    0: 2.9 and 1.9 % of the possible gain were missed with 4 and 12 ticks, and 0.0 and 0.01 % with it
    (decision 0036).
    """

    max_size: int = 40_000
    """
    Pairs of a replica type and a kind of node above which it is too large: L has 20,000 to 27,000, L5 37,000,
    XL 294,000 (decision 0036).
    """

    size_of_one_second: int = 2_000
    """
    Pairs if one second is left, and in proportion to the 2/3rd power of the seconds: with less time there is
    no answer. M, 4,300 pairs: the optimum after 2 to 6 s of CPU. L, 20,000 to 27,000 pairs: within 0.1 %
    after 18 to 45 s (decision 0036).
    """

    size_per_tick: int = 400
    """Pairs for each unit of deterministic work: S has about 1,000, M 4,000 (decision 0036)."""

    share_of_time: float = 0.85
    """
    Fraction of the time for it; the rest is for placing its answer and for neighbourhoods. No record of the
    case that set it.
    """

    shares_of_free_columns: tuple[float, ...] = (0.6, 1.0)
    """
    As `HighsParams.shares_of_free_columns`. With 1 no column is fixed, and the model is only presolved,
    unless there is an answer near the relaxation: L, seed 0, has none (decision 0036).
    """

    share_of_core: float = 0.5
    """As `HighsParams.share_of_core`. No record of the case that set it."""


@dataclass(frozen=True, slots=True)
class PartitionParams:
    """Parts of a large cluster that are improved in parallel (POP)."""

    enabled: bool = True
    """
    Without it each cluster is improved as a whole. 100K × 50K: one round of parts reduces the gap from 0.70
    to 0.10 % (decision 0008).
    """

    gpus_per_part: int = 10_000
    """Minimum GPUs of a part: about as large as a problem that is solved as a whole (decision 0008)."""

    many_gpus: int = 50_000
    """GPUs of a cluster that is divided … (decision 0008; no record of the case.)"""

    many_jobs: int = 20_000
    """… or this many waiting jobs. (Decision 0008; no record of the case.)"""

    gap: float = 0.001
    """Relative gap of a part's answer; a smaller one is not worth the time. No record of the case."""

    least_gain: float = 0.001
    """Fraction of the objective: a round that gains no more is the last. No record of the case."""

    share_of_placing: float = 0.1
    """Fraction of the time of a part for placing its answer. No record of the case that set it."""


@dataclass(frozen=True, slots=True)
class ColumnGenerationParams:
    """Repacking of all nodes with plain jobs, by column generation over configurations."""

    enabled: bool = True
    """
    Without it nodes are not repacked as a whole; it runs only if the clock limits the work. S within 5 s on a
    busy machine: 0, 0.2 and 3.9 % better without (docs/benchmarks.md).
    """

    max_node_kinds: int = 100
    """
    Kinds of nodes above which column generation over all nodes at once is too large. `scenarios/production`
    has 687: 0.6 % more was found in 14 s, without a bound (docs/benchmarks.md).
    """

    many_jobs: int = 1_000
    """
    Waiting jobs from which on odd shares are packed before any exact solver, and while greedy plans, although
    the block model is small: a process for it takes a second (decision 0047).
    """

    worthwhile: float = 0.0001
    """
    Part of the plan's worth that jobs of lower priorities must be able to add, so that all nodes are packed
    once more for them. 50,000 jobs of odd shares: up to 0.007 %, and half of the time (decision 0047).
    """

    share_of_repacking: float = 0.8
    """Fraction of the time for repacking, where it is done. No record of the case that set it."""

    share_of_pricing: float = 0.6
    """Maximum fraction of that time for generating columns. No record of the case that set it."""

    placing_factor: int = 3
    """
    Placing jobs takes at most this many times as long as taking them off. No record of the case that set it.
    """

    columns_per_round: int = 32
    """Configurations found before the master is solved for new prices. No record of the case that set it."""

    share_of_rounding: float = 0.5
    """
    Fraction of the time for an integer answer that is spent on rounding the linear relaxation. No record of
    the case that set it.
    """

    max_patterns: int = 3_000
    """Patterns of one GPU that are enumerated at most. No record of the case that set it."""

    packing_steps: int = 2_000
    """
    Steps of one search for a packing of shares; a node has few GPUs, so hardly any search comes near. No
    record of the case that set it.
    """
