"""
Parameters of all that puts jobs on nodes: greedy, preemption, later starts, rounding, and the ledger.

A ledger carries them (`Ledger.params`). The docstring of each field gives the unit, the meaning, and the case
that set the default. A field of type bool switches an improver off; `python -m benchmarks ablate` measures
what each of them earns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FillOrder(StrEnum):
    """Order of jobs of one replica and of equal points per GPU where free capacity is filled."""

    TURNS = "turns"
    """The jobs of each class are spread evenly over all turns, so that different jobs share nodes."""
    LEAST_WASTE = "least waste"
    """Shares of which several fill a GPU come before those that leave much of it unused; then in turns."""
    LARGEST_FIRST = "largest first"
    """First fit decreasing."""


@dataclass(frozen=True, slots=True)
class GreedyParams:
    """Orders of decisions that greedy tries, and its steps over later slots."""

    few_incumbents: int = 200
    """
    Running jobs up to which greedy also tries preemption one by one alone: it takes no time then. Instances
    of 70 nodes with scarce cores: plans by bulk preemption alone are up to 24 % worse (docs/benchmarks.md).
    """

    owed_incumbents: int = 400
    """
    The same if the first plan leaves a guarantee unmet. 200 queues on 157 nodes: better on five of six seeds
    when first measured (docs/benchmarks.md). L, seed 1, would gain 2.2 % but take twice as long.
    """

    exchanges: int = 8
    """
    Starts taken back for one job that a guarantee is owed to; 0 for none. 200 queues on 157 nodes: better on
    three of six seeds when first measured (docs/benchmarks.md).
    """

    stops_tried: int = 32
    """
    Running jobs that are stopped for trial, each for several waiting ones, in one turn; 0 for none. 200
    queues on 157 nodes: better on 11 of 14 seeds, and worse on none (docs/benchmarks.md).
    """

    idle_rounds: int = 3
    """
    Passes over the nodes with idle GPUs while a guarantee is unmet, as long as these change anything; 0 for
    none. L, seed 1, by weights: 320 GPUs are missing without, 195 with (decision 0035).
    """

    idle_moves: int = 16
    """
    Starts that are tried on a node with idle GPUs in one go. L, seed 4: without a limit the same plan takes
    four times as long (decision 0035).
    """

    idle_failures: int = 32
    """
    Starts that no guarantee needs and that are tried in vain, after which no more give way to jobs that one
    is owed to. No record of the case that set it.
    """

    order_tries: int = 64
    """
    Starts of waiting jobs that are tried in place of starts of lower priority made for a guarantee. Small
    random worlds with guarantees and priorities need one or two. No record of the case that needs more.
    """

    list_scheduling: bool = True
    """
    Try orders that decide starts now and later in one pass. S with 12 slots: up to 2.7 % worse without
    (docs/benchmarks.md).
    """

    gangs_first: bool = True
    """
    Try an order that places gangs that need one domain before all other jobs. 12 slots at XL: most of the gap
    is due to such gangs (docs/benchmarks.md).
    """

    resuming: bool = True
    """
    Try an order that assumes that preempted jobs resume later. S with 12 slots: it serves higher priorities
    better on some seeds, at a loss for lower ones (docs/benchmarks.md).
    """

    fill_order: FillOrder = FillOrder.TURNS
    """
    The order that is tried first. Where it leaves many jobs without a place, and no exact solver improves the
    plan, the others are tried too.
    """

    crowded_share: float = 0.1
    """
    Part of the waiting jobs without a place from which other fill orders are tried. Of epochs in which nearly
    all jobs find a place, the order that places one job more is not the one that leaves most room for the
    next: mixes of openb with many shares lose a point then (docs/benchmarks.md).
    """

    scarcity: float = 0.01
    """
    Cost of a GPU of the scarcest model (`NodeGroup.scarcity`), as a part of a wholly stranded node. Mixes of
    openb in which 15 to 30 % of the pods name models, epochs of 500: 5 to 14 points more GPUs are allocated
    than without; values from 0.003 to 0.1 differ by at most 1.2 points (docs/benchmarks.md).
    """

    model_moves: int = 200
    """
    Tries to give a scaled job that starts another GPU model. Queues of 8 to 24 jobs on three models, goal
    `value`: without, greedy is 20 to 39 % behind the optimum, and with it 4 to 12 % (docs/benchmarks.md).
    """

    pull_forward: bool = True
    """
    Pull reserved starts forward to the earliest slot with room. S with 12 slots: 0.1 and 0.5 % worse without
    (docs/benchmarks.md).
    """


@dataclass(frozen=True, slots=True)
class BulkPreemptionParams:
    """Preemption of many running jobs at once by market prices."""

    enabled: bool = True
    """
    Without it greedy preempts one by one only. It was 15 to 50 % below the relaxation (decision 0009). M,
    greedy alone: 0, 1.2 and 3.9 % worse without (docs/benchmarks.md).
    """

    premium: float = 1.1
    """
    Multiple of the price up to which a job is preempted too: it returns if nothing takes its place. No record
    of the case that set it.
    """

    expected_share: float = 0.9
    """
    Fraction of a queue's waiting jobs worth the price that is expected to count toward its guarantee. No
    record of the case that set it.
    """

    price_rounds: int = 8
    """Iterations after which the prices hardly change. No record of the case that set it."""

    logit_scale: float = 0.3
    """
    Fraction of the general price level: a model that is cheaper by this much attracts e times the demand. No
    record of the case that set it.
    """


@dataclass(frozen=True, slots=True)
class PreemptionParams:
    """Preemption one by one, and the return of preempted jobs."""

    enabled: bool = True
    """
    Preempt for single jobs, and one job for several; without it only bulk preemption, exchanges for
    guarantees and the exact solver preempt. M, greedy alone: 0.1, 2.8 and 5.6 % worse without
    (docs/benchmarks.md).
    """

    nodes_tried: int = 16
    """
    Nodes examined for one replica: those with the least lower bound on the loss. No record of the case that
    set it.
    """

    domains_tried: int = 4
    """Domains examined for one gang that needs one. No record of the case that set it."""

    max_failures: int = 400
    """
    Classes without a profitable preemption after which no job is preempted any more. No record of the case
    that set it.
    """

    claim_unions: int = 64
    """
    Unions of claims on what queues borrow for which quota is counted. With more, only the claims of classes
    that miss most of their guarantees count. 200 queues on 157 nodes: 32 to 1,400 make equal plans on four
    seeds, without any claim they lose up to 32 % of the bound (docs/benchmarks.md).
    """

    few_newcomers: int = 500
    """
    New jobs since the last plan up to which jobs are preempted for them when that plan is extended. With more
    the last plan says little, and preempting for all takes as long as greedy. No record of the case that set
    it.
    """

    few_nodes: int = 16
    """Nodes up to which losses are computed one by one; only time depends on it. No record of the case."""

    few_victim_sets: int = 8
    """
    Sets of victims up to which quota beside them is counted in plain numbers, and no longer in arrays; only
    time depends on it. Set on sizes S to XL: L has 2 to 5, of which one or two bind a class, and XL, seed 5,
    spent 18 % of greedy's CPU there. 200 queues have 116 to 162.
    """


@dataclass(frozen=True, slots=True)
class RoundingParams:
    """Placement of the counts of the block model on nodes."""

    whole_node_gpus: int = 8
    """
    GPUs of a replica that needs a whole node of the usual size, and is reserved before smaller ones; the
    nodes of the sizes S to XL have 8.
    """

    meet_floors: bool = True
    """
    Let jobs of lower priority give way where a placed answer misses the floor of a higher one. M with 12
    slots, seed 8: without, the plan is greedy's and 6 % worse (docs/benchmarks.md).
    """

    second_pass: bool = True
    """
    If a job misses its intended place, place everything again in another order; the better pass counts. S
    with 12 slots: 0.3 % worse without (docs/benchmarks.md).
    """

    swap_repair: bool = True
    """
    Exchange jobs that use much CPU or memory for light ones where that makes room (decision 0009). A mix of
    openb in which 25 % of the pods name models: 0.4 % worse without (docs/benchmarks.md).
    """

    swap_failures: int = 50
    """
    Nodes in a row without a useful exchange that end the exchanges of one batch, so that hopeless cases do
    not use up the time to place (docs/benchmarks.md). No record of the case that set the number.
    """


@dataclass(frozen=True, slots=True)
class LedgerParams:
    """Memory and time of the ledger; no plan depends on these numbers."""

    max_node_scores: int = 1_024
    """
    Node scores kept; each has two numbers per node: 25 MB for all at 1,500 nodes. No record of the case that
    set it.
    """

    max_feasible_nodes: int = 2_048
    """Lists of feasible nodes over a span of slots kept per ledger. No record of the case that set it."""

    few_changed_nodes: int = 8
    """
    Changed nodes up to which scores are computed one by one, twenty times as fast as an array of one. No
    record of the case that set the number.
    """


@dataclass(frozen=True, slots=True)
class PlacementParams:
    """All that puts jobs on nodes."""

    greedy: GreedyParams = GreedyParams()
    bulk_preemption: BulkPreemptionParams = BulkPreemptionParams()
    preemption: PreemptionParams = PreemptionParams()
    rounding: RoundingParams = RoundingParams()
    ledger: LedgerParams = LedgerParams()
