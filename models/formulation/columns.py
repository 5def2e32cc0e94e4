"""
Columns of the model: its decision variables, by name.

    jobs[j,k]        jobs of class j on tier k, a GPU model or several of equal value
    replicas[i,t]    replicas of type i on the nodes of group t
    located[i,c]     the same by node class, for replica types with a locality rule
    further[j,k,p]   replicas beyond the minimum that have the points of part p
    blocks[c,s]      replicas of s GPUs, of the other replica types, on node class c
    opened[c]        wholly free GPUs of node class c that are cut into shares
    out[o]           eviction pattern o is used
    stop, move[v]    running job v is preempted, or migrates
    shrink[v]        replicas it gives up;  resized[v]  whether it gives up any
    given[v,n]       of these, replicas on crowded node n
    freed[n,g]       GPU g of crowded node n is wholly free, since all jobs that shared it have left
    emptied[n]       all running jobs of crowded node n migrate
    open[p], close[p]  nodes of pools, see `node_classes.PoolExpansion` and `PoolReduction`
    instance[m,π,a]  newly used MIG instances of profile π at slice a on the GPUs of state m
    whole[i,k,d]     gangs of type i that lie wholly in domain d, which has room for at least one
    touched[i,d]     gangs of type i that have replicas in domain d
    spill[r,q]       usage of resource r in queue q beyond what q does not lend
    fresh[r,q]       a new job counts at queue q, which was above its limit
    within[r,q]      queue q uses no more than what it does not lend
    passed[r,q]      a new job of queue q counts above q as well, since q uses more than what it does not lend
    fresh[h]         a new job is in rack h, which was above its power cap
    missing[g]       whole GPUs missing from guarantee g
    phantom[c]       free blocks of the reference size;  waste[c]  free GPUs outside of such blocks
    later, flow      starts in later slots, see `time_variables.LaterStarts`

All are integers ≥ 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.columns_now import ColumnsNow
from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.formulation.time_indexed.time_variables import LaterStarts

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem


class Columns(ColumnsNow):
    """Indices and bounds of all columns of one problem."""

    def __init__(self, problem: Problem, params: FormulationParams = FormulationParams()) -> None:
        super().__init__(problem, params)
        self.later = LaterStarts(self, self._new)
        self.phantom: dict[int, int] = {}
        self.waste: dict[int, int] = {}
        if problem.charges.fragmentation:
            self._add_fragmentation()

    def _add_fragmentation(self) -> None:
        size = self.problem.charges.reference_gpus
        for cell, found in enumerate(self.cells.all):
            if not self.problem.nodes[found.nodes[0]].opens:
                self.phantom[cell] = self._new(self._most_blocks(cell, size))
                self.waste[cell] = self._new(self._most_blocks(cell, 1))
