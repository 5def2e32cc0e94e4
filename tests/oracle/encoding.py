"""The values that the plain model's columns have at a target."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.formulation.structure.replica_types import fill_tiers
from gpuplan.models.placement import GpuShare
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.structure.replica_types import ValueTier
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.jobs import HeldResources
    from gpuplan.models.problem.problem import AffinityNeighbour, QueueBudget
    from tests.oracle.columns import ReferenceColumns
    from tests.oracle.index import Candidate

Place: TypeAlias = tuple[object, ...]


def encoded(x: ReferenceColumns, target: DesiredState) -> Ints:
    """Values of all columns; KeyError if the target does what has no column."""
    return _Encoding(x).of(target)


class _Encoding:
    def __init__(self, x: ReferenceColumns) -> None:
        self.x = x
        self.problem = x.problem
        self.values: Ints = np.zeros(len(x.upper), dtype=np.int64)
        self.node_of = {node.name: index for index, node in enumerate(x.problem.nodes)}
        self.starts = {
            candidate.name: candidate
            for candidate in x.candidates
            if candidate.job_class.role is ClassRole.START
        }

    def of(self, target: DesiredState) -> Ints:
        x, values = self.x, self.values
        for node in target.added:
            values[x["open", self.node_of[node.name]]] = 1
        for name in target.removed:
            values[x["close", self.node_of[name]]] = 1
        incumbents = {incumbent.job: index for index, incumbent in enumerate(self.problem.incumbents)}
        for placement in target.placements:
            if (index := incumbents.pop(placement.job, None)) is not None:
                self._incumbent(index, placement)
            elif (candidate := self.starts.get(placement.job)) is not None:
                self._place(candidate, placement.replicas)
        for index in incumbents.values():
            values[x["stop", index]] = 1
        self._gpus()
        self._presence()
        self._queues()
        self._meetings()
        self._blocks()
        return values

    def _incumbent(self, index: int, placement: Placement) -> None:
        holds = self.problem.incumbents[index].holds
        before = Counter(map(_place_of_hold, holds))
        after = Counter(self._place_of(replica) for replica in placement.replicas)
        if before == after:
            return
        if before.total() == after.total():
            self._place(self._follower(index, ClassRole.MOVE), placement.replicas)
            return
        lost, new = before - after, after - before
        for position, hold in enumerate(holds):
            place = _place_of_hold(hold)
            if lost[place]:
                lost[place] -= 1
                self.values[self.x["gives", index, position]] = 1
                self.values[self.x["shrink", index]] = 1
        given_up = sum(self.values[self.x["gives", index, position]] for position in range(len(holds)))
        self._count(self.x.fewer.get(index, ()), int(given_up))
        self.values[self.x["off", index]] = self._is_off(index)
        more = []
        for replica in placement.replicas:
            if new[self._place_of(replica)]:
                new[self._place_of(replica)] -= 1
                more.append(replica)
        if more:
            self._place(self._follower(index, ClassRole.GROW), more)

    def _is_off(self, index: int) -> bool:
        """True if an incumbent gives up all that it has on nodes that take nothing new."""
        outside = self.x.outside(index)
        return bool(outside) and all(self.values[self.x["gives", index, position]] for position in outside)

    def _follower(self, index: int, role: ClassRole) -> Candidate:
        for candidate in self.x.candidates:
            if candidate.job_class.incumbent == index and candidate.job_class.role is role:
                return candidate
        raise KeyError((role, self.problem.incumbents[index].job))

    def _place_of(self, replica: Replica) -> Place:
        node = self.node_of.get(replica.node)
        if node is None:
            return (None,)
        # What no other job could use once it is left, as on an unhealthy GPU, is no part of a hold.
        gpus = self.problem.nodes[node].gpus
        sound = [
            held
            for held in replica.gpus
            if held.index < len(gpus)
            and ((node, held.index) in self.x.mig_gpus or self.x.held_milli(node, held.index)[0] < MILLI)
        ]
        shares = sorted(held.index for held in sound if isinstance(held, GpuShare))
        slices = sorted(
            (held.index, held.profile, held.start) for held in sound if not isinstance(held, GpuShare)
        )
        return node, tuple(shares), tuple(slices)

    def _place(self, candidate: Candidate, replicas: Iterable[Replica]) -> None:
        x, values = self.x, self.values
        values[x["placed", *candidate.key]] += 1
        on: Counter[str | None] = Counter()
        for replica in replicas:
            node = self.node_of[replica.node]
            model = x.model_of[node] if candidate.job_class.shape.quota_milli else None
            values[x["on", *candidate.key, model]] = 1
            on[model] += 1
            values[x["replicas", *candidate.key, node]] += 1
            for held in replica.gpus:
                key: tuple[object, ...] = ("slice", *candidate.key, node, held.index)
                if isinstance(held, GpuShare):
                    kind = "whole" if held.milli == MILLI else "share"
                    key = (kind, *candidate.key, node, held.index)
                else:
                    key = (*key, held.profile, held.start)
                values[x[key]] += 1
        for model, count in on.items():
            self._count(x.further.get((*candidate.key, model), ()), count - candidate.job_class.minimum)

    def _count(self, found: Iterable[ValueTier], replicas: int) -> None:
        for column, value in fill_tiers(found, replicas).items():
            self.values[column] += value

    # --- what follows from the decisions -------------------------------------------------------------------

    def _stays(self, index: int, position: int) -> bool:
        return not any(self.values[column] for column in self.x.leaving(index, position))

    def _gpus(self) -> None:
        x, values = self.x, self.values
        for node, gpu in x.gpus():
            for_good, holders = x.held_milli(node, gpu)
            staying = [milli for index, position, milli in holders if self._stays(index, position)]
            shares = any(values[column] for _, column in x.users("share", node, gpu))
            wholes = any(values[column] for _, column in x.users("whole", node, gpu))
            cut = for_good > 0 or shares or any(milli < MILLI for milli in staying)
            values[x["cut", node, gpu]] = cut
            values[x["held", node, gpu]] = cut or wholes or MILLI in staying
            used = [column for columns in x.slices(node, gpu).values() for column in columns]
            values[x["switched", node, gpu]] = (node, gpu) not in x.mig_gpus and any(values[used])

    def _presence(self) -> None:
        x, values = self.x, self.values
        for candidate in x.candidates:
            for level in x.levels(candidate):
                for node in x.nodes_of(candidate):
                    if values[x["replicas", *candidate.key, node]]:
                        values[x["present", *candidate.key, level, x.domain(level, node)]] = 1
        for standing in self.problem.standing:
            for level in x.meeting_levels:
                for node in standing.nodes:
                    if self._stands(standing, level, x.domain(level, node)):
                        values[x["present", "standing", standing.job, level, x.domain(level, node)]] = 1

    def _stands(self, standing: AffinityNeighbour, level: Level, domain: int) -> bool:
        """True if a running job keeps a replica in a domain."""
        if standing.incumbent is None:
            return True
        places = self.x.places_in(standing, level, domain)
        if any(self.values[column] for column in self.x.away(standing.incumbent)):
            return False
        return not places or any(self._stays(standing.incumbent, position) for position in places)

    def _queues(self) -> None:
        x, values = self.x, self.values
        for budget in self.problem.budgets:
            usage = list(budget.own)
            for queue, column, milli in x.usage(budget.resource):
                usage[queue] += milli * int(values[column])
            for queue, spilled in _spilled(budget, usage):
                values[x["spill", budget.resource, queue]] = spilled
            for number, view in enumerate(x.views):
                usage = list(budget.own)
                for queue, column, milli in x.usage(budget.resource, view):
                    usage[queue] += milli * int(values[column])
                for queue, spilled in _spilled(budget, usage):
                    values[x["spill", budget.resource, queue, number]] = spilled
        for position, guarantee in enumerate(self.problem.guarantees):
            held = guarantee.own + sum(
                milli * int(values[column])
                for queue, column, milli in x.usage(guarantee.resource)
                if queue in guarantee.queues
            )
            values[x["missing", position]] = -(-max(0, guarantee.owed - held) // MILLI)

    def _meetings(self) -> None:
        for node, position, pairs in self.x.meetings():
            if any(self.values[one] and self.values[other] for one, other in pairs):
                self.values[self.x["meet", node, position]] = 1

    def _blocks(self) -> None:
        x, values = self.x, self.values
        if not self.problem.charges.fragmentation:
            return
        for node in range(len(self.problem.nodes)):
            constant, terms = x.free_gpus(node)
            free = constant + sum(coefficient * int(values[column]) for column, coefficient in terms)
            values[x["blocks", node]] = max(0, free) // self.problem.charges.reference_gpus


def _place_of_hold(hold: HeldResources) -> Place:
    if hold.node is None:
        return (None,)
    return (
        hold.node,
        tuple(sorted(hold.gpus)),
        tuple(sorted((gpu, instance.profile, instance.start) for gpu, instance in hold.slices)),
    )


def _spilled(budget: QueueBudget, usage: list[int]) -> Iterator[tuple[int, int]]:
    """What each queue uses beyond what it keeps, given what is used directly in each."""
    for queue in budget.leaves_first:
        spilled = max(0, usage[queue] - budget.kept[queue])
        yield queue, spilled
        if (parent := budget.parent[queue]) is not None:
            usage[parent] += spilled
