"""Place an answer of the master on the nodes of a ledger: GPUs for replicas, places for jobs."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from gpuplan.solvers.improve.column_generation.bin_packing import pack_shares
from gpuplan.solvers.state.assignment import ReplicaSite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.solvers.improve.column_generation.master import MasterSolution
    from gpuplan.solvers.improve.column_generation.subproblem import RepackProblem
    from gpuplan.solvers.state.ledger import Ledger


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
        ledger.take_site(question.items[items[each]].taker, site)
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
