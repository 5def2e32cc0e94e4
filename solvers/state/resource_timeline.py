"""
Timetable: free resources of every node in every later slot, given running jobs and reservations.

A job that is there in slot 0, running or newly placed, holds its GPUs until it ends. So each GPU becomes free
once and then stays free. Reservations of whole GPUs are therefore only counted and have no indices yet. As
long as no slot counts more than there are, each reservation may take any GPUs that are free when it starts,
since intervals can be coloured with as many colours as ever overlap (the interval graph is perfect).

Two simplifications keep that true, and never promise more than is free:

- A GPU with a reserved share takes only shares, in all later slots: it never counts as a whole GPU.
- MIG instances are reserved only on GPUs that are in MIG mode now. A GPU that the plan switches to MIG mode
  in slot 0 has no room for reservations.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.constraints.constraint import Constraint
from gpuplan.solvers.state.constraints.mig_state import (
    MigLayout,
    best_instance_start,
    is_legal,
    largest_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import Slice, Span
    from gpuplan.solvers.state.constraints.mig_state import InstancePlace
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]

PLENTY: Final = 2**40
"""More replicas than fit on any node."""

_NOT_YET: Final = -(2**50)
"""Free amount of everything on a node that does not exist yet."""


class ResourceTimeline(Constraint):
    """Free GPUs, MIG instances and other amounts by slot and node; slot 0 itself is not kept."""

    def __init__(self, problem: Problem, *, undisturbed: bool = False) -> None:
        """With `undisturbed` running jobs stay as they run now, and only starts of waiting jobs count."""
        self._is_undisturbed = undisturbed
        slots, count = problem.slots, len(problem.nodes)
        self._problem = problem
        self.slots = slots
        widest = max((len(node.gpus) for node in problem.nodes), default=0)
        self.milli: Ints = np.zeros((slots, count, max(1, widest)), dtype=np.int64)
        """Free thousandths, shape (slots, nodes, GPUs), before reservations of whole GPUs."""
        self.left: Ints = np.zeros((slots, count, len(problem.resources)), dtype=np.int64)
        """Shape (slots, nodes, resources); negative where more is held than the node has."""
        self.shared: Ints = np.zeros((count, max(1, widest)), dtype=np.int64)
        """Shares reserved on each GPU, in any slot."""
        self._counted: Ints = np.zeros((slots, count), dtype=np.int64)
        """Whole GPUs reserved, shape (slots, nodes)."""
        self.reserved: Ints = np.zeros(count, dtype=np.int64)
        """Replicas reserved on each node, in any slot."""
        self.reservations = 0
        """Replicas reserved on all nodes."""
        self.has_gpus: Bools = np.array([bool(node.gpus) for node in problem.nodes], dtype=bool)
        self.has_mig: Bools = np.array([bool(node.mig) for node in problem.nodes], dtype=bool)
        self._models = {node: group.gpu_model for group in problem.groups for node in group.nodes}
        self._existing: dict[tuple[int, int], frozenset[InstancePlace]] = {}
        self._used: dict[tuple[int, int], list[set[InstancePlace]]] = {}
        """MIG instances in use by slot, for each GPU that is in MIG mode now."""
        self._switched: Counter[tuple[int, int]] = Counter()
        """MIG instances placed on GPUs that the plan switches to MIG mode."""
        for index in range(count):
            self._begin(index)
        self.whole: Ints = np.zeros((slots, count), dtype=np.int64)
        """Wholly free GPUs, without reserved ones and those for shares."""
        self.whole[:] = (self.milli == MILLI).sum(axis=2)
        self.version = 0
        self.changed_at: Ints = np.zeros(count, dtype=np.int64)
        """Version at which each node last changed."""
        self._ends: dict[tuple[tuple[str | None, int], ...], Ints] = {}

    def touch(self, nodes: int | Ints) -> None:
        """Mark nodes as changed."""
        self.version += 1
        self.changed_at[nodes] = self.version

    def ends(self, tenant: PlacementProfile) -> Ints:
        """By node, the slot before which a tenant that starts in slot 0 is gone."""
        if (found := self._ends.get(tenant.ends)) is None:
            by_model = dict(tenant.ends)
            last = by_model.get(None, self.slots)
            models = (self._models.get(node) for node in range(len(self._problem.nodes)))
            found = np.array([by_model.get(model, last) for model in models], dtype=np.int64)
            self._ends[tenant.ends] = found
        return found

    def _begin(self, index: int) -> None:
        """What a node has in every slot if every running job stays until its end."""
        node = self._problem.nodes[index]
        self.milli[:, index, : len(node.gpus)] = node.gpus
        self.left[:, index] = node.amounts
        if node.overdrawn:
            self.left[:, index] -= np.array(node.overdrawn, dtype=np.int64)
        for gpu in node.mig:
            places = frozenset((each.profile, each.start) for each in (*gpu.idle, *gpu.used))
            self._existing[index, gpu.index] = places
            used = {(each.profile, each.start) for each in gpu.used}
            self._used[index, gpu.index] = [set(used) for _ in range(self.slots)]
        for back in node.releases:
            for gpu_index, milli in back.gpus:
                self.milli[back.slot :, index, gpu_index] += milli
            for gpu_index, instance in back.slices:
                for places_used in self._used[index, gpu_index][back.slot :]:
                    places_used.discard((instance.profile, instance.start))
            self.left[back.slot :, index] += np.array(back.amounts, dtype=np.int64)
        self.milli[: node.opens, index] = 0
        self.left[: node.opens, index] = _NOT_YET

    # --- as a constraint -----------------------------------------------------------------------------------

    def concerns(self, index: int) -> bool:
        """True if later starts of a class must find room here."""
        return not self._is_undisturbed or self._problem.classes[index].role is ClassRole.START

    def fits(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """See `Constraint`."""
        shape = self._problem.classes[index].shape
        if span[0] == 0:
            return self._is_undisturbed or self.fits_until(shape, site, span[1])
        return not self.concerns(index) or self.holds(shape, site, *span)

    def fits_back(self, incumbent: int, site: ReplicaSite) -> bool:
        """See `Constraint`."""
        one = self._problem.incumbents[incumbent]
        return self._is_undisturbed or not self.reservations or self.fits_until(one.shape, site, one.until)

    def take(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        """See `Constraint`."""
        shape = self._problem.classes[index].shape
        if span[0] > 0 and self.concerns(index):
            self.reserve(shape, site, span, times)
        elif span[0] == 0 and not self._is_undisturbed:
            self.occupy(shape, site, span[1], times)

    def leave(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        """See `Constraint`."""
        if not self._is_undisturbed:
            one = self._problem.incumbents[incumbent]
            self.occupy(one.shape, site, one.until, -times)

    # --- jobs in slot 0 ------------------------------------------------------------------------------------

    def occupy(self, shape: Shape, site: ReplicaSite, until: int, times: int) -> None:
        """Let a job that is there in slot 0 hold its site until before `until`; `times` -1 releases it."""
        node = site.node
        if site.gpus:
            self.milli[1:until, node, list(site.gpus)] -= times * (shape.gpu_milli or MILLI)
        for gpu, profile, start in site.slices:
            if (node, gpu) in self._used:
                self._use(node, gpu, (profile, start), range(1, until), times)
                continue
            before = self._switched[node, gpu] > 0
            self._switched[node, gpu] += times
            self.milli[1:, node, gpu] -= MILLI * ((self._switched[node, gpu] > 0) - before)
        self._take(shape, node, slice(1, until), times)
        if site.gpus or site.slices:
            self._recount(node)

    def fits_until(self, shape: Shape, site: ReplicaSite, until: int) -> bool:
        """True if a job may hold exactly this site from slot 0 to before `until`, beside all reservations."""
        node, span = site.node, slice(1, until)
        taken: Ints = np.zeros(self.slots, dtype=np.int64)
        for gpu in site.gpus:
            free = self.milli[:, node, gpu]
            if (free[span] < (shape.gpu_milli or MILLI)).any():
                return False
            if not self.shared[node, gpu]:
                taken[span] += free[span] == MILLI
        switched = {
            gpu
            for gpu, _, _ in site.slices
            if (node, gpu) not in self._used and not self._switched[node, gpu]
        }
        taken += len(switched)
        if any(self.shared[node, gpu] for gpu in switched):
            return False
        kept = tuple(each for each in site.slices if (node, each[0]) in self._used)
        return (
            not (taken[1:] > self.whole[1:, node]).any()
            and all(
                amount == 0 or bool((self.left[span, node, resource] >= amount).all())
                for resource, amount in enumerate(shape.amounts)
            )
            and self._may_coexist(node, kept, 1, until)
        )

    def surely_fits_share(self, shape: Shape, nodes: Ints) -> Bools:
        """True for nodes where a share surely fits beside all reservations, on any GPU where it fits now."""
        if not shape.gpu_milli:
            return np.zeros(len(nodes), dtype=bool)
        spare: Bools = (self.whole[1:, nodes].min(axis=0) > 0) & ~self.shared[nodes].any(axis=1)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                spare &= self.left[1:, nodes, resource].min(axis=0) >= amount
        return spare

    def shut(self, shape: Shape, node: int, until: int) -> frozenset[int]:
        """GPUs of a node that a job of this shape may not use if it runs from slot 0 to before `until`."""
        if until <= 1:
            return frozenset()
        if shape.gpus:
            return frozenset(np.flatnonzero(self.shared[node]).tolist())
        if not shape.gpu_milli:
            return frozenset()
        gpus = range(self.milli.shape[2])
        return frozenset(gpu for gpu in gpus if not self.fits_until(shape, ReplicaSite(node, (gpu,)), until))

    # --- reservations --------------------------------------------------------------------------------------

    def room_in(self, shape: Shape, nodes: Ints, first: int, until: int) -> Ints:
        """
        Replicas that each of the nodes could take from slot `first` to before `until`.

        Exact for whole GPUs and for shapes without GPUs; an upper bound for shares and MIG, which `find`
        checks.
        """
        room: Ints = np.full(len(nodes), PLENTY, dtype=np.int64)
        if shape.gpus:
            room = self.whole[first:until, nodes].min(axis=0) // shape.gpus
        elif shape.gpu_milli:
            full = (self.whole[1:, nodes] < 1)[:, :, None] & (self.milli[1:, nodes] == MILLI)
            open_to = (self.shared[nodes] > 0) | ~full.any(axis=0)
            room = (self.milli[first:until, nodes].min(axis=0) // shape.gpu_milli * open_to).sum(axis=1)
        elif shape.mig:
            room = np.where(self.has_mig[nodes], PLENTY, 0)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, self.left[first:until, nodes, resource].min(axis=0) // amount)
        if self.left.shape[2]:
            room = np.where(self.left[first, nodes, 0] <= _NOT_YET // 2, 0, room)
        return np.maximum(room, 0)

    def find(self, shape: Shape, node: int, first: int, until: int) -> ReplicaSite | None:
        """A site for a replica from slot `first` to before `until`; None without one."""
        if not self.room_in(shape, np.array([node]), first, until)[0]:
            return None
        if shape.gpu_milli:
            gpu = self._share(shape.gpu_milli, node, first, until)
            return None if gpu is None else ReplicaSite(node, (gpu,))
        if shape.mig:
            slices = self._instances(shape, node, first, until)
            return None if slices is None else ReplicaSite(node, slices=slices)
        return ReplicaSite(node)

    def holds(self, shape: Shape, site: ReplicaSite, first: int, until: int) -> bool:
        """True if exactly this site may be reserved; of whole GPUs only the number counts."""
        node = site.node
        if not self.room_in(shape, np.array([node]), first, until)[0]:
            return False
        if shape.gpu_milli:
            return self._may_share(shape.gpu_milli, node, site.gpus[0], first, until)
        return all(
            (node, gpu) in self._used and self._may_hold(node, gpu, (profile, start))
            for gpu, profile, start in site.slices
        ) and self._may_coexist(node, site.slices, first, until)

    def reserve(self, shape: Shape, site: ReplicaSite, span: tuple[int, int], times: int) -> None:
        """Reserve a site from the first slot of a span to before the second; `times` -1 releases it."""
        node, (first, until) = site.node, span
        if shape.gpus:
            self._counted[first:until, node] += times * shape.gpus
        elif shape.gpu_milli:
            self.milli[first:until, node, site.gpus[0]] -= times * shape.gpu_milli
            self.shared[node, site.gpus[0]] += times
        for gpu, profile, start in site.slices:
            self._use(node, gpu, (profile, start), range(first, until), times)
        self._take(shape, node, slice(first, until), times)
        self.reserved[node] += times
        self.reservations += times
        if shape.gpus or shape.gpu_milli:
            self._recount(node)

    def free_from(self, node: int) -> list[int]:
        """By GPU index, the first slot from which it is wholly free for reservations; H if there is none."""
        whole = (self.milli[1:, node] == MILLI) & (self.shared[node] == 0)
        firsts = np.where(whole.any(axis=0), whole.argmax(axis=0) + 1, self.slots)
        return [int(slot) for slot in firsts]

    # --- helpers -------------------------------------------------------------------------------------------

    def _take(self, shape: Shape, node: int, span: slice, times: int) -> None:
        for resource, amount in enumerate(shape.amounts):
            if amount:
                self.left[span, node, resource] -= times * amount
        self.touch(node)

    def _recount(self, node: int) -> None:
        free = (self.milli[:, node] == MILLI) & (self.shared[node] == 0)
        self.whole[:, node] = free.sum(axis=1) - self._counted[:, node]

    def _share(self, share: int, node: int, first: int, until: int) -> int | None:
        """The GPU for a share: one with reserved shares, then one cut in slot 1, then the fullest it fits."""
        free = self.milli[first:until, node].min(axis=0)
        fitting = [
            (not self.shared[node, gpu], bool(self.milli[1, node, gpu] == MILLI), int(free[gpu]), gpu)
            for gpu in np.flatnonzero(free >= share).tolist()
        ]
        for _, _, _, gpu in sorted(fitting):
            if self._may_share(share, node, gpu, first, until):
                return int(gpu)
        return None

    def _may_share(self, share: int, node: int, gpu: int, first: int, until: int) -> bool:
        if (self.milli[first:until, node, gpu] < share).any():
            return False
        if self.shared[node, gpu]:
            return True
        # From now on the GPU is no whole GPU in any slot.
        lost = self.milli[1:, node, gpu] == MILLI
        return not (lost & (self.whole[1:, node] < 1)).any()

    def _layout(self, node: int, gpu: int, first: int, until: int) -> MigLayout:
        """A GPU in MIG mode with every instance that is in use in any of the slots."""
        used = frozenset[tuple[str, int]]().union(*self._used[node, gpu][first:until])
        return MigLayout(self._models[node] or "", self._existing[node, gpu], used)

    def _may_coexist(self, node: int, slices: Iterable[Slice], first: int, until: int) -> bool:
        """True if GPUs in MIG mode may have these instances beside those in use, in each of the slots."""
        slices = tuple(slices)
        # Instances that never overlap in time need not be legal together, so each slot is checked by itself.
        for slot in range(first, until) if slices else ():
            layouts = dict[int, MigLayout]()
            for gpu, profile, start in slices:
                layout = layouts.get(gpu) or self._layout(node, gpu, slot, slot + 1)
                if (profile, start) in layout.used:
                    return False
                layouts[gpu] = layout.holding((profile, start))
            if not all(is_legal(layout) for layout in layouts.values()):
                return False
        return True

    def _may_hold(self, node: int, gpu: int, place: InstancePlace) -> bool:
        return self._problem.charges.may_repartition or place in self._existing[node, gpu]

    def _instances(self, shape: Shape, node: int, first: int, until: int) -> tuple[Slice, ...] | None:
        model = self._models[node] or ""
        layouts = {
            gpu.index: self._layout(node, gpu.index, first, until) for gpu in self._problem.nodes[node].mig
        }
        found = []
        for profile in largest_first(model, shape.mig):
            spots = [
                (spot, gpu)
                for gpu, layout in sorted(layouts.items())
                if (
                    spot := best_instance_start(
                        layout,
                        profile,
                        frozenset({profile}),
                        may_create=self._problem.charges.may_repartition,
                    )
                )
            ]
            if not spots:
                return None
            spot, gpu = min(spots)
            layouts[gpu] = layouts[gpu].holding((profile, spot.start))
            found.append((gpu, profile, spot.start))
        return tuple(found)

    def _use(self, node: int, gpu: int, place: InstancePlace, slots: range, times: int) -> None:
        for slot in slots:
            used = self._used[node, gpu][slot]
            if times > 0:
                used.add(place)
            else:
                used.discard(place)
