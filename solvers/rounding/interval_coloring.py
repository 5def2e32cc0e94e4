"""
Interval colouring: which whole GPUs of a node each future reservation gets.

In order of start, each reservation takes GPUs that are free then. A GPU of a running or newly placed job
becomes free once and stays free until the next reservation; the timetable ensures that there are enough.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.gpu_selection import choose_gpus

if TYPE_CHECKING:
    from gpuplan.solvers.state.ledger import Ledger


def color_intervals(ledger: Ledger) -> dict[int, tuple[ReplicaSite, ...]]:
    """The sites of every reservation, by number, with the indices of all GPUs."""
    found: dict[int, list[ReplicaSite]] = {number: [] for number in ledger.booked}
    free_from: dict[int, list[int]] = {}
    classes = ledger.problem.classes
    on_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, booked in sorted(ledger.booked.items(), key=lambda each: (each[1].slot, each[0])):
        for position, site in enumerate(booked.sites):
            on_node[site.node].append((number, position))
    chosen: dict[tuple[int, int], ReplicaSite] = {}
    for node, replicas in on_node.items():
        free_from[node] = ledger.timeline.free_from(node) if ledger.timeline is not None else []
        for number, position in replicas:
            booked = ledger.booked[number]
            job_class, site = classes[booked.job_class], booked.sites[position]
            if job_class.shape.gpus:
                end = job_class.options[booked.option].ends[booked.slot]
                free = [gpu for gpu, slot in enumerate(free_from[node]) if slot <= booked.slot]
                groups = ledger.problem.nodes[node].gpu_groups
                site = ReplicaSite(node, choose_gpus(free, groups, job_class.shape.gpus))
                for gpu in site.gpus:
                    free_from[node][gpu] = end
            chosen[number, position] = site
    for number, booked in ledger.booked.items():
        found[number] = [chosen[number, position] for position in range(len(booked.sites))]
    return {number: tuple(sites) for number, sites in found.items()}
