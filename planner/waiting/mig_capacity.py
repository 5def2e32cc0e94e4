"""How many replicas find MIG instances on a node beside those in use, within the repartition policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.cluster import Gpu, MigInstance, Node, NodeGpus
from gpuplan.models.eligibility.free_resources import FreeResources, memory_slices
from gpuplan.models.mig import MEDIA_EXTENSIONS, MigGeometry, mig_geometry
from gpuplan.models.placement import Placement, mig_instances_in_use
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.models.policy.policy import MigPolicy

Profiles: TypeAlias = tuple[tuple[str, int], ...]
"""Request of one replica: (profile, count), sorted."""

_State: TypeAlias = tuple[bool, frozenset[MigInstance], frozenset[MigInstance]]
"""State of one GPU: whether it may be repartitioned, its instances in use, its idle instances."""


class MigCapacity:
    """MIG capacity: the GPUs of all nodes that can offer MIG instances."""

    def __init__(
        self,
        placements: Iterable[Placement],
        policy: MigPolicy,
        switched: Collection[tuple[str, int]] = (),
    ) -> None:
        """Keep the instances in use; `switched` are GPUs (node, index) that the plan switches to MIG mode."""
        self._used = mig_instances_in_use(placements)
        self._policy, self._switched = policy, switched
        self._counts: dict[tuple[str | None, frozenset[tuple[_State, int]], Profiles], int] = {}
        self._best_starts: dict[str | None, _BestStarts] = {}

    def replicas(self, node: Node, free: FreeResources, profiles: Profiles) -> int:
        """Number of replicas that find their instances on the node at the same time."""
        states = self._states(node, free) if node.gpus and self._may_have(node.gpus) else None
        if not states:
            return 0
        key = (node.gpu_model, frozenset(states.items()), profiles)
        if key not in self._counts:
            best = self._best_starts.get(node.gpu_model)
            if best is None:
                best = self._best_starts[node.gpu_model] = _BestStarts(_geometry_of(node))
            board = _Board(best, states)
            self._counts[key] = board.replicas(profiles)
        return self._counts[key]

    def free_slices(self, node: Node, free: FreeResources) -> int:
        """Memory slices that no instance in use covers, on GPUs that are or may be in MIG mode."""
        geometry = _geometry_of(node)
        if geometry is None:
            return 0
        return sum(
            count * (geometry.memory_slices - len(_covered(used, geometry)))
            for (_, used, _), count in self._states(node, free).items()
        )

    def slices(self, node: Node, profiles: Profiles) -> int:
        """Memory slices that one replica's instances take on the node's GPU model."""
        geometry = _geometry_of(node)
        return sum(
            count * len(memory_slices(MigInstance(profile=profile, start=0), geometry))
            for profile, count in profiles
        )

    def cut(self, node: Node, free: FreeResources) -> int:
        """Number of the node's GPUs that are or may be in MIG mode."""
        return self._states(node, free).total()

    def largest(self, node: Node, free: FreeResources) -> tuple[int, str]:
        """Largest profile of which one more instance fits: (memory slices, name)."""
        geometry = _geometry_of(node)
        profiles = geometry.profiles.values() if geometry else ()
        found = (
            (profile.memory_slices, profile.name)
            for profile in profiles
            if not profile.name.endswith(MEDIA_EXTENSIONS)
        )
        return max((one for one in found if self.replicas(node, free, ((one[1], 1),))), default=(0, ""))

    def _states(self, node: Node, free: FreeResources) -> Counter[_State]:
        """Number of GPUs that are or may be in MIG mode, by state."""
        states: Counter[_State] = Counter()
        if node.gpus is None or not self._may_have(node.gpus):
            return states
        used = self._used.get(node.name, {})
        for index, gpu in node.gpus.by_index.items():
            if gpu.healthy and (gpu.mig is not None or self._may_be_switched(node, free, index)):
                states[self._state(node, gpu, frozenset(used.get(index, ())))] += 1
        return states

    def _may_have(self, gpus: NodeGpus) -> bool:
        """False for most GPUs: they are not in MIG mode and stay so."""
        return bool(gpus.details or (self._policy.switch_mode and mig_geometry(gpus.model)))

    def _may_be_switched(self, node: Node, free: FreeResources, index: int) -> bool:
        return bool(self._policy.switch_mode and _geometry_of(node) and free.gpu_milli[index] == MILLI)

    def _state(self, node: Node, gpu: Gpu, used: frozenset[MigInstance]) -> _State:
        # Switching a GPU to MIG mode also partitions it; `mig.repartition` concerns GPUs already in MIG mode.
        switched = gpu.mig is None or (node.name, gpu.index) in self._switched
        may_be_cut = switched or self._policy.repartition
        return may_be_cut, used, frozenset(gpu.mig or ()) - used


