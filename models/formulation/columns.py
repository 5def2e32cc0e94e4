"""
Columns of the block model: its decision variables, by name.

    replicas[j,t]  replicas of class j on node group t
    gangs[j,m]     jobs of class j on GPU model m, for classes of more than one replica
    opened[t]      wholly free GPUs of group t that are cut into shares
    spill[r,q]     what queue q uses of resource r beyond what it keeps from lending

All are integers ≥ 0. A class of single replicas needs no gangs: its replicas are its jobs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.models.formulation.capacity import GroupCapacity
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.models.formulation.rows import Ints
    from planner.models.placement import Placement
    from planner.models.problem import JobClass, Option, Problem


@dataclass(frozen=True, slots=True)
class GroupColumns:
    """The replicas columns of one group and what each of their replicas takes, position by position."""

    columns: Ints
    gpus: Ints
    """Whole GPUs."""
    milli: Ints
    """Share of one GPU in thousandths."""
    amounts: Ints
    """Shape (columns, resources)."""

    @classmethod
    def of(cls, problem: Problem, members: list[tuple[int, int]]) -> GroupColumns:
        """Arrays for (class, column) pairs."""
        shapes = [problem.classes[index].shape for index, _ in members]
        return cls(
            columns=np.array([column for _, column in members], dtype=np.int64),
            gpus=np.array([shape.gpus for shape in shapes], dtype=np.int64),
            milli=np.array([shape.gpu_milli for shape in shapes], dtype=np.int64),
            amounts=np.array([shape.amounts for shape in shapes], dtype=np.int64),
        )


class Columns:
    """Indices and bounds of all columns of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.capacity = tuple(GroupCapacity(problem, group) for group in range(len(problem.groups)))
        self.upper: list[int] = []
        self.replicas: dict[tuple[int, int], int] = {}
        self.gangs: dict[tuple[int, str | None], int] = {}
        self.opened: dict[int, int] = {}
        self.spill: dict[tuple[str, int], int] = {}
        members: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, job_class, option in problem.options():
            self._add_option(index, job_class, option)
        for (index, group), column in self.replicas.items():
            members[group].append((index, column))
        self.group: dict[int, GroupColumns] = {
            group: GroupColumns.of(problem, pairs) for group, pairs in sorted(members.items())
        }
        """What may be placed on each group that anything fits."""
        for group, placed in self.group.items():
            if placed.milli.any():
                self.opened[group] = self._new(self.capacity[group].whole_gpus)
        for budget in problem.budgets:
            for queue in budget.leaves_first:
                if budget.parent[queue] is not None and budget.kept[queue] > 0:
                    self.spill[budget.resource, queue] = self._new(self._most_milli)

    def _add_option(self, index: int, job_class: JobClass, option: Option) -> None:
        jobs = len(job_class.jobs)
        room = {group: self.capacity[group].room(job_class.shape) for group in option.groups}
        if sum(room.values()) < job_class.minimum:
            return
        for group in option.groups:
            if room[group]:
                column = self._new(min(room[group], jobs * job_class.maximum))
                self.replicas[index, group] = column
        if job_class.maximum > 1:
            self.gangs[index, option.gpu_model] = self._new(
                min(jobs, sum(room.values()) // job_class.minimum)
            )

    def _new(self, upper: int) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1

    @property
    def _most_milli(self) -> int:
        """No queue can use more thousandths of GPUs than run and are asked for."""
        running = sum(max(budget.own, default=0) * len(budget.own) for budget in self.problem.budgets)
        asked = sum(
            len(job_class.jobs) * job_class.maximum * job_class.shape.quota_milli
            for job_class in self.problem.classes
        )
        return running + asked

    def replicas_of(self, index: int, option: Option) -> Iterator[int]:
        """Columns of a class's replicas on an option, in the order of its groups."""
        for group in option.groups:
            if (column := self.replicas.get((index, group))) is not None:
                yield column

    def jobs_of(self, index: int, option: Option) -> Iterator[int]:
        """Columns that sum to the number of jobs of a class placed on an option."""
        if self.problem.classes[index].maximum == 1:
            yield from self.replicas_of(index, option)
        elif (column := self.gangs.get((index, option.gpu_model))) is not None:
            yield column

    def encode(self, placements: Iterable[Placement]) -> Ints:
        """
        Values of all columns at placements of waiting jobs: the inverse of disaggregation.

        Placements of jobs outside the problem, such as running ones, are passed over.
        """
        problem = self.problem
        class_of = {name: index for index, job_class in enumerate(problem.classes) for name in job_class.jobs}
        node_of = {node.name: index for index, node in enumerate(problem.nodes)}
        group_of = {node: index for index, group in enumerate(problem.groups) for node in group.nodes}
        values = np.zeros(len(self.upper), dtype=np.int64)
        fresh: set[tuple[int, int]] = set()
        for placement in placements:
            if (index := class_of.get(placement.job)) is None:
                continue
            job_class = problem.classes[index]
            nodes = [node_of[replica.node] for replica in placement.replicas]
            for node, replica in zip(nodes, placement.replicas, strict=True):
                values[self.replicas[index, group_of[node]]] += 1
                if job_class.shape.gpu_milli:
                    fresh |= {
                        (node, held.index)
                        for held in replica.gpus
                        if problem.nodes[node].gpus[held.index] == MILLI
                    }
            if job_class.maximum > 1:
                model = problem.groups[group_of[nodes[0]]].gpu_model if job_class.shape.quota_milli else None
                values[self.gangs[index, model]] += 1
        for node, _ in fresh:
            values[self.opened[group_of[node]]] += 1
        self._encode_spill(values)
        return values

    def _encode_spill(self, values: Ints) -> None:
        for budget in self.problem.budgets:
            usage = list(budget.own)
            for (index, group), column in self.replicas.items():
                if budget.counts(self.problem.groups[group].gpu_model):
                    job_class = self.problem.classes[index]
                    usage[job_class.queue] += job_class.shape.quota_milli * int(values[column])
            for queue in budget.leaves_first:
                spilled = max(0, usage[queue] - budget.kept[queue])
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += spilled
                if (spill := self.spill.get((budget.resource, queue))) is not None:
                    values[spill] = spilled
