"""Values of all columns → Aggregate: a solver's solution in terms of the problem."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import MEDIA_EXTENSIONS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.structure.replica_types import ReplicaType


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs to place on one set of options, and the nodes of their replicas."""

    jobs: tuple[tuple[int, int], ...]
    """(class, number of its jobs); the classes differ only in points and queue."""
    options: tuple[int, ...]
    """Positions of the options among those of each class."""
    places: tuple[tuple[tuple[int, ...], int], ...]
    """(nodes, number of replicas on them). With a required level all nodes are in one domain."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Evictions, opened and closed nodes, and the number of replicas of each class per node set."""

    stopped: tuple[int, ...] = ()
    """Running jobs that are preempted."""
    moved: tuple[int, ...] = ()
    """Running jobs that migrate."""
    shrunk: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(running job, positions in its `holds` of the replicas that it gives up)."""
    opened: tuple[tuple[int, int], ...] = ()
    """(pool, number of nodes)."""
    closed: tuple[tuple[int, int], ...] = ()
    """(pool, number of nodes), each of which must end up empty."""
    batches: tuple[Batch, ...] = ()
    later: tuple[tuple[int, int, int, int], ...] = ()
    """(class, position of the option, slot, jobs) of starts in later slots, by slot."""
    instances: dict[tuple[int, int], tuple[MigInstance, ...]] = field(default_factory=dict)
    """Newly used MIG instances, by (node, GPU index)."""


def decode(x: Columns, values: Ints) -> Aggregate:
    """The aggregate answer that satisfies every row; `rounding.disaggregate` turns it into placements."""
    return _Decoder(x, values).aggregate()


class _Decoder:
    def __init__(self, x: Columns, values: Ints) -> None:
        self.x, self.problem = x, x.problem
        self.value: list[int] = values.tolist()
        self.chosen = {each.node: each for each, column in x.out.items() if self.value[column]}

    def aggregate(self) -> Aggregate:
        return Aggregate(
            stopped=tuple(self._stopped()),
            moved=tuple(v for v, column in self.x.move.items() if self.value[column]),
            shrunk=tuple(self._shrunk()),
            opened=self._by_pool((each.pool, each.column) for each in self.x.cells.expansions),
            closed=self._by_pool((each.pool, each.column) for each in self.x.cells.reductions),
            batches=(*self._located(), *self._scattered()),
            later=tuple(
                sorted(
                    (
                        (*start, self.value[column])
                        for start, column in self.x.later.starts.items()
                        if self.value[column]
                    ),
                    key=lambda each: (each[2], each),
                )
            ),
            instances=self._instances(),
        )

    def _stopped(self) -> list[int]:
        alone = self.x.fates.stopped_with
        found = [v for v, column in self.x.stop.items() if self.value[column]]
        found += [v for each in self.chosen.values() for v in each.stopped if v in alone]
        return sorted(found)

    def _shrunk(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        holds = self.x.eviction_patterns.holds
        given: dict[int, list[int]] = defaultdict(list)
        for departure in self.chosen.values():
            for v, replicas in departure.shrunk:
                given[v] += holds[departure.node][v][:replicas]
        for (v, node), column in self.x.fates.given.items():
            given[v] += holds[node][v][: self.value[column]]
        for v, column in self.x.shrink.items():
            if self.value[column]:
                elsewhere = [
                    position
                    for position, hold in enumerate(self.problem.incumbents[v].holds)
                    if hold.node is None
                ]
                more = self.value[column] - len(given[v])
                yield v, tuple(sorted([*given[v], *elsewhere[:more]]))

    def _by_pool(self, columns: Iterator[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        total: dict[int, int] = defaultdict(int)
        for pool, column in columns:
            total[pool] += self.value[column]
        return tuple((pool, nodes) for pool, nodes in sorted(total.items()) if nodes)

    def _located(self) -> Iterator[Batch]:
        """Jobs of replica types with a locality rule; with a required level, one batch per domain."""
        x = self.x
        for index, kind, tier in x.tiers():
            if kind.ignores_domains:
                continue
            places = [
                (cell, self.value[column]) for cell, column in x.located_of(index, tier) if self.value[column]
            ]
            jobs = self._jobs(kind, tier)
            if not jobs:
                continue
            if (required := kind.together.required) is None:
                yield Batch(
                    tuple(jobs), kind.tiers[tier], tuple((x.cells.all[cell].nodes, n) for cell, n in places)
                )
                continue
            for (of, at, domain), column in x.whole.items():
                if (of, at) == (index, tier) and self.value[column]:
                    here = tuple(
                        (x.cells.all[cell].nodes, n)
                        for cell, n in places
                        if x.cells.domain(cell, required) == domain
                    )
                    # The values may be a guess, in which counts need not agree.
                    if first := tuple(_first(jobs, self.value[column])):
                        yield Batch(first, kind.tiers[tier], here)

    def _scattered(self) -> Iterator[Batch]:
        """
        Jobs of the other replica types, anywhere on the nodes of a node group.

        The split of sizes over node classes is left to placement. The rows over all node classes together are
        as strong, and they do not say which node class has the CPU cores for which replica.
        """
        x = self.x
        for index, kind, tier in x.tiers():
            jobs = self._jobs(kind, tier)
            if not kind.ignores_domains or not jobs:
                continue
            places: list[tuple[tuple[int, ...], int]] = []
            for group in kind.groups[tier]:
                column = x.replicas.get((index, group))
                if column is not None and self.value[column]:
                    cells = x.cells.of_group[group]
                    nodes = tuple(node for cell in cells for node in x.cells.all[cell].nodes)
                    places.append((nodes, self.value[column]))
            yield Batch(tuple(jobs), kind.tiers[tier], tuple(places))

    def _jobs(self, kind: ReplicaType, tier: int) -> list[tuple[int, int]]:
        found = ((member, self.value[self.x.jobs[member, tier]]) for member in kind.classes)
        return [(member, jobs) for member, jobs in found if jobs]

    def _instances(self) -> dict[tuple[int, int], tuple[MigInstance, ...]]:
        """Newly used instances by GPU: intervals assigned to the GPUs of a state, first fit by start."""
        found: dict[tuple[int, int], list[MigInstance]] = defaultdict(list)
        for state in self.x.mig:
            gpus = list(state.gpus)
            if state.switched is not None:
                gpus = list(self._switched(state.cell, self.value[state.switched]))
            busy: dict[tuple[int, int], set[int]] = {at: set() for at in gpus}
            media: set[tuple[int, int]] = set()
            for (profile, start), slices, _, column in sorted(state.instances, key=lambda each: each[0][1]):
                extended = profile.endswith(MEDIA_EXTENSIONS)
                for _ in range(self.value[column]):
                    free = [at for at in gpus if not busy[at] & {*slices} and not (extended and at in media)]
                    # Without a free GPU the values are a guess: the rows of (C6) do not allow that.
                    if free:
                        busy[free[0]] |= {*slices}
                        media |= {free[0]} if extended else set()
                        found[free[0]].append(MigInstance(profile=profile, start=start))
        return {at: tuple(instances) for at, instances in sorted(found.items())}

    def _switched(self, cell: int, count: int) -> Iterator[tuple[int, int]]:
        """Wholly free GPUs of a node class to be switched to MIG mode: those of the fullest nodes."""
        free = {
            node: [
                gpu
                for gpu, milli in enumerate(
                    self.x.eviction_patterns.free(self.chosen[node])[0]
                    if node in self.chosen
                    else self.problem.nodes[node].gpus
                )
                if milli == MILLI
            ]
            for node in self.x.cells.all[cell].nodes
        }
        for node, gpus in sorted(free.items(), key=lambda each: (len(each[1]), each[0])):
            for gpu in reversed(gpus):
                if count == 0:
                    return
                count -= 1
                yield node, gpu


def _first(jobs: list[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """Take `count` jobs off the list."""
    while count and jobs:
        member, left = jobs.pop(0)
        taken = min(left, count)
        if taken < left:
            jobs.insert(0, (member, left - taken))
        count -= taken
        yield member, taken
