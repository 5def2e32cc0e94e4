"""The rule about promises: a promised start is kept, unless reasons beyond the plan prevent it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, Promise, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.settings import BackfillMode
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.context import Context, Interval
from gpuplan.models.verifier.later_slots import (
    INSTANT_RULES,
    breaks_rule,
    state_if_all_present,
    state_in_slot,
)
from gpuplan.models.verifier.rules.dependencies import co_start_groups, unmet_start_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job


def promises(case: Context) -> Iterator[Violation]:
    """
    A pending job with a promised start within the horizon starts by then, or within the allowed delay.

    The exception is a job that could not start even if nothing were decided about other jobs: its places no
    longer suit it or are closed, it depends on jobs that are still pending, or its resources are held by
    running jobs as they run now, or by other promised jobs, either as promised or as planned. Doubtful cases
    are not violations: jobs with anti-affinity exclude each other regardless of time, and so do a share of a
    GPU and a request for the whole GPU. A start that is due now is none of a rollback, which starts only what
    its plan had stopped.
    """
    if case.time.slots.count == 1 or not any(job.promise for job in case.snapshot.jobs):
        return
    book = _PromiseBook(case)
    for job in case.snapshot.jobs:
        due = book.missed_second(job)
        if due is not None and book.is_together(job) and all(map(book.could_start, book.company(job))):
            start = case.time.starts.get(job.name)
            found = f"starts at {case.time.format_instant(start.start)}" if start else "starts in no slot"
            allowed = f"starts by {case.time.format_instant(due)}, as promised"
            yield Violation(Rule.PROMISES, f"job {job.name}", found, allowed)


class _PromiseBook:
    """Promises of a case, and whether they could be kept."""

    def __init__(self, case: Context) -> None:
        self._case = case
        self._time = case.time
        self._groups = co_start_groups(case)

    def missed_second(self, job: Job) -> int | None:
        """The second by which a job should start and does not; None if it does or has no promise."""
        slot = self._slot(job)
        if job.promise is None or slot is None or (slot == 0 and self._case.undo.rolls_back):
            return None
        due = self._due(job.promise)
        start = self._time.starts.get(job.name)
        if due >= self._time.slots.end or (start and start.slot <= self._time.begun(due)):
            return None
        return due

    def _due(self, promise: Promise) -> int:
        """The second by which a promise must be kept."""
        backfill = self._case.policy.horizon.backfill
        delay = backfill.max_delay if backfill.mode is BackfillMode.AGGRESSIVE else 0
        return self._time.seconds_to(promise.start) + delay

    def is_together(self, job: Job) -> bool:
        """True if all jobs of its co-start group have the same last slot."""
        return len({self._slot(each) for each in self.company(job)}) == 1

    def company(self, job: Job) -> list[Job]:
        """The job and the other jobs of its co-start group."""
        names = self._groups.get(job.co_start, [job.name]) if job.co_start else [job.name]
        return [self._case.jobs[name] for name in names]

    def could_start(self, job: Job) -> bool:
        """True if a job could have its promised places in time, whatever else is decided."""
        promise, slot = job.promise, self._slot(job)
        if promise is None or slot is None or len(promise.replicas) != job.gang.minimum:
            return False
        awaited = (self._case.jobs.get(each.job) for each in job.depends_on)
        if any(other and other.running and self._time.must_leave(other) for other in awaited):
            return False  # the plan decides whether a job that it depends on runs to its end
        stay = self._time.interval_of_start(job, slot, _with_what_is_asked(job, promise.replicas))
        if (
            self._time.start_value.misses_hard_deadline(job, start=stay.start, seconds=stay.seconds)
            or any(True for _ in unmet_start_conditions(self._case, stay, {}))
            or any(
                self._time.windows.blocking_window(job, replica.node, stay.start, stay.seconds)
                or not self._modes_suit(replica)
                for replica in promise.replicas
            )
        ):
            return False
        # In doubt the plan is right: a start was put off without need only if it fits beside other promises
        # both as they were given and as this plan keeps them.
        return self._fits(stay, self._as_planned(stay)) and self._fits(stay, self._as_promised(stay))

    def _slot(self, job: Job) -> int | None:
        """
        The last slot in which a pending job may start; 0 if its promised start is due now.

        None without a promise, or with one after the horizon.
        """
        if job.promise is None or job.running or job.withheld:
            return None
        second = self._time.seconds_to(job.promise.start)
        if second >= self._time.slots.end:
            return None
        return self._time.begun(self._due(job.promise)) if self._time.begun(second) else 0

    @cached_property
    def _promised(self) -> list[Interval]:
        """Jobs with a promised start, as promised, by slot."""
        found = [
            self._time.interval_of_start(job, slot, _with_what_is_asked(job, job.promise.replicas))
            for job in self._case.snapshot.jobs
            if job.promise and (slot := self._slot(job)) is not None
        ]
        return sorted(found, key=lambda stay: (stay.slot, stay.job.name))

    @cached_property
    def _running(self) -> list[Interval]:
        """Running jobs, if left unchanged."""
        time = self._time
        return [
            Interval(job, job.placement, 0, 0, seconds, time.slots.until(0, seconds))
            for job in self._case.running
            if job.placement and (seconds := time.durations.remaining(job))
        ]

    @cached_property
    def _running_on(self) -> dict[str, list[Interval]]:
        """Running jobs by node."""
        found: dict[str, list[Interval]] = defaultdict(list)
        for stay in self._running:
            for name in {replica.node for replica in stay.placement.replicas}:
                found[name].append(stay)
        return found

    def _as_planned(self, stay: Interval) -> list[Interval]:
        """Other jobs with a promised start, as in this plan."""
        starts = self._time.starts
        names = [each.job.name for each in self._promised if each.job is not stay.job]
        return [starts[name] for name in names if name in starts]

    def _as_promised(self, stay: Interval) -> list[Interval]:
        """
        Other jobs with a promised start, as promised.

        On the nodes of `stay` they get GPUs that are free then, since the GPU indices in promises may be
        outdated.
        """
        names = {replica.node for replica in stay.placement.replicas}
        found: list[Interval] = []
        for each in self._promised:
            if each.job is stay.job:
                continue
            meet = any(replica.node in names for replica in each.placement.replicas)
            replicas = self._on_free_gpus(each, found) if meet else None
            found.append(self._time.interval_of_start(each.job, each.slot, replicas) if replicas else each)
        return found

    def _fits(self, stay: Interval, others: list[Interval]) -> bool:
        """True if a stay beside running jobs and others breaks no rule from its slot to its end."""
        replicas = self._on_free_gpus(stay, others)
        if replicas is None:
            return False
        here = self._time.interval_of_start(stay.job, stay.slot, replicas)
        present = [*self._running, *others, here]
        new = {here.job.name}
        meanwhile = [each for each in present if each.slot < here.until and here.slot < each.until]
        if breaks_rule(state_if_all_present(self._case, present, new), Rule.ANTI_AFFINITY) or breaks_rule(
            state_if_all_present(self._case, meanwhile, new), Rule.MIG
        ):
            return False
        if not self._leaves_whole_gpus(here, others):
            return False
        begins = state_in_slot(self._case, present, here.slot, new)
        crowd = replace(state_if_all_present(self._case, meanwhile, new), changed_nodes=begins.changed_nodes)
        if not breaks_rule(crowd, *INSTANT_RULES):
            return True  # it fits beside all overlapping jobs at once, and so in every single slot
        slots = {each.slot for each in others if here.covers(each.slot)} | {here.slot}
        return not any(
            breaks_rule(state_in_slot(self._case, present, slot, new), *INSTANT_RULES)
            for slot in sorted(slots)
        )

    def _leaves_whole_gpus(self, here: Interval, others: list[Interval]) -> bool:
        """True if in every slot the others find enough whole GPUs beside those with promised shares."""
        for name in sorted({replica.node for replica in here.placement.replicas if _shares(replica)}):
            promised = [
                (each, replica)
                for each in (*others, here)
                for replica in each.placement.replicas
                if replica.node == name
            ]
            shared = {index for _, replica in promised for index in _shares(replica)}
            for slot in range(1, self._time.slots.count):
                busy = {
                    held.index
                    for each in self._running_on.get(name, ())
                    if each.covers(slot)
                    for replica in each.placement.replicas
                    if replica.node == name
                    for held in replica.gpus
                }
                free = len(set(self._sound_gpus(name)) - shared - busy)
                if free < sum(len(_whole(replica)) for each, replica in promised if each.covers(slot)):
                    return False
        return True

    def _modes_suit(self, replica: Replica) -> bool:
        """True if all MIG instances of a replica are on GPUs in MIG mode."""
        node = self._case.snapshot.cluster.node_by_name.get(replica.node)
        in_mode = (
            {gpu.index for gpu in node.gpus.by_index.values() if gpu.mig is not None}
            if (node and node.gpus)
            else set()
        )
        return all(held.index in in_mode for held in replica.gpus if not isinstance(held, GpuShare))

    def _on_free_gpus(self, stay: Interval, others: Iterable[Interval]) -> tuple[Replica, ...] | None:
        """The places of a stay, on whole GPUs that are free during it; None if there are too few."""
        replicas = stay.placement.replicas
        names = {replica.node for replica in replicas}
        around = [each for name in names for each in self._running_on.get(name, ())]
        taken = {
            (replica.node, held.index)
            for each in (*around, *others)
            for replica in each.placement.replicas
            if replica.node in names
            for held in replica.gpus
            if (each.slot < stay.until and stay.slot < each.until)
            or (each.job.running is None and held.index in _shares(replica))
        }
        found = []
        for replica in replicas:
            whole = _whole(replica)
            rest = tuple(held for held in replica.gpus if held not in whole)
            wanted = len(whole)
            free = [index for index in self._sound_gpus(replica.node) if (replica.node, index) not in taken]
            if len(free) < wanted:
                return None
            chosen = free[:wanted]
            taken |= {(replica.node, index) for index in chosen}
            gpus = (*(GpuShare(index=index, milli=MILLI) for index in chosen), *rest)
            found.append(replica.model_copy(update={"gpus": gpus}))
        return tuple(found)

    def _sound_gpus(self, name: str) -> list[int]:
        """GPUs of a node that may be held whole."""
        node = self._case.snapshot.cluster.node_by_name.get(name)
        gpus = node.gpus.by_index.values() if node and node.gpus else ()
        return [gpu.index for gpu in gpus if gpu.healthy and gpu.mig is None]


def _whole(replica: Replica) -> list[GpuShare]:
    return [held for held in replica.gpus if isinstance(held, GpuShare) and held.milli == MILLI]


def _shares(replica: Replica) -> list[int]:
    """GPUs of which a replica holds a share."""
    return [held.index for held in replica.gpus if isinstance(held, GpuShare) and held.milli < MILLI]


def _with_what_is_asked(job: Job, replicas: Iterable[Replica]) -> tuple[Replica, ...]:
    """The places with CPU, memory etc. as requested now: a promise fixes only nodes and GPUs."""
    asked = {
        "cpu_milli": job.request.cpu_milli,
        "memory_mib": job.request.memory_mib,
        "disk_mib": job.request.disk_mib,
        "resources": job.request.resources,
    }
    return tuple(replica.model_copy(update=asked) for replica in replicas)
