"""
Repack nodes with plain jobs, by column generation over configurations.

A *configuration* is one node filled with replicas. The block model sums floors over nodes. This is only a
relaxation for GPU shares, for sizes that do not divide each other, and where CPU or memory is scarce. An
answer in configurations can always be placed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.solvers.improve.column_generation.bin_packing import pack_shares
from gpuplan.solvers.improve.column_generation.master import Master
from gpuplan.solvers.improve.column_generation.pricing_loop import generate_columns
from gpuplan.solvers.improve.column_generation.subproblem import extract_repack_problem
from gpuplan.solvers.params.improve import ColumnGenerationParams
from gpuplan.solvers.state.assignment import ReplicaSite

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.solvers.improve.column_generation.master import MasterSolution
    from gpuplan.solvers.improve.column_generation.subproblem import RepackProblem
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RepackResult:
    """Result of repacking a plan."""

    before: int
    after: int
    """Objective of the ledger; never less than `before`."""
    bound: int | None = None
    """Upper bound over all repackings of these nodes; None if none was proven in time."""
    configurations: int = 0
    rounds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase: lift, generate, round, place."""


def repack(
    ledger: Ledger,
    *,
    nodes: Ints | None,
    deadline: float,
    seed: int,
    params: ColumnGenerationParams = ColumnGenerationParams(),
) -> RepackResult:
    """
    Fill nodes (None: all) anew with the plain jobs on them and with waiting ones.

    A job is plain if only room and price decide where it goes, and if it starts with a fixed number of
    replicas. All other jobs stay. If the objective does not rise, nothing changes. `deadline` is an instant
    of `time.monotonic`; the result is deterministic if everything ends before it. With several slots nothing
    is done.
    """
    before, clock = ledger.objective, _PhaseTimes()
    if ledger.problem.slots > 1 or clock.now >= deadline:
        return RepackResult(before, before)
    mark = ledger.undo.mark()
    question = extract_repack_problem(ledger, nodes, params)
    base, lifting = ledger.objective, clock.lap("lift")
    if not question.offers:
        return RepackResult(before, before, before, seconds=clock.seconds)
    last = deadline - params.placing_factor * lifting
    master = Master(ledger, question, seed, ledger.problem.floors)
    found = generate_columns(
        master,
        question,
        ledger.problem.charges,
        deadline=clock.now + params.share_of_pricing * (last - clock.now),
        seed=seed,
    )
    clock.lap("generate")
    bound = None if found.bound is None else base + found.bound
    if bound is None or bound > before:
        answer = master.maximize(last, inf if found.bound is None else found.bound)
        clock.lap("round")
        if answer is not None:
            place_solution(ledger, question, answer)
            clock.lap("place")
    if ledger.objective <= before:
        ledger.undo.rollback(mark)
    return RepackResult(before, ledger.objective, bound, found.configurations, found.rounds, clock.seconds)


class _PhaseTimes:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.seconds: dict[str, float] = {}

    def lap(self, phase: str) -> float:
        """End a phase; returns its duration."""
        began, self.now = self.now, time.monotonic()
        self.seconds[phase] = self.now - began
        return self.seconds[phase]


def place_solution(ledger: Ledger, question: RepackProblem, answer: MasterSolution) -> None:
    """Place the jobs of an answer on the nodes from which the jobs of the question were lifted."""
    wanted = [0] * len(question.items)
    for offer, jobs in zip(question.offers, answer.jobs, strict=True):
        wanted[offer.item] += jobs * offer.replicas
    sites: list[list[ReplicaSite]] = [[] for _ in question.items]
    for node, items in sorted(_items_by_node(question, answer, wanted).items()):
        for item, site in _take(ledger, question, node, items):
            sites[item].append(site)
    left = [iter(each) for each in sites]
    for offer, jobs in zip(question.offers, answer.jobs, strict=True):
        _commit_jobs(
            ledger,
            offer.job_class,
            offer.options,
            list(islice(left[offer.item], jobs * offer.replicas)),
        )


def _commit_jobs(ledger: Ledger, index: int, options: tuple[int, ...], sites: list[ReplicaSite]) -> None:
    """Form jobs from sites; all sites of one job are on the nodes of one option."""
    job_class = ledger.problem.classes[index]
    for position in options:
        option = job_class.options[position]
        there = [site for site in sites if ledger.group_of[site.node] in option.groups]
        ledger.settle(index, option, there, jobs=len(there) // job_class.minimum)


def _items_by_node(
    question: RepackProblem, answer: MasterSolution, wanted: list[int]
) -> dict[int, list[int]]:
    """Items by node: contents assigned to nodes in order, places swapped, unused places left out."""
    filled: dict[int, list[int]] = {}
    free = [iter(node_class.nodes) for node_class in question.node_classes]
    for configuration, count in answer.nodes:
        for _ in range(count):
            node = next(free[configuration.node_class])
            filled[node] = [item for item, number in configuration.contents for _ in range(number)]
    holders: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for node, items in sorted(filled.items()):
        for position, item in enumerate(items):
            holders[item].append((node, position))
    for giver, taker, count in answer.swaps:
        for _ in range(count):
            node, position = holders[giver].pop()
            filled[node][position] = taker
            holders[taker].append((node, position))
    for item, places in holders.items():
        for node, position in places[wanted[item] :]:
            filled[node][position] = -1
    return {node: [item for item in items if item >= 0] for node, items in filled.items()}


def _take(
    ledger: Ledger, question: RepackProblem, node: int, items: list[int]
) -> list[tuple[int, ReplicaSite]]:
    """Take sites for items on one node: whole GPUs first, then items without GPUs, then packed shares."""
    taken: list[tuple[int, ReplicaSite]] = []
    shapes = [question.items[item].shape for item in items]
    order = sorted(range(len(items)), key=lambda each: (-shapes[each].gpus, each))
    shares = [each for each in order if shapes[each].gpu_milli]
    for each in order:
        if not shapes[each].gpu_milli:
            taker = question.items[items[each]].taker
            taken.append((items[each], ledger.take_site_on(taker, node)))
    for each, gpu in _gpus(
        ledger.capacity.gpu_free[node].tolist(),
        {each: shapes[each].gpu_milli for each in shares},
        question.params.packing_steps,
    ):
        site = ReplicaSite(node, (gpu,))
        ledger.sites.take(question.items[items[each]].taker, site)
        taken.append((items[each], site))
    return taken


def _gpus(free: list[int], shares: dict[int, int], max_steps: int) -> Iterator[tuple[int, int]]:
    """
    (share, GPU) for shares, in thousandths by number, on GPUs with `free` thousandths each.

    A packing exists, since the contents were packed before. If the search for it gives up, some are left out.
    """
    if (gpus := pack_shares(list(shares.values()), free, max_steps)) is not None:
        yield from zip(shares, gpus, strict=True)
        return
    for share, milli in shares.items():
        room = [(left, gpu) for gpu, left in enumerate(free) if left >= milli]
        if room:
            gpu = min(room)[1]
            free[gpu] -= milli
            yield share, gpu
