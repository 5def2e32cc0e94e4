"""Text for what a planned start waits for: what blocks the job in the slot before its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.units import MILLI
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.prerequisites import Prerequisites
from gpuplan.planner.text_format import format_time
from gpuplan.planner.waiting.future_holds import FutureHolds
from gpuplan.planner.waiting.time_messages import until_done, window_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from gpuplan.models.placement import MigSlice, Replica
    from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule


class StartBlockers:
    """Texts for the planned starts of one plan; each text continues the word "waits"."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        self._slots = future.slots
        self._prerequisites = Prerequisites(future)
        self._held = FutureHolds(future)
        self._earnings = StartValue(future.snapshot, future.policy, future.durations)

    def text(self, name: str) -> str:
        """What a planned start waits for: the first cause that applies, and `for room` if none does."""
        stay = self._future.stays[name]
        return (
            self._on_its_own_account(stay)
            or self._on_its_nodes(stay)
            or self._on_who_ends(stay, its_gpus=stay.job.request.needs_gpu)
            or self._on_its_group(stay)
            or self._on_quota(stay)
            or self._on_price(stay)
            or self._on_who_ends(stay, its_gpus=False)
            or "for room"
        )

    def _on_its_own_account(self, stay: JobInterval) -> str:
        """Dependencies, a begin time or data, if the job starts in the first slot that they allow."""
        job, now = stay.job, self._future.snapshot.taken_at
        if job.depends_on:
            state = self._prerequisites.dependencies(job)
            if state.needed and state.slot == stay.slot:
                last = [each for each in state.decisive if each.slot == stay.slot]
                return f"until {until_done(last)}"
        data, moment = self._prerequisites.data(job), self._prerequisites.not_before(job)
        if data is not None and self._is_first_after(data[1], stay):
            return f"for dataset {data[0]}, available at {format_time(data[1], now)}"
        if moment is not None and self._is_first_after(moment, stay):
            return f"for its start time, {format_time(moment, now)}"
        return ""

    def _on_its_nodes(self, stay: JobInterval) -> str:
        """Nodes that become ready only then, or that a window would close for a start one slot earlier."""
        now = self._future.snapshot.taken_at
        for name in _nodes(stay.replicas):
            node = self._future.nodes.get(name)
            if node and not node.ready and node.ready_at and self._is_first_after(node.ready_at, stay):
                return f"for node {name}, ready at {format_time(node.ready_at, now)}"
        earlier = self._slots.edges[stay.slot - 1]
        for name in _nodes(stay.replicas):
            window = self._future.windows.blocking_window(stay.job, name, earlier, stay.seconds)
            if window is not None:
                return f"until {window_text(window, self._future)} is over"
        return ""

    def _on_who_ends(self, stay: JobInterval, *, its_gpus: bool) -> str:
        """Jobs that end in that slot on its GPUs, or anywhere on its nodes."""
        ending = {
            other.job.name
            for name in _nodes(stay.replicas)
            for other in self._future.on_node.get(name, ())
            if other.until == stay.slot
            and other.job.name != stay.job.name
            and (not its_gpus or overlap(stay.replicas, other.replicas))
        }
        return f"until {_end(sorted(ending))}" if ending else ""

    def _on_its_group(self, stay: JobInterval) -> str:
        """Other jobs of its co-start group."""
        group = stay.job.co_start
        if group is None:
            return ""
        others = sorted(
            other.job.name
            for other in self._future.stays.values()
            if other.job.co_start == group and other.slot == stay.slot and other.job.name != stay.job.name
        )
        return f"for its group {group}" if others else ""

    def _on_quota(self, stay: JobInterval) -> str:
        """A limit of its queue or of an ancestor that a start one slot earlier would exceed."""
        room = self._held.room(stay.slot - 1)
        model = self._future.gpu_model(stay.job, stay.replicas)
        needed = sum(replica.quota_milli for replica in stay.replicas)
        found = room.now(stay.job.queue, needed, (model,) if model else ()).shortage
        return f"for quota of queue {found.queue}" if found else ""

    def _on_price(self, stay: JobInterval) -> str:
        """A tariff that is higher one slot earlier."""
        job, replicas = stay.job, len(stay.replicas)
        model = self._future.gpu_model(job, stay.replicas)
        now, before = (
            self._earnings.tariff_points(job, model, replicas, start=start, seconds=stay.seconds)
            for start in (stay.start, self._slots.edges[stay.slot - 1])
        )
        return "for a cheaper time" if before > now else ""

    def _is_first_after(self, moment: datetime, stay: JobInterval) -> bool:
        return self._slots.after(self._future.second(moment)) == stay.slot


def overlap(some: Iterable[Replica], others: Sequence[Replica]) -> bool:
    """True if two jobs hold parts of one GPU that they cannot hold at the same time."""
    return any(
        one.node == other.node and _collide(mine, theirs)
        for one in some
        for other in others
        for mine in one.gpus
        for theirs in other.gpus
    )


def _collide(mine: GpuShare | MigSlice, theirs: GpuShare | MigSlice) -> bool:
    if mine.index != theirs.index:
        return False
    if isinstance(mine, GpuShare) and isinstance(theirs, GpuShare):
        return mine.milli + theirs.milli > MILLI
    # MIG instances of one GPU may overlap or not; the ending job is reported in both cases.
    return True


def _nodes(replicas: Iterable[Replica]) -> list[str]:
    return sorted({replica.node for replica in replicas})


def _end(names: Sequence[str]) -> str:
    """`a ends`, `a and b end`, `a and 2 others end`."""
    match names:
        case [one]:
            return f"{one} ends"
        case [one, other]:
            return f"{one} and {other} end"
        case _:
            return f"{names[0]} and {len(names) - 1:,} others end"
