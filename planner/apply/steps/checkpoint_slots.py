"""Checkpoint slots: how many jobs may save their state to one storage at the same time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import Disturbance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.apply.promises import Step


class CheckpointSlots:
    """
    The slots of each storage of which the policy limits the checkpoints (`apply.checkpoints`).

    An action holds its slot from its begin until it has landed or failed: a cluster does not tell when the
    checkpoint itself is written.
    """

    def __init__(self, plan: Plan) -> None:
        self._limits = plan.policy.apply.checkpoints
        limited = self._limits.keys()
        self._storage = (
            {
                job.name: job.checkpoint_storage
                for job in plan.snapshot.jobs
                if job.checkpoint_storage in limited
            }
            if limited
            else {}
        )

    def has_room(self, step: Step, under_way: Iterable[Step]) -> bool:
        """True if a step may begin beside those under way; always if it saves nothing to such a storage."""
        storage = self._storage_of(step)
        if storage is None:
            return True
        return sum(self._storage_of(each) == storage for each in under_way) < self._limits[storage]

    def queues(self, steps: Iterable[Step]) -> Mapping[str, tuple[int, int]]:
        """(checkpoints, slots) of each storage to which more of these steps save than there are slots."""
        saving = Counter(storage for step in steps if (storage := self._storage_of(step)) is not None)
        return {
            storage: (count, self._limits[storage])
            for storage, count in sorted(saving.items())
            if count > self._limits[storage]
        }

    def _storage_of(self, step: Step) -> str | None:
        return self._storage.get(step.job) if isinstance(step, Disturbance) else None
