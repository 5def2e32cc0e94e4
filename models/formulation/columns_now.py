"""Columns of what happens in this slot: decision variables but for later starts; see `columns`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.formulation.structure.eviction_patterns import EvictionPatterns
from gpuplan.models.formulation.structure.incumbent_variables import IncumbentColumns
from gpuplan.models.formulation.structure.mig_states import mig_states
from gpuplan.models.formulation.structure.node_classes import NodeClasses
from gpuplan.models.formulation.structure.replica_types import replica_types_of, value_tiers
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.queue import amount_index, is_gpu_model
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Level
    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.rows import Ints, Term
    from gpuplan.models.formulation.structure.replica_types import ReplicaType, ValueTier
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Shape
    from gpuplan.models.problem.problem import Problem


@dataclass(frozen=True, slots=True)
class ReplicaColumns:
    """Columns of replicas and the resources each unit takes, position by position."""

    columns: Ints
    gpus: Ints
    """Whole GPUs."""
    milli: Ints
    """Share of one GPU in thousandths."""
    amounts: Ints
    """Shape (columns, resources)."""

    @classmethod
    def of(cls, members: list[tuple[Shape, int]], resources: int) -> ReplicaColumns:
        """Build the arrays from (shape, column) pairs."""
        shapes = [shape for shape, _ in members]
        return cls(
            columns=np.array([column for _, column in members], dtype=np.int64),
            gpus=np.array([shape.gpus for shape in shapes], dtype=np.int64),
            milli=np.array([shape.gpu_milli for shape in shapes], dtype=np.int64),
            amounts=np.array([shape.amounts for shape in shapes], dtype=np.int64).reshape(
                len(shapes), resources
            ),
        )

    def __add__(self, other: ReplicaColumns) -> ReplicaColumns:
        """Concatenate both."""
        return ReplicaColumns(
            np.append(self.columns, other.columns),
            np.append(self.gpus, other.gpus),
            np.append(self.milli, other.milli),
            np.append(self.amounts, other.amounts, axis=0),
        )


@dataclass(frozen=True, slots=True)
class CountedUsage:
    """What one unit of a column adds to the usage of a queue; negative if it is released."""

    queue: int
    column: int
    amount: int
    taker: JobClass | None = None
    """The class that is placed; None if the usage counts whichever victims stay."""
    victim: Incumbent | None = None
    """The running job that is stopped or shrunk."""

    def counts(self, view: VictimView) -> bool:
        """True if it counts beside the victims of a view, without the classes that may follow one of them."""
        if self.victim is not None:
            return not view.keeps(self.victim)
        return self.taker is None or view.binds(self.taker)

    @property
    def order(self) -> tuple[bool, int, object]:
        """What `counts` depends on."""
        if self.victim is not None:
            return False, self.victim.rank, frozenset(self.victim.claims)
        return True, *((self.taker.rank, self.taker.claim) if self.taker else (0, None))


class ColumnsNow:
    """Indices and bounds of the columns of this slot."""

    def __init__(self, problem: Problem, params: FormulationParams = FormulationParams()) -> None:
        self.problem, self.params = problem, params
        self.kinds = replica_types_of(problem)
        self.eviction_patterns = EvictionPatterns(problem, params)
        self.upper: list[int] = []
        self.jobs: dict[tuple[int, int], int] = {}
        """By (class, position of the tier)."""
        self.replicas: dict[tuple[int, int], int] = {}
        """By (replica type, node group)."""
        self.located: dict[tuple[int, int], int] = {}
        """By (replica type, node class)."""
        self.whole: dict[tuple[int, int, int], int] = {}
        """By (replica type, position of the tier, domain of the required level)."""
        self.touched: dict[tuple[int, int], int] = {}
        """By (replica type, domain of the preferred level)."""
        self.further: dict[tuple[int, int], tuple[ValueTier, ...]] = {}
        """By (class, position of the tier), where further replicas have unequal points."""
        # Columns are numbered as they are made. Of equal answers a solver gives the one that its order of
        # columns leads to, so another order here means other plans, as good and with other ids.
        self.fates = IncumbentColumns(problem, self.eviction_patterns, self._new)
        self.out, self.stop, self.move = self.fates.out, self.fates.stop, self.fates.move
        self.shrink, self.resized = self.fates.shrink, self.fates.resized
        self.cells = NodeClasses(problem, self.kinds, self.fates, self._new)
        self._members: dict[int, list[tuple[Shape, int]]] = defaultdict(list)
        self._located: dict[int, list[tuple[Shape, int]]] = defaultdict(list)
        for index, kind in enumerate(self.kinds):
            self._add_kind(index, kind)
        resources = len(problem.resources)
        self._no_columns = ReplicaColumns.of([], resources)
        self._member_arrays = {at: ReplicaColumns.of(pairs, resources) for at, pairs in self._members.items()}
        self._located_arrays = {
            cell: ReplicaColumns.of(pairs, resources) for cell, pairs in self._located.items()
        }
        self.blocks: dict[int, dict[int, int]] = defaultdict(dict)
        """By node class and number of whole GPUs, where a node group has several node classes."""
        self.opened: dict[int, int] = {}
        """By node class."""
        self._add_blocks()
        self.mig = tuple(mig_states(problem, self.cells, self.fates, self._new))
        self._switched = {state.cell: state.switched for state in self.mig if state.switched is not None}
        self.spill: dict[tuple[str, int], int] = {}
        self.fresh: dict[tuple[str, int], int] = {}
        """By resource and queue, where the usage of running jobs exceeds the limit."""
        self.passing: dict[tuple[str, int], tuple[int, int]] = {}
        """(within, passed) by resource and queue that has `spill` and is below a queue with `fresh`."""
        self.fresh_power: dict[int, int] = {}
        """By power cap, where running jobs draw more than the cap."""
        self.missing: dict[int, int] = {}
        self._add_queues()
        self._usage: dict[str, list[list[Term]]] = {}

    def _new(self, upper: int) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1

    def _add_kind(self, index: int, kind: ReplicaType) -> None:
        jobs = sum(len(self.problem.classes[member].jobs) for member in kind.classes)
        for tier, groups in enumerate(kind.groups):
            room = {
                cell: self.cells.room(cell, kind.shape)
                if kind.ignores_domains
                else self.cells.room_for(cell, kind)
                for group in groups
                for cell in self.cells.of_group[group]
            }
            fit = sum(room.values()) // kind.minimum
            gangs: dict[int, int] = {}
            if (required := kind.together.required) is not None:
                gangs = self._gangs_by_domain(kind, required, room)
                room = {
                    cell: most for cell, most in room.items() if self.cells.domain(cell, required) in gangs
                }
                fit = sum(gangs.values())
            if fit == 0:
                continue
            for group in groups:
                cells = self.cells.of_group[group]
                if kind.ignores_domains:
                    if most := min(sum(room[cell] for cell in cells), jobs * kind.maximum):
                        column = self.replicas[index, group] = self._new(most)
                        self._members[group].append((kind.shape, column))
                    continue
                for cell in cells:
                    if most := min(room.get(cell, 0), jobs * kind.maximum):
                        column = self.located[index, cell] = self._new(most)
                        self._located[cell].append((kind.shape, column))
            for member in kind.classes:
                self.jobs[member, tier] = self._new(min(fit, len(self.problem.classes[member].jobs)))
                further = self.problem.classes[member].options[kind.tiers[tier][0]].further
                if further:
                    self.further[member, tier] = value_tiers(further, self.upper[-1], self._new)
            for domain, most in gangs.items():
                self.whole[index, tier, domain] = self._new(min(jobs, most))
            self._add_touched(index, kind, tier, jobs)

    def _gangs_by_domain(self, kind: ReplicaType, level: Level, room: dict[int, int]) -> dict[int, int]:
        """Gangs that each domain could hold if it were empty; domains too small for one gang are left out."""
        replicas: dict[int, int] = defaultdict(int)
        for cell, most in room.items():
            replicas[self.cells.domain(cell, level)] += most
        return {
            domain: most // kind.minimum for domain, most in sorted(replicas.items()) if most >= kind.minimum
        }

    def _add_touched(self, index: int, kind: ReplicaType, tier: int, jobs: int) -> None:
        cells = [cell for cell, _ in self.located_of(index, tier)]
        if (preferred := kind.together.preferred) is not None:
            for domain in sorted({self.cells.domain(cell, preferred) for cell in cells}):
                if (index, domain) not in self.touched:
                    self.touched[index, domain] = self._new(jobs)

    def _add_blocks(self) -> None:
        for group, cells in self.cells.of_group.items():
            members = self.members(group)
            # In a group of one node class the replicas are on it anyway: nothing is to be assigned.
            if len(cells) > 1:
                for cell in cells:
                    for size in sorted({*members.gpus[members.gpus > 0].tolist()}):
                        self.blocks[cell][size] = self._new(self._most_blocks(cell, size))
            for cell in cells:
                if members.milli.any() or self.columns_of_node_class(cell).milli.any():
                    self.opened[cell] = self._new(self._most_blocks(cell, 1))

    def _most_blocks(self, cell: int, size: int) -> int:
        """Upper bound on the blocks of wholly free GPUs that a node class can offer."""
        found = self.cells.all[cell]
        constant, columns, coefficients = self.cells.supply(cell, self.cells.states[found.group].blocks(size))
        upper = np.array([self.upper[column] for column in columns.tolist()], dtype=np.int64)
        return constant + int((np.maximum(0, coefficients) * upper).sum())

    def _add_queues(self) -> None:
        problem = self.problem
        for budget in problem.budgets:
            for queue in budget.leaves_first:
                if budget.parent[queue] is not None and budget.kept[queue] > 0:
                    self.spill[budget.resource, queue] = self._new(self.most_of(budget.resource))
                if budget.firm[queue] != budget.limit[queue]:
                    self.fresh[budget.resource, queue] = self._new(1)
            # From the root down: what a queue passes up matters only below a queue that is above its limit.
            below: set[int] = set()
            for queue in reversed(budget.leaves_first):
                parent = budget.parent[queue]
                if parent in below or (parent is not None and (budget.resource, parent) in self.fresh):
                    below.add(queue)
                    if (budget.resource, queue) in self.spill:
                        self.passing[budget.resource, queue] = self._new(1), self._new(1)
        for index, cap in enumerate(problem.power_caps):
            if cap.left < 0:
                self.fresh_power[index] = self._new(1)
        for index, guarantee in enumerate(problem.guarantees):
            if guarantee.owed > 0:
                self.missing[index] = self._new(-(-guarantee.owed // MILLI))

    def most_of(self, resource: str) -> int:
        """Upper bound on the usage of a resource by any queue: that of all running and waiting jobs."""
        unit = amount_index(resource)
        running = sum(sum(each.own) for each in self.problem.budgets if amount_index(each.resource) == unit)
        asked = sum(
            len(job_class.jobs) * job_class.maximum * job_class.shape.quota[unit]
            for job_class in self.problem.classes
        )
        return running + asked

    def placed(self, group: int) -> list[tuple[Shape, int]]:
        """(shape, column) of the replicas on a node group, for replica types without a locality rule."""
        return self._members.get(group, [])

    def shapes_on_node_class(self, cell: int) -> list[tuple[Shape, int]]:
        """(shape, column) of the replicas on a node class, for replica types with a locality rule."""
        return self._located.get(cell, [])

    def members(self, group: int) -> ReplicaColumns:
        """Result of `placed`, as arrays."""
        return self._member_arrays.get(group, self._no_columns)

    def columns_of_node_class(self, cell: int) -> ReplicaColumns:
        """Result of `shapes_on_node_class`, as arrays."""
        return self._located_arrays.get(cell, self._no_columns)

    def block_users(self, cell: int) -> tuple[Ints, Ints]:
        """Columns that take whole GPUs on a node class, and the GPUs that a unit of each takes on a node."""
        group, located = self.cells.all[cell].group, self.columns_of_node_class(cell)
        if len(self.cells.of_group[group]) == 1:
            ordinary = self.members(group)
            columns, sizes = ordinary.columns, ordinary.gpus
        else:
            pairs = self.blocks[cell]
            columns = np.array(list(pairs.values()), dtype=np.int64)
            sizes = np.array(list(pairs), dtype=np.int64)
        columns, sizes = np.append(columns, located.columns), np.append(sizes, located.gpus)
        return columns[sizes > 0], sizes[sizes > 0]

    def single_gpus(self, cell: int) -> list[int]:
        """Columns of which a unit takes one wholly free GPU and cuts it into shares or MIG instances."""
        found = (self.opened.get(cell), self._switched.get(cell))
        return [column for column in found if column is not None]

    def tiers(self) -> Iterator[tuple[int, ReplicaType, int]]:
        """Every (index of a replica type, replica type, position of a tier) that has columns."""
        for index, kind in enumerate(self.kinds):
            for tier in range(len(kind.tiers)):
                if (kind.classes[0], tier) in self.jobs:
                    yield index, kind, tier

    def replicas_of(self, index: int, tier: int) -> Iterator[tuple[int, int]]:
        """(node group, column) of the replicas of a type on a tier, in the order of its groups."""
        kind = self.kinds[index]
        for group in kind.groups[tier]:
            if (column := self.replicas.get((index, group))) is not None:
                yield group, column
        for cell, column in self.located_of(index, tier):
            yield self.cells.all[cell].group, column

    def located_of(self, index: int, tier: int) -> Iterator[tuple[int, int]]:
        """(node class, column) of the replicas on a tier, for a replica type with a locality rule."""
        kind = self.kinds[index]
        for group in kind.groups[tier]:
            for cell in self.cells.of_group[group]:
                if (column := self.located.get((index, cell))) is not None:
                    yield cell, column

    @cached_property
    def kind_of(self) -> dict[int, ReplicaType]:
        """The replica type that a column of replicas counts."""
        replicas = {column: self.kinds[kind] for (kind, _), column in self.replicas.items()}
        return replicas | {column: self.kinds[kind] for (kind, _), column in self.located.items()}

    @cached_property
    def newcomers(self) -> frozenset[int]:
        """Columns that count jobs or replicas that start or are added."""
        found = set()
        for index, kind, tier in self.tiers():
            new = [each for each in kind.classes if self.problem.classes[each].role is not ClassRole.MOVE]
            found |= {self.jobs[member, tier] for member in new}
            # Replicas of several classes do not count against a quota by themselves: the columns of jobs do.
            if new and len(kind.classes) == 1:
                found |= {column for _, column in self.replicas_of(index, tier)}
        return frozenset(found)

    def usage(self, resource: str) -> list[list[Term]]:
        """
        By queue, (column, amount of the resource) of all usage that counts against a quota; negative if it
        is released.
        """
        if resource not in self._usage:
            by_queue: list[list[Term]] = [[] for _ in self.problem.queues]
            for each in self.counted(resource):
                by_queue[each.queue].append((each.column, each.amount))
            self._usage[resource] = by_queue
        return self._usage[resource]

    def counted(self, resource: str) -> Iterator[CountedUsage]:
        """
        Each column with usage that counts against a quota of a resource, or releases some.

        A tier of several GPU models counts only against the quota of all models: `replica_types_of` ensures
        that no quota of a single model binds such a class.
        """
        for index, kind, tier in self.tiers():
            options = [self.problem.classes[kind.classes[0]].options[option] for option in kind.tiers[tier]]
            amount = kind.shape.quota_on(options[0].gpu_model if len(options) == 1 else None, resource)
            if not amount:
                continue
            if kind.rigid:
                for member in kind.classes:
                    job_class = self.problem.classes[member]
                    taker = None if self._counts_as_before(job_class, resource) else job_class
                    yield CountedUsage(
                        job_class.queue, self.jobs[member, tier], amount * kind.maximum, taker=taker
                    )
            else:
                first = self.problem.classes[kind.classes[0]]
                taker = None if self._counts_as_before(first, resource) else first
                for _, column in self.replicas_of(index, tier):
                    yield CountedUsage(first.queue, column, amount, taker=taker)
        for v, incumbent in enumerate(self.problem.incumbents):
            if amount := incumbent.quota_of(resource):
                whole = -amount * len(incumbent.holds)
                for column in self.fates.stops(v):
                    yield CountedUsage(incumbent.queue, column, whole, victim=incumbent)
                if v in self.fates.move:
                    yield CountedUsage(incumbent.queue, self.fates.move[v], whole)
                if v in self.shrink:
                    yield CountedUsage(incumbent.queue, self.shrink[v], -amount, victim=incumbent)

    def _counts_as_before(self, job_class: JobClass, resource: str) -> bool:
        """True for migrations, which count where they counted before."""
        if job_class.role is not ClassRole.MOVE or job_class.incumbent is None:
            return False
        return (
            not is_gpu_model(resource) or self.problem.incumbents[job_class.incumbent].gpu_model == resource
        )

    @cached_property
    def growth_of(self) -> dict[int, list[int]]:
        """Columns of jobs that grow, by running job."""
        found: dict[int, list[int]] = defaultdict(list)
        for (member, _), column in self.jobs.items():
            job_class = self.problem.classes[member]
            if job_class.role is ClassRole.GROW and job_class.incumbent is not None:
                found[job_class.incumbent].append(column)
        return found
