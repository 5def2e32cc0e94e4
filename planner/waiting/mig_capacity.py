"""How many replicas find MIG instances on a node beside those in use, as the ledger finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import MEDIA_EXTENSIONS, mig_geometry
from gpuplan.models.placement import mig_instances_in_use
from gpuplan.models.problem.problem import Charges, FreeNode, MigGpu, NodeGroup, Problem
from gpuplan.models.units import MILLI
from gpuplan.planner.problem_builder.free_nodes import mig_gpus
from gpuplan.solvers.state.constraints.mig_state import MigInventory, request_slices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.mig import MigGeometry
    from gpuplan.models.placement import Placement
    from gpuplan.models.policy.policy import MigPolicy
    from gpuplan.solvers.state.constraints.mig_state import MigRequest

_ALL: Final = 10**6
"""Beyond the replicas of any node."""


_Layout: TypeAlias = "tuple[tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]]"
"""The idle and the used instances of a GPU: (start, profile)."""


class _Gpus(NamedTuple):
    """GPUs of a node that can offer instances."""

    present: list[MigGpu]
    """In MIG mode before the plan."""
    switched: list[MigGpu]
    """Switched to it by the plan, which may cut them at will."""
    whole: list[int]
    """Without instances in use, and neither in MIG mode before the plan nor kept from it."""


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
        self._counts: dict[object, int] = {}

    def replicas(self, node: Node, free: FreeResources, profiles: MigRequest) -> int:
        """
        Number of replicas that find their instances on the node at the same time.

        They get the instances that the ledger chooses to leave room for more such replicas.
        """
        gpus = self._gpus(node, free)
        if not any(gpus):
            return 0
        # Where GPUs may be repartitioned, idle instances are in the way of nothing: only prices favour them.
        as_is = not self._policy.repartition or _geometry_of(node) is None
        present, switched = (tuple(sorted(_layout(gpu, idle=as_is) for gpu in some)) for some in gpus[:2])
        key = node.gpu_model, present, switched, len(gpus.whole), profiles
        if key not in self._counts:
            self._counts[key] = self._count(*key)
        return self._counts[key]

    def _count(
        self,
        model: str | None,
        present: tuple[_Layout, ...],
        switched: tuple[_Layout, ...],
        whole: int,
        profiles: MigRequest,
    ) -> int:
        """The same for a node with GPUs of these layouts, and with `whole` others that may get one."""
        gpus = tuple(
            MigGpu(
                index,
                *(tuple(MigInstance(profile=each[1], start=each[0]) for each in some) for some in layout),
            )
            for index, layout in enumerate((*present, *switched))
        )
        problem = Problem(
            resources=(),
            nodes=(FreeNode("", gpus=(), amounts=(), mig=gpus[: len(present)]),),
            groups=(NodeGroup(model, len(gpus) + whole, (0,)),),
            classes=(),
            queues=(),
            budgets=(),
            charges=Charges(
                switch_mode=0 if self._policy.switch_mode else None, may_repartition=self._policy.repartition
            ),
        )
        inventory = MigInventory(problem, wanted=frozenset(profile for profile, _ in profiles))
        for gpu in gpus[len(present) :]:
            inventory.charge(0, [(gpu.index, each.profile, each.start) for each in gpu.used], 1)
        return len(inventory.find(0, profiles, range(len(gpus), len(gpus) + whole), _ALL))

    def free_slices(self, node: Node, free: FreeResources) -> int:
        """Memory slices that no instance in use covers, on GPUs that are or may be in MIG mode."""
        geometry = _geometry_of(node)
        if geometry is None:
            return 0
        gpus = self._gpus(node, free)
        indices = {gpu.index for gpu in (*gpus.present, *gpus.switched)}
        used = sum(index in indices for index, _ in free.mig_used)
        return (len(indices) + len(gpus.whole)) * geometry.memory_slices - used

    def slices(self, node: Node, profiles: MigRequest) -> int:
        """Memory slices that one replica's instances take on the node's GPU model."""
        return request_slices(node.gpu_model or "", profiles)

    def cut(self, node: Node, free: FreeResources) -> int:
        """Number of the node's GPUs that are or may be in MIG mode."""
        return sum(len(some) for some in self._gpus(node, free))

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

    def _gpus(self, node: Node, free: FreeResources) -> _Gpus:
        found = _Gpus([], [], [])
        if node.gpus is None:
            return found
        # Most GPUs are not in MIG mode and stay so.
        for gpu in mig_gpus(node.gpus, self._used.get(node.name, {})) if node.gpus.details else ():
            switched = (node.name, gpu.index) in self._switched
            if switched and not gpu.used:
                found.whole.append(gpu.index)
            else:
                (found.switched if switched else found.present).append(gpu)
        if self._policy.switch_mode and mig_geometry(node.gpus.model):
            found.whole.extend(index for index, milli in enumerate(free.gpu_milli) if milli == MILLI)
        return found


def _layout(gpu: MigGpu, *, idle: bool) -> _Layout:
    """The instances in use of a GPU, and those that are idle if they count."""
    some = gpu.idle if idle else (), gpu.used
    unused, used = (tuple([(each.start, each.profile) for each in instances]) for instances in some)
    return unused, used


def _geometry_of(node: Node) -> MigGeometry | None:
    return mig_geometry(node.gpus.model) if node.gpus else None


def profiles_of(mig: Mapping[str, int]) -> MigRequest:
    """The instances of a request in canonical order."""
    return tuple(sorted(mig.items()))