def _geometry_of(node: Node) -> MigGeometry | None:
    return mig_geometry(node.gpus.model) if node.gpus else None


class _Board:
    """GPUs of one node while instances are placed on them one by one."""

    def __init__(self, best: _BestStarts, states: Counter[_State]) -> None:
        self._best = best
        self._gpus = [
            state
            for state, count in sorted(states.items(), key=lambda item: _order(item[0]))
            for _ in range(count)
        ]

    def replicas(self, profiles: Profiles) -> int:
        """Number of whole replicas that fit; large instances first, each at its best position."""
        if len(profiles) == 1:
            # Instances of one profile block each other only by filling the GPU.
            ((profile, each),) = profiles
            return sum(self._best.most(state, profile) for state in self._gpus) // each
        sizes = {profile: self._best.size(profile) for profile, _ in profiles}
        count = 0
        while all(
            self._place(profile)
            for profile, each in sorted(profiles, key=lambda item: (-sizes[item[0]], item[0]))
            for _ in range(each)
        ):
            count += 1
        return count

    def _place(self, profile: str) -> bool:
        """Place one instance where it loses the fewest other starts; False if it fits nowhere."""
        found = (
            (best.lost, number, best.instance)
            for number, state in enumerate(self._gpus)
            if (best := self._best.of(state, profile)) is not None
        )
        _, number, instance = min(found, key=itemgetter(0, 1), default=(0, 0, None))
        if instance is None:
            return False
        self._gpus[number] = _with(self._gpus[number], instance)
        return True


@dataclass(frozen=True, slots=True)
class _Best:
    """Position of one more instance on a GPU that loses the fewest starts of other instances."""

    lost: int
    """Possible starts of other instances that it blocks."""
    instance: MigInstance


class _BestStarts:
    """Best positions of instances on GPUs of one model, computed once per state of a GPU."""

    def __init__(self, geometry: MigGeometry | None) -> None:
        self._geometry = geometry
        self._known: dict[tuple[_State, str], _Best | None] = {}
        self._most: dict[tuple[_State, str], int] = {}

    def of(self, state: _State, profile: str) -> _Best | None:
        """Best position for one more instance, the lowest on ties; None if there is none."""
        key = state, profile
        if key not in self._known:
            may_be_cut, used, idle = state
            instances = (
                MigInstance(profile=profile, start=start)
                for start in self._starts(profile, may_be_cut, used, idle)
            )
            found = (_Best(self._open(used) - self._open(used | {one}), one) for one in instances)
            self._known[key] = min(found, key=lambda best: (best.lost, best.instance.start), default=None)
        return self._known[key]

    def most(self, state: _State, profile: str) -> int:
        """Number of instances of one profile that fit on a GPU, each at its best position."""
        key = state, profile
        if key not in self._most:
            best = self.of(state, profile)
            self._most[key] = 0 if best is None else 1 + self.most(_with(state, best.instance), profile)
        return self._most[key]

    def size(self, profile: str) -> int:
        """Memory slices of one instance."""
        return len(memory_slices(MigInstance(profile=profile, start=0), self._geometry))

    def _starts(
        self, profile: str, may_be_cut: bool, used: frozenset[MigInstance], idle: frozenset[MigInstance]
    ) -> Iterable[int]:
        if self._geometry is None or not may_be_cut:
            return sorted(instance.start for instance in idle if instance.profile == profile)
        known = self._geometry.profiles.get(profile)
        return [
            start
            for start in (known.starts if known else ())
            if not any(self._geometry.faults({*used, MigInstance(profile=profile, start=start)}))
            and MigInstance(profile=profile, start=start) not in used
        ]

    def _open(self, used: frozenset[MigInstance]) -> int:
        """Number of possible starts left for instances of any profile."""
        if self._geometry is None:
            return 0
        covered = _covered(used, self._geometry)
        return sum(
            covered.isdisjoint(range(start, start + profile.memory_slices))
            for profile in self._geometry.profiles.values()
            for start in profile.starts
        )


def _with(state: _State, instance: MigInstance) -> _State:
    """The state of a GPU with one more instance in use."""
    may_be_cut, used, idle = state
    return may_be_cut, used | {instance}, idle - {instance}


def _order(state: _State) -> tuple[bool, list[tuple[int, str]], list[tuple[int, str]]]:
    may_be_cut, *sets = state
    used, idle = (sorted((one.start, one.profile) for one in instances) for instances in sets)
    return may_be_cut, used, idle


def _covered(used: Iterable[MigInstance], geometry: MigGeometry) -> set[int]:
    return {piece for instance in used for piece in memory_slices(instance, geometry)}


def profiles_of(mig: Mapping[str, int]) -> Profiles:
    """The instances of a request in canonical order."""
    return tuple(sorted(mig.items()))
