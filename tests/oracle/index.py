"""
Columns of the plain (job, node, GPU, MIG placement) model: every decision spelled out.

    placed[c,j]          job j is placed as class c says: started, moved or grown
    on[c,j,m]            its new replicas are on GPU model m
    further[c,j,m,p]     those beyond the fewest, of which each brings as much as part p says
    replicas[c,j,n]      new replicas on node n
    whole[c,j,n,g]       those that hold GPU g wholly;   share[c,j,n,g]  those that hold a share of it
    slice[c,j,n,g,π,a]   those that hold a MIG instance of profile π at memory slice a
    stop[v], shrink[v]   incumbent v waits again, or runs on with fewer replicas
    gives[v,k]           it gives up its replica k while it runs on
    fewer[v,p]           those it gives up, of which each costs as much as part p says
    off[v]               those it gives up are all that it had on nodes that take nothing new
    present[e,l,d]       job e has a replica in domain d of level l, where that matters
    held[n,g]            a job holds the GPU as a GPU;  cut[n,g]  it is shared
    switched[n,g]        the GPU is switched to MIG mode
    open[n], close[n]    a node of a pool is added, or removed
    spill[r,q]           what queue q uses of resource r beyond what it keeps from lending
    spill[r,q,ρ]         the same, had the victims of view ρ stayed, and only what it binds come or moved
    missing[i]           whole GPUs missing from guarantee i
    meet[n,i]            jobs that interfere come to share node n
    blocks[n]            free blocks of the reference size

All are integers ≥ 0. Upper bounds are so wide that every target, legal or not, has its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import Level
from gpuplan.models.eligibility.preemption_order import victim_views
from gpuplan.models.formulation.structure.replica_types import value_tiers
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.structure.replica_types import ValueTier
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.models.problem.problem import MigGpu, Problem

SLICES: Final = 8
"""Memory slices of the largest GPU."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One job of one class: new replicas that may be placed."""

    index: int
    """Of the class."""
    name: str
    job_class: JobClass

    @property
    def key(self) -> tuple[int, str]:
        """What its columns are named after."""
        return self.index, self.name

    @property
    def most(self) -> int:
        """More than its columns on one node ever count: placed twice, with a replica too many."""
        return 2 * (self.job_class.maximum + 2)


