"""Which jobs make room for which other jobs, derived from the dependencies between the steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from gpuplan.models.cluster import Rack, RackPower, rack_of
from gpuplan.models.queue import (
    ALL_MODELS,
    QuotaAmounts,
    amount_index,
    is_gpu_model,
    queue_and_above,
    resource_name,
)
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.allocations import count_usage
from gpuplan.planner.analysis.power_use import drawn_by_rack
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom
from gpuplan.planner.plan_builder.step_order import JobStep, LayoutStep, Step
from gpuplan.planner.text_format import format_quota, quota_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.models.placement import Replica
    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges


_Key = TypeVar("_Key")


class Beneficiaries:
    """Jobs that take what other jobs release, for the steps of one plan."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = {step.id: step for step in steps}
        self._of_jobs = [step for step in self._steps.values() if isinstance(step, JobStep)]

    def jobs_taking_over(self, step: JobStep) -> tuple[str, ...]:
        """Jobs that take the resources that a job released, sorted."""
        return tuple(sorted(self._followers.get(step.id, ())))

    def jobs_arriving_where_left(self, step: JobStep) -> tuple[str, ...]:
        """Jobs with new replicas on the nodes that a job left, sorted; they may need power."""
        names = {name for node in step.change.nodes_left for name in self._arriving.get(node, ())}
        return tuple(sorted(names - {step.change.job.name}))

    def jobs_replaced(self, step: JobStep) -> tuple[str, ...]:
        """Jobs that released the places a job takes, sorted."""
        return tuple(sorted(self._followed.get(step.id, ())))

    def waited_for(self, step: JobStep) -> tuple[JobStep, ...]:
        """The changes of jobs that a step waits for, though it takes no place of theirs; in their order."""
        # Releases are waited for as well, but are not among the steps.
        earlier = (self._steps.get(id_) for id_ in step.after if id_ not in step.places_of)
        return tuple(each for each in earlier if isinstance(each, JobStep))

    def served(self, step: LayoutStep) -> tuple[str, ...]:
        """
        Jobs that use the instances a repartition creates, sorted.

        One of several repartitions of a GPU may create no instance that is used; its jobs are then all jobs
        that take instances of this GPU.
        """
        coming = self._coming.get((step.change.node, step.change.gpu), ())
        return tuple(sorted(self._served.get(step.id, coming)))

    def arriving(self, node: str) -> tuple[str, ...]:
        """Jobs with new replicas on a node, sorted."""
        return tuple(sorted(self._arriving.get(node, ())))

    def leaving(self, node: str) -> tuple[str, ...]:
        """Jobs that release replicas on a node, sorted."""
        return tuple(sorted(self._leaving.get(node, ())))

    @cached_property
    def _served(self) -> dict[str, set[str]]:
        """Jobs with a step that depends on another step, by the id of that other step."""
        return self._jobs_by(lambda step: step.places_of)

    @cached_property
    def _coming(self) -> dict[tuple[str, int], set[str]]:
        """Jobs that take MIG instances, by node and GPU."""
        return self._jobs_by(
            lambda step: [
                (replica.node, held.index) for replica in step.change.arriving for held in replica.mig_slices
            ]
        )

    @cached_property
    def _followed(self) -> dict[str, set[str]]:
        """Jobs that released resources for a step, by the id of the step that takes them."""
        return {step.id: names for step in self._of_jobs if (names := self._released_before(step))}

    @cached_property
    def _followers(self) -> dict[str, set[str]]:
        """Jobs that take the resources of a step, by the id of the step that releases them."""
        step_of = {step.change.job.name: step.id for step in self._of_jobs}
        return self._jobs_by(lambda step: [step_of[name] for name in self._followed.get(step.id, ())])

    def _released_before(self, step: JobStep | LayoutStep) -> set[str]:
        """Jobs that released the resources that a step takes."""
        names: set[str] = set()
        for id_ in step.places_of if isinstance(step, JobStep) else step.after:
            match earlier := self._steps[id_]:
                case JobStep():
                    names.add(earlier.change.job.name)
                case LayoutStep() if earlier.change.before is None:
                    # The job released whole GPUs, and the step takes MIG instances cut from them.
                    names |= self._released_before(earlier)
                case _:
                    pass
        return names

    @cached_property
    def _arriving(self) -> dict[str, set[str]]:
        return self._jobs_by(lambda step: step.change.nodes_taken)

    @cached_property
    def _leaving(self) -> dict[str, set[str]]:
        return self._jobs_by(lambda step: step.change.nodes_left)

    def _jobs_by(self, keys: Callable[[JobStep], Iterable[_Key]]) -> dict[_Key, set[str]]:
        """Jobs by each of the keys that their steps have."""
        found: dict[_Key, set[str]] = defaultdict(set)
        for step in self._of_jobs:
            for key in keys(step):
                found[key].add(step.change.job.name)
        return dict(found)


