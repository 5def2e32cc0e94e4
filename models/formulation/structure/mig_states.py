"""
MIG states: GPUs with a MIG layout to be decided, slice by slice.

An instance is an interval of memory slices, and instances on one GPU do not overlap. It is exact to count
instances by start position: if at most N intervals cover each slice, they can be assigned to N GPUs without
overlap, since interval graphs are perfect.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.mig import MEDIA_EXTENSIONS, MigGeometry, MigProfile, mig_geometry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.cluster import MigInstance
    from gpuplan.models.formulation.structure.eviction_patterns import EvictionPattern, EvictionPatterns
    from gpuplan.models.formulation.structure.incumbent_variables import IncumbentColumns
    from gpuplan.models.formulation.structure.node_classes import NodeClasses
    from gpuplan.models.problem.problem import MigGpu, Problem

Position: TypeAlias = tuple[str, int]
"""(profile, start) of an instance."""


@dataclass(frozen=True, slots=True)
class MigState:
    """GPUs of one node class with the same free memory slices and the same instances."""

    cell: int
    gpus: tuple[tuple[int, int], ...]
    """(node, GPU index); empty for GPUs to be switched to MIG mode."""
    slices: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    """By memory slice, the number of GPUs on which it is free: a constant and (column, coefficient) pairs."""
    instances: tuple[tuple[Position, tuple[int, ...], bool, int], ...]
    """Instances that may be used: (position, slices, true if it already exists, column)."""
    switched: int | None = None
    """Column that counts GPUs switched to MIG mode."""

    @property
    def media(self) -> list[int]:
        """Columns of instances with media extensions, of which a GPU has at most one."""
        return [column for (name, _), _, _, column in self.instances if name.endswith(MEDIA_EXTENSIONS)]


def mig_states(
    problem: Problem,
    cells: NodeClasses,
    fates: IncumbentColumns,
    new: Callable[[int], int],
) -> Iterator[MigState]:
    """All MIG states of a problem; `new` makes a column with an upper bound."""
    wanted = _wanted_profiles(problem)
    for position, cell in enumerate(cells.all):
        group = problem.groups[cell.group]
        geometry = mig_geometry(group.gpu_model) if group.gpu_model else None
        profiles = wanted[cell.group]
        if not profiles:
            continue
        alike: dict[tuple[object, ...], list[tuple[int, MigGpu]]] = defaultdict(list)
        for node in cell.nodes:
            alone = node in fates.eviction_patterns.holds
            for gpu in problem.nodes[node].mig:
                key = (node, gpu.index) if alone else (gpu.idle, gpu.used)
                alike[key].append((node, gpu))
        for members in alike.values():
            node, gpu = members[0]
            layout = _Layout(geometry, gpu.idle, gpu.used)
            if node in fates.eviction_patterns.crowded:
                slices = _crowded_slices(problem, fates, layout, node, gpu)
            else:
                used = _used(problem, fates.eviction_patterns, node, gpu)
                slices = _slices(len(members), layout, used, fates.out)
            open_to = [constant + sum(c for _, c in terms if c > 0) for constant, terms in slices]
            instances = []
            for place, covered, exists in layout.positions(profiles, create=problem.charges.may_repartition):
                most = min(len(members), *(open_to[each] for each in covered))
                if most > 0:
                    instances.append((place, covered, exists, new(most)))
            if instances:
                where = tuple((member, each.index) for member, each in members)
                yield MigState(position, where, slices, tuple(instances))
        if problem.charges.switch_mode is not None and geometry is not None:
            yield from _switched(position, cells, geometry, profiles, new)


def _switched(
    position: int, cells: NodeClasses, geometry: MigGeometry, profiles: set[str], new: Callable[[int], int]
) -> Iterator[MigState]:
    """Wholly free GPUs of a node class that may be switched to MIG mode."""
    cell = cells.all[position]
    whole = cells.states[cell.group].whole
    constant, _, coefficients = cells.supply(position, whole)
    copies = len(cell.nodes) if cells.problem.groups[cell.group].pool is not None else 1
    most = constant + copies * int(coefficients[coefficients > 0].sum())
    layout = _Layout(geometry, (), ())
    offered = list(layout.positions(profiles, create=True))
    if most and offered:
        column = new(most)
        slices = tuple((0, ((column, 1),)) for _ in range(geometry.memory_slices))
        instances = tuple((place, covered, exists, new(most)) for place, covered, exists in offered)
        yield MigState(position, (), slices, instances, switched=column)


class _Layout:
    """Existing and possible instances of one GPU; only existing ones if the geometry is unknown."""

    def __init__(
        self, geometry: MigGeometry | None, idle: tuple[MigInstance, ...], used: tuple[MigInstance, ...]
    ) -> None:
        self._geometry = geometry
        self._existing = sorted({(each.profile, each.start) for each in (*idle, *used)})
        self.size = geometry.memory_slices if geometry else len(self._existing)

    def covered(self, place: Position) -> tuple[int, ...]:
        """Slices of an instance; if the geometry is unknown, each existing instance is one slice."""
        name, start = place
        if self._geometry is None:
            return (self._existing.index(place),)
        profile = self._geometry.profiles.get(name)
        width = profile.memory_slices if profile else self.size
        return tuple(range(start, min(self.size, start + width)))

    def positions(
        self, profiles: set[str], *, create: bool
    ) -> Iterator[tuple[Position, tuple[int, ...], bool]]:
        """Instances that jobs may use."""
        for place in self._existing:
            if place[0] in profiles:
                yield place, self.covered(place), True
        if self._geometry is not None and create:
            for profile in self._offered(profiles):
                for start in profile.starts:
                    if (profile.name, start) not in self._existing:
                        yield (profile.name, start), self.covered((profile.name, start)), False

    def _offered(self, profiles: set[str]) -> list[MigProfile]:
        known = self._geometry.profiles if self._geometry else {}
        return [known[name] for name in sorted(profiles & known.keys())]


def _wanted_profiles(problem: Problem) -> list[set[str]]:
    """Profiles that some class requests, for each node group."""
    wanted: list[set[str]] = [set() for _ in problem.groups]
    for job_class in problem.classes:
        for option in job_class.options:
            for group in option.groups:
                wanted[group] |= {profile for profile, _ in job_class.shape.mig}
    return wanted


def _used(
    problem: Problem, departures: EvictionPatterns, node: int, gpu: MigGpu
) -> dict[EvictionPattern | None, set[Position]]:
    """Used instances of a GPU under each eviction pattern of its node; None: while all running jobs stay."""
    base = {(each.profile, each.start) for each in gpu.used}
    used: dict[EvictionPattern | None, set[Position]] = {None: base}
    for departure in departures.by_node.get(node, ()):
        left = {
            (instance.profile, instance.start)
            for incumbent, position in departures.given_up(departure)
            for index, instance in problem.incumbents[incumbent].holds[position].slices
            if index == gpu.index
        }
        used[departure] = base - left
    return used


def _slices(
    count: int,
    layout: _Layout,
    used: dict[EvictionPattern | None, set[Position]],
    out: dict[EvictionPattern, int],
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """Number of GPUs on which each slice is free, as a function of the eviction patterns."""
    base = _free(layout, used[None])
    after = {
        out[departure]: _free(layout, positions)
        for departure, positions in used.items()
        if departure is not None
    }
    return tuple(
        (
            count * before,
            tuple((column, free[each] - before) for column, free in after.items() if free[each] != before),
        )
        for each, before in enumerate(base)
    )


def _crowded_slices(
    problem: Problem, fates: IncumbentColumns, layout: _Layout, node: int, gpu: MigGpu
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """The same for a GPU of a crowded node, where each running job frees its own slices."""
    base = _free(layout, {(each.profile, each.start) for each in gpu.used})
    terms: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for v, positions in fates.eviction_patterns.holds[node].items():
        columns = [*fates.leaves(v)]
        if (v, node) in fates.given:
            columns.append(fates.given[v, node])
        for position in positions:
            for index, instance in problem.incumbents[v].holds[position].slices:
                if index == gpu.index:
                    for each in layout.covered((instance.profile, instance.start)):
                        terms[each] += [(column, 1) for column in columns]
    return tuple((int(base[each]), tuple(terms[each])) for each in range(layout.size))


def _free(layout: _Layout, used: set[Position]) -> list[bool]:
    taken = {each for place in used for each in layout.covered(place)}
    return [each not in taken for each in range(layout.size)]
