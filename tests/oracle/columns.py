"""Columns of the plain model, with the sums over them that several families share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.cluster import Level, MigInstance
from gpuplan.models.mig import mig_geometry, profile_milli
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY
from gpuplan.models.units import MILLI
from tests.oracle.encoding import encoded
from tests.oracle.index import SLICES, Candidate, ReferenceIndex

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.rows import Ints, Term
    from gpuplan.models.mig import MigGeometry
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import AffinityNeighbour

Entity: TypeAlias = "tuple[str, str, tuple[Hashable, ...]]"
"""Job, workload class, and what its columns `present` are named after but for the domain."""


class ReferenceColumns(ReferenceIndex):
    """The columns, which job may use what or leave, and what counts where."""

    def on_node(self, node: int) -> Iterator[tuple[Candidate, int]]:
        """Every candidate that may use a node, with the column of its replicas there."""
        for candidate in self.candidates:
            if (column := self.index.get(("replicas", *candidate.key, node))) is not None:
                yield candidate, column

    def users(self, kind: str, node: int, *rest: Hashable) -> list[tuple[Candidate, int]]:
        """Candidates with a column of this kind on a node."""
        return [
            (candidate, column)
            for candidate in self.candidates
            if (column := self.index.get((kind, *candidate.key, node, *rest))) is not None
        ]

    def geometry(self, node: int) -> MigGeometry | None:
        """MIG geometry of a node's GPUs."""
        model = self.model_of.get(node)
        return None if model is None else mig_geometry(model)

    def slices(self, node: int, gpu: int) -> dict[MigInstance, list[int]]:
        """Columns of new users of each MIG instance that any job may ask for on a GPU."""
        found: dict[MigInstance, list[int]] = {}
        for candidate, _ in self.on_node(node):
            for profile, _ in candidate.job_class.shape.mig:
                for start in range(SLICES):
                    column = self.index["slice", *candidate.key, node, gpu, profile, start]
                    found.setdefault(MigInstance(profile=profile, start=start), []).append(column)
        return found

    def gpu_milli(self, candidate: Candidate, node: int) -> Iterator[Term]:
        """Thousandths of GPUs that a candidate's new replicas hold on a node, GPU by GPU."""
        shape = candidate.job_class.shape
        for gpu in range(len(self.problem.nodes[node].gpus)):
            if shape.gpus:
                yield self.index["whole", *candidate.key, node, gpu], MILLI
            if shape.gpu_milli:
                yield self.index["share", *candidate.key, node, gpu], shape.gpu_milli
            for profile, _ in shape.mig:
                for start in range(SLICES):
                    yield (
                        self.index["slice", *candidate.key, node, gpu, profile, start],
                        profile_milli(profile),
                    )

    def grow(self, index: int) -> list[int]:
        """Columns that are 1 if an incumbent grows."""
        return self._follow(index, ClassRole.GROW)

    def away(self, index: int) -> list[int]:
        """Columns of which one is 1 if an incumbent leaves all its places."""
        return [self.index["stop", index], *self.moved(index)]

    def moved(self, index: int) -> list[int]:
        """Columns that are 1 if an incumbent is moved."""
        return self._follow(index, ClassRole.MOVE)

    def leaving(self, index: int, position: int) -> list[int]:
        """Columns of which one is 1 if an incumbent leaves one of its places."""
        return [*self.away(index), self.index["gives", index, position]]

    def leaving_to(self, index: int, position: int, below: VictimView | None) -> list[int]:
        """The same, as far as it leaves the place to the classes that a view binds, if one is given."""
        if below is None:
            return self.leaving(index, position)
        gives = [self.index["gives", index, position]]
        shrinks = not below.keeps(self.problem.incumbents[index])
        return [*self.away_to(index, below), *(gives if shrinks else ())]

    def away_to(self, index: int, below: VictimView) -> list[int]:
        """Columns of which one is 1 if an incumbent leaves its places, to classes that a view binds."""
        stop, move = [self.index["stop", index]], self.problem.incumbents[index].move
        moves = move is not None and below.binds(self.problem.classes[move])
        stops = not below.keeps(self.problem.incumbents[index])
        return [*(stop if stops else ()), *(self.moved(index) if moves else ())]

    def _follow(self, index: int, role: ClassRole) -> list[int]:
        return [
            self.index["placed", *candidate.key]
            for candidate in self.candidates
            if candidate.job_class.incumbent == index and candidate.job_class.role is role
        ]

    def outside(self, index: int) -> list[int]:
        """Positions of an incumbent's replicas on nodes that take nothing new."""
        holds = self.problem.incumbents[index].holds
        return [position for position, hold in enumerate(holds) if hold.node is None]

    def holds_on(self, node: int) -> Iterator[tuple[int, int]]:
        """(incumbent, position) of every replica on a node that may leave it."""
        for index, incumbent in enumerate(self.problem.incumbents):
            for position, hold in enumerate(incumbent.holds):
                if hold.node == node:
                    yield index, position

    def held_milli(self, node: int, gpu: int) -> tuple[int, list[tuple[int, int, int]]]:
        """Thousandths of a GPU held for good, and (incumbent, position, thousandths) of the others."""
        holders = [
            (index, position, self.problem.incumbents[index].shape.gpu_milli or MILLI)
            for index, position in self.holds_on(node)
            if gpu in self.problem.incumbents[index].holds[position].gpus
        ]
        free = self.problem.nodes[node].gpus[gpu]
        return MILLI - free - sum(milli for _, _, milli in holders), holders

    def places_in(self, standing: AffinityNeighbour, level: Level, domain: int) -> list[int]:
        """
        Positions of an incumbent's replicas in a domain.

        None where a node of the domain stands for others: then only leaving altogether leaves it.
        """
        if standing.incumbent is None:
            return []
        holds = self.problem.incumbents[standing.incumbent].holds
        if {node for node in standing.nodes if self.domain(level, node) == domain} - {
            hold.node for hold in holds
        }:
            return []
        return [
            position
            for position, hold in enumerate(holds)
            if hold.node is not None and self.domain(level, hold.node) == domain
        ]

    def usage(self, resource: str, below: VictimView | None = None) -> Iterator[tuple[int, int, int]]:
        """
        (queue, column, amount) of everything that takes a resource with quotas, or gives back.

        With `below`, only what is of the classes that it binds, and what is given back to those.
        """
        for candidate in self.candidates:
            if below is not None and not below.binds(candidate.job_class):
                continue
            for option in candidate.job_class.options:
                for node in self.nodes(option):
                    for column, amount in self._taken(candidate, option.gpu_model, node, resource):
                        yield candidate.job_class.queue, column, amount
        for index, incumbent in enumerate(self.problem.incumbents):
            if amount := held_of(incumbent, resource):
                for position in range(len(incumbent.holds)):
                    for column in self.leaving_to(index, position, below):
                        yield incumbent.queue, column, -amount

    def _taken(
        self, candidate: Candidate, model: str | None, node: int, resource: str
    ) -> Iterable[tuple[int, int]]:
        if resource in (CPUS, MEMORY):
            amount = candidate.job_class.shape.quota[1 + (resource == MEMORY)]
            return [(self["replicas", *candidate.key, node], amount)]
        counts = model is not None and resource in (ALL_MODELS, model)
        return self.gpu_milli(candidate, node) if counts else ()

    def free_gpus(self, node: int) -> tuple[int, list[Term]]:
        """Wholly free GPUs of a node, not in MIG mode, while it exists: a constant and terms."""
        able = [
            gpu
            for gpu in range(len(self.problem.nodes[node].gpus))
            if (node, gpu) not in self.mig_gpus and self.held_milli(node, gpu)[0] == 0
        ]
        terms = [(self.index[what, node, gpu], -1) for gpu in able for what in ("held", "switched")]
        if node in self.optional:
            return 0, [*terms, (self.index["open", node], len(able))]
        if (close := self.index.get(("close", node))) is not None:
            terms.append((close, -len(able)))
        return len(able), terms

    def meetings(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """
        (node, position of an interference, pairs of `present` columns) of jobs that may come to meet there.

        Two running jobs that meet already make the meeting of any others free.
        """
        new: list[Entity] = [
            (each.name, each.job_class.workload, ("present", *each.key, Level.NODE))
            for each in self.candidates
        ]
        old: list[Entity] = [
            (each.job, each.workload, ("present", "standing", each.job, Level.NODE))
            for each in self.problem.standing
        ]
        for position, (one, other, _) in enumerate(self.problem.charges.interference):
            for node in range(len(self.problem.nodes)):
                here_old = [each for each in old if (*each[2], node) in self.index]
                here = [*(each for each in new if (*each[2], node) in self.index), *here_old]
                if not _pairs(here_old, one, other):
                    yield (
                        node,
                        position,
                        [(self.index[*a, node], self.index[*b, node]) for a, b in _pairs(here, one, other)],
                    )

    def encode(self, target: DesiredState) -> Ints:
        """
        Values of all columns at a target, legal or not.

        Raises
        ------
        KeyError
            It does what has no column: a job on a node it may not use, a move of one that may not be moved.
        """
        return encoded(self, target)


def _pairs(
    entities: list[Entity], one: str, other: str
) -> list[tuple[tuple[Hashable, ...], tuple[Hashable, ...]]]:
    """`present` keys of two different jobs, of one workload class and of the other."""
    return [
        (a[2], b[2])
        for number, a in enumerate(entities)
        for b in entities[number + 1 :]
        if a[0] != b[0] and (a[1], b[1]) in ((one, other), (other, one))
    ]


def held_of(incumbent: Incumbent, resource: str) -> int:
    """What one replica of a running job holds of a resource with quotas."""
    if resource in (CPUS, MEMORY):
        return incumbent.shape.quota[1 + (resource == MEMORY)]
    counts = incumbent.gpu_model is not None and resource in (ALL_MODELS, incumbent.gpu_model)
    return incumbent.shape.quota_milli if counts else 0