# Quota or rack power that a job releases for jobs that start at other places.


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """An amount of quota or power that a job releases, and the jobs that take it."""

    text: str
    """`4 GPUs of queue research`, `2,800 W of rack r1`."""
    jobs: tuple[str, ...]
    """Sorted."""
    numbers: dict[str, int | float | str]
    of: str
    """`quota of queue research`, `power of rack r1`."""


@dataclass(frozen=True)
class ReleasedResources:
    """Quota and rack power that the changes of one plan release."""

    changes: PlanChanges
    _parts: dict[str, ReleasedPart | None] = field(default_factory=dict, init=False, repr=False)

    def released_part(self, change: JobChange) -> ReleasedPart | None:
        """Quota or power that other jobs would lack without this change; None if they would lack none."""
        name = change.job.name
        if name not in self._parts:
            parts = (*self._quota(change), *self._power(change))
            self._parts[name] = next((each for each in parts if each.jobs), None)
        return self._parts[name]

    def _quota(self, change: JobChange) -> Iterator[ReleasedPart]:
        left, taken = self._counted(change.leaving), self._counted(change.arriving)
        on_gpus = any(amount_index(resource) == 0 for resource in taken)
        for resource, amount in sorted((left - taken).items()):
            given = QuotaAmounts()._replace(**{QuotaAmounts._fields[amount_index(resource)]: amount})
            short = self._room.now(change.job.queue, given, (resource,)).shortage
            if short is None or (short.resource == ALL_MODELS and on_gpus):
                continue
            unit = ALL_MODELS if is_gpu_model(resource) else resource
            yield ReleasedPart(
                f"{format_quota(amount, unit)} of queue {short.queue}",
                tuple(sorted(self._who_takes_quota(change, short.queue, short.resource))),
                {"queue": short.queue, resource_name(unit): quota_number(amount, unit)},
                f"quota of queue {short.queue}",
            )

    def _who_takes_quota(self, change: JobChange, queue: str, resource: str) -> Iterator[str]:
        for other, takes in self._takers[queue]:
            counted = takes[resource] or (resource == ALL_MODELS and any(map(is_gpu_model, takes)))
            if other is not change and counted:
                yield other.job.name

    @cached_property
    def _takers(self) -> dict[str, list[tuple[JobChange, Counter[str]]]]:
        """Jobs that take more than they release, with net amounts by resource, by queue and ancestor."""
        parents = self.changes.snapshot.parent_queues
        found: dict[str, list[tuple[JobChange, Counter[str]]]] = defaultdict(list)
        for change in self.changes.jobs:
            if takes := self._counted(change.arriving) - self._counted(change.leaving):
                for name in queue_and_above(change.job.queue, parents):
                    found[name].append((change, takes))
        return found

    def _power(self, change: JobChange) -> Iterator[ReleasedPart]:
        for cap in self.changes.cluster.rack_power:
            given = self._drawn(cap, change.leaving) - self._drawn(cap, change.arriving)
            if given <= 0 or self._drawn_in_all[rack_of(cap)] + given <= cap.watts * MILLI:
                continue
            takers = (
                other.job.name
                for other in self.changes.jobs
                if self._drawn(cap, other.arriving) > self._drawn(cap, other.leaving)
            )
            watts = given // MILLI
            yield ReleasedPart(
                f"{watts:,} W of rack {cap.rack}",
                tuple(sorted(takers)),
                {"rack": cap.rack, "watts": watts},
                f"power of rack {cap.rack}",
            )

    def _counted(self, replicas: Iterable[Replica]) -> Counter[str]:
        """What replicas count for against quotas, by GPU model and `NOT_OF_GPUS`."""
        held: Counter[str] = Counter()
        for replica in replicas:
            count_usage(held, replica, self.changes.nodes[replica.node].gpu_model)
        return +held

    def _drawn(self, cap: RackPower, replicas: Iterable[Replica]) -> int:
        """Thousandths of watts that replicas draw on a rack."""
        return drawn_by_rack(replicas, self.changes.nodes)[rack_of(cap)]

    @cached_property
    def _drawn_in_all(self) -> Counter[Rack]:
        placements = self.changes.target.placements
        replicas = (replica for placement in placements for replica in placement.replicas)
        return drawn_by_rack(replicas, self.changes.nodes)

    @cached_property
    def _room(self) -> QuotaHeadroom:
        return QuotaHeadroom(self.changes.snapshot.queues, self.changes.allocations_after.usage)