class ReferenceIndex:
    """Indices and bounds of all columns."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.upper: list[int] = []
        self.index: dict[Hashable, int] = {}
        self.further: dict[Hashable, tuple[ValueTier, ...]] = {}
        """By class, job and GPU model, where further replicas bring unequal points."""
        self.fewer: dict[int, tuple[ValueTier, ...]] = {}
        """By incumbent, where the replicas that it may give up cost unequal points."""
        self.candidates = tuple(
            Candidate(index, name, job_class)
            for index, job_class in enumerate(problem.classes)
            for name in job_class.jobs
        )
        self.model_of = {node: group.gpu_model for group in problem.groups for node in group.nodes}
        self.group_of = {node: index for index, group in enumerate(problem.groups) for node in group.nodes}
        self.mig_gpus: dict[tuple[int, int], MigGpu] = {
            (node, gpu.index): gpu for node, free in enumerate(problem.nodes) for gpu in free.mig
        }
        self._add_nodes()
        for candidate in self.candidates:
            self._add_candidate(candidate)
        for index, incumbent in enumerate(problem.incumbents):
            self._add_incumbent(index, incumbent)
        self._add_presence()
        self._add_terms()

    def __getitem__(self, key: Hashable) -> int:
        """Column of a key."""
        return self.index[key]

    def _add(self, key: Hashable, upper: int) -> None:
        if key not in self.index:
            self.index[key] = self._new(upper)

    def _new(self, upper: int) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1

    def _add_nodes(self) -> None:
        for node, gpu in self.gpus():
            for what in ("held", "cut", "switched"):
                self._add((what, node, gpu), 1)
        for option in self.problem.pools:
            for node in option.closable:
                if self.problem.nodes[node].closing_points is not None:
                    self._add(("close", node), 1)
        for node in self.optional:
            self._add(("open", node), 1)

    def _add_candidate(self, candidate: Candidate) -> None:
        shape = candidate.job_class.shape
        self._add(("placed", *candidate.key), 2)
        for option in candidate.job_class.options:
            self._add(("on", *candidate.key, option.gpu_model), 1)
            if option.further:
                self.further[*candidate.key, option.gpu_model] = value_tiers(option.further, 2, self._new)
            for node in self.nodes(option):
                self._add(("replicas", *candidate.key, node), candidate.most)
                for gpu in range(len(self.problem.nodes[node].gpus)):
                    if shape.gpus:
                        self._add(("whole", *candidate.key, node, gpu), candidate.most)
                    if shape.gpu_milli:
                        self._add(("share", *candidate.key, node, gpu), candidate.most)
                    for profile, _ in shape.mig:
                        for start in range(SLICES):
                            self._add(("slice", *candidate.key, node, gpu, profile, start), candidate.most)

    def _add_incumbent(self, index: int, incumbent: Incumbent) -> None:
        self._add(("stop", index), 1)
        self._add(("shrink", index), 1)
        self._add(("off", index), 1)
        for position in range(len(incumbent.holds)):
            self._add(("gives", index, position), 1)
        if incumbent.scaled:
            self.fewer[index] = value_tiers(incumbent.shrink_points, 1, self._new)

    def _add_presence(self) -> None:
        """Where a required, preferred or forbidden domain, or interference, depends on where jobs are."""
        for candidate in self.candidates:
            for level in self.levels(candidate):
                for node in self.nodes_of(candidate):
                    self._add(("present", *candidate.key, level, self.domain(level, node)), 1)
        for standing in self.problem.standing:
            for level in self.meeting_levels:
                for node in standing.nodes:
                    self._add(("present", "standing", standing.job, level, self.domain(level, node)), 1)

    def levels(self, candidate: Candidate) -> tuple[Level, ...]:
        """Levels at which it matters where a candidate is."""
        together = candidate.job_class.together
        own = {together.required, together.preferred} - {None}
        return tuple(sorted({level for level in own if level} | set(self.meeting_levels)))

    @cached_property
    def meeting_levels(self) -> tuple[Level, ...]:
        """Levels at which jobs may not, or would rather not, meet."""
        problem = self.problem
        avoids = (*(each.avoids for each in problem.classes), *(each.avoids for each in problem.standing))
        avoided = {level for pairs in avoids for _, level in pairs}
        return tuple(sorted(avoided | ({Level.NODE} if problem.charges.interference else set())))

    def _add_terms(self) -> None:
        problem = self.problem
        asked = 2 * sum(
            (each.job_class.maximum + 2) * sum(each.job_class.shape.quota) for each in self.candidates
        )
        for budget in problem.budgets:
            for queue in budget.leaves_first:
                for view in ((), *((view,) for view in range(len(self.views)))):
                    self._add(("spill", budget.resource, queue, *view), asked + sum(budget.own))
        for position, guarantee in enumerate(problem.guarantees):
            self._add(("missing", position), -(-max(0, guarantee.owed) // MILLI))
        for position in range(len(problem.charges.interference)):
            for node in range(len(problem.nodes)):
                self._add(("meet", node, position), 1)
        if problem.charges.fragmentation:
            for node, free in enumerate(problem.nodes):
                self._add(("blocks", node), len(free.gpus) // problem.charges.reference_gpus)

    @cached_property
    def views(self) -> tuple[VictimView, ...]:
        """Sets of victims that classes may follow none of."""
        return victim_views(self.problem.incumbents)

    @cached_property
    def optional(self) -> frozenset[int]:
        """Nodes that exist only if they are added."""
        return frozenset(
            node for group in self.problem.groups if group.pool is not None for node in group.nodes
        )

    def gpus(self) -> Iterator[tuple[int, int]]:
        """(node, GPU index) of every GPU."""
        for node, free in enumerate(self.problem.nodes):
            for gpu in range(len(free.gpus)):
                yield node, gpu

    def nodes(self, option: Option) -> list[int]:
        """Nodes of an option."""
        return [node for group in option.groups for node in self.problem.groups[group].nodes]

    def nodes_of(self, candidate: Candidate) -> list[int]:
        """Nodes a candidate may use."""
        return sorted({node for option in candidate.job_class.options for node in self.nodes(option)})

    def domain(self, level: Level, node: int) -> int:
        """Domain of a node; a node is its own at level node."""
        return node if level is Level.NODE else self.problem.domain_of(level)[node]
