"""
Columns of the block model: its decision variables, by name.

    jobs[j,k]      jobs of class j on tier k, a GPU model or several that pay alike
    replicas[i,t]  replicas of kind i on node group t
    opened[t]      wholly free GPUs of group t that are cut into shares
    spill[r,q]     what queue q uses of resource r beyond what it keeps from lending

All are integers ≥ 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.models.formulation.capacity import GroupCapacity
from planner.models.formulation.kinds import kinds_of
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.models.formulation.kinds import Kind
    from planner.models.formulation.rows import Ints
    from planner.models.placement import Placement
    from planner.models.problem import Problem, Shape


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
    def of(cls, members: list[tuple[Shape, int]]) -> GroupColumns:
        """Arrays for (shape, column) pairs."""
        shapes = [shape for shape, _ in members]
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
        self.kinds = kinds_of(problem)
        self.upper: list[int] = []
        self.jobs: dict[tuple[int, int], int] = {}
        """By (class, position of the tier)."""
        self.replicas: dict[tuple[int, int], int] = {}
        """By (kind, group)."""
        self.opened: dict[int, int] = {}
        self.spill: dict[tuple[str, int], int] = {}
        members: dict[int, list[tuple[Shape, int]]] = defaultdict(list)
        for index, kind in enumerate(self.kinds):
            self._add_kind(index, kind)
        for (index, group), column in self.replicas.items():
            members[group].append((self.kinds[index].shape, column))
        self.group: dict[int, GroupColumns] = {
            group: GroupColumns.of(pairs) for group, pairs in sorted(members.items())
        }
        """What may be placed on each group that anything fits."""
        for group, placed in self.group.items():
            if placed.milli.any():
                self.opened[group] = self._new(self.capacity[group].whole_gpus)
        for budget in problem.budgets:
            for queue in budget.leaves_first:
                if budget.parent[queue] is not None and budget.kept[queue] > 0:
                    self.spill[budget.resource, queue] = self._new(self._most_milli)

    def _add_kind(self, index: int, kind: Kind) -> None:
        jobs = sum(len(self.problem.classes[member].jobs) for member in kind.classes)
        for tier, groups in enumerate(kind.groups):
            room = {group: self.capacity[group].room(kind.shape) for group in groups}
            fit = sum(room.values()) // kind.minimum
            if fit == 0:
                continue
            for group in groups:
                if room[group]:
                    self.replicas[index, group] = self._new(min(room[group], jobs * kind.maximum))
            for member in kind.classes:
                self.jobs[member, tier] = self._new(min(fit, len(self.problem.classes[member].jobs)))

    def _new(self, upper: int) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1

    @property
    def _most_milli(self) -> int:
        """No queue can use more thousandths of GPUs than run and are asked for."""
        running = sum(sum(budget.own) for budget in self.problem.budgets)
        asked = sum(
            len(job_class.jobs) * job_class.maximum * job_class.shape.quota_milli
            for job_class in self.problem.classes
        )
        return running + asked

    def tiers(self) -> Iterator[tuple[int, Kind, int]]:
        """Every (kind, its index, position of a tier) that has columns."""
        for index, kind in enumerate(self.kinds):
            for tier in range(len(kind.tiers)):
                if (kind.classes[0], tier) in self.jobs:
                    yield index, kind, tier

    def replicas_of(self, index: int, tier: int) -> Iterator[tuple[int, int]]:
        """(group, column) of a kind's replicas on a tier, in the order of its groups."""
        for group in self.kinds[index].groups[tier]:
            if (column := self.replicas.get((index, group))) is not None:
                yield group, column

    def encode(self, placements: Iterable[Placement]) -> Ints:
        """
        Values of all columns at placements of waiting jobs: the inverse of disaggregation.

        Placements of jobs outside the problem, such as running ones, are passed over.
        """
        problem = self.problem
        class_of = {name: index for index, job_class in enumerate(problem.classes) for name in job_class.jobs}
        node_of = {node.name: index for index, node in enumerate(problem.nodes)}
        group_of = {node: index for index, group in enumerate(problem.groups) for node in group.nodes}
        kind_of = {member: index for index, kind in enumerate(self.kinds) for member in kind.classes}
        tier_of = {
            (index, group): tier
            for index, kind in enumerate(self.kinds)
            for tier, groups in enumerate(kind.groups)
            for group in groups
        }
        values = np.zeros(len(self.upper), dtype=np.int64)
        fresh: set[tuple[int, int]] = set()
        for placement in placements:
            if (member := class_of.get(placement.job)) is None:
                continue
            kind = kind_of[member]
            nodes = [node_of[replica.node] for replica in placement.replicas]
            values[self.jobs[member, tier_of[kind, group_of[nodes[0]]]]] += 1
            for node, replica in zip(nodes, placement.replicas, strict=True):
                values[self.replicas[kind, group_of[node]]] += 1
                if self.kinds[kind].shape.gpu_milli:
                    fresh |= {
                        (node, held.index)
                        for held in replica.gpus
                        if problem.nodes[node].gpus[held.index] == MILLI
                    }
        for node, _ in fresh:
            values[self.opened[group_of[node]]] += 1
        self._encode_spill(values)
        return values

    def _encode_spill(self, values: Ints) -> None:
        for budget in self.problem.budgets:
            usage = list(budget.own)
            for queue, column, milli in self.usage(budget.resource):
                usage[queue] += milli * int(values[column])
            for queue in budget.leaves_first:
                spilled = max(0, usage[queue] - budget.kept[queue])
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += spilled
                if (spill := self.spill.get((budget.resource, queue))) is not None:
                    values[spill] = spilled

    def usage(self, resource: str) -> Iterator[tuple[int, int, int]]:
        """
        (queue, column, thousandths of GPUs) of everything that counts against a quota.

        A tier of several GPU models counts only against the quota of all: `kinds` sees to it that no quota of
        one model binds such a class.
        """
        for index, kind, tier in self.tiers():
            milli = kind.shape.quota_milli
            options = [self.problem.classes[kind.classes[0]].options[option] for option in kind.tiers[tier]]
            counted = not resource or (len(options) == 1 and options[0].gpu_model == resource)
            if not milli or not counted:
                continue
            if kind.elastic:
                queue = self.problem.classes[kind.classes[0]].queue
                for _, column in self.replicas_of(index, tier):
                    yield queue, column, milli
            else:
                for member in kind.classes:
                    queue = self.problem.classes[member].queue
                    yield queue, self.jobs[member, tier], milli * kind.maximum
