"""The rule about what later starts count on: nothing that the plan takes from running jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.context import Context, Interval
from gpuplan.models.verifier.later_slots import INSTANT_RULES, SHARED_RESOURCES, state_in_slot

if TYPE_CHECKING:
    from collections.abc import Iterator


def undisturbed(case: Context) -> Iterator[Violation]:
    """
    Later starts of pending jobs fit beside all running jobs as they run now, each to its expected end.

    So none counts on what the plan takes from a running job. Jobs that start now, and preempted jobs that
    resume, are left out here: the other rules check the cluster with them. Of whole GPUs of a node only the
    number counts.
    """
    planned = [stay for stay in case.time.later if stay.job.running is None]
    # Where no running job is disturbed, the rules have been asked about just this in each slot.
    if not planned or all(job.name in case.time.kept for job in case.running):
        return
    running = _as_they_run_now(case)
    for slot in sorted({stay.slot for stay in planned}):
        # Indices were chosen with the stopped jobs gone; any other free GPU of the node is as good.
        there = [stay for stay in planned if stay.covers(slot)]
        there = _on_any_gpus(case, there, [stay for stay in running if stay.covers(slot)])
        then = state_in_slot(case, (*running, *there), slot, {stay.job.name for stay in there})
        for rule in SHARED_RESOURCES:
            for each in INSTANT_RULES[rule](then):
                found = f"{each.found} beside the running jobs"
                yield Violation(Rule.UNDISTURBED, f"{each.subject} in slot {slot}", found, each.allowed)


def _as_they_run_now(case: Context) -> list[Interval]:
    """Running jobs, if left unchanged."""
    time = case.time
    return [
        Interval(job, job.placement, 0, 0, seconds, time.slots.until(0, seconds))
        for job in case.running
        if job.placement and (seconds := time.durations.remaining(job))
    ]


def _on_any_gpus(case: Context, planned: list[Interval], around: list[Interval]) -> list[Interval]:
    """Later starts on whole GPUs of their nodes that nothing else holds, as far as there are any."""
    names = {replica.node for stay in planned for replica in stay.placement.replicas}
    taken = {
        (replica.node, held.index)
        for stay in (*around, *planned)
        for replica in stay.placement.replicas
        if replica.node in names
        for held in replica.gpus
        if stay.job.running or not _is_whole(held)
    }
    free = {
        name: [
            gpu.index
            for gpu in node.gpus.by_index.values()
            if gpu.healthy and gpu.mig is None and (name, gpu.index) not in taken
        ]
        for name in sorted(names)
        if (node := case.nodes.get(name)) and node.gpus
    }

    def on_free_gpus(replica: Replica) -> Replica:
        left = free.get(replica.node, [])
        own = [each.index for each in replica.gpus if _is_whole(each) and each.index in left]
        for index in own:
            left.remove(index)
        held = (
            each
            if each.index in own or not left or not _is_whole(each)
            else GpuShare(index=left.pop(0), milli=MILLI)
            for each in replica.gpus
        )
        return replica.model_copy(update={"gpus": tuple(held)})

    def anywhere(stay: Interval) -> Interval:
        replicas = tuple(map(on_free_gpus, stay.placement.replicas))
        return replace(stay, placement=stay.placement.model_copy(update={"replicas": replicas}))

    return list(map(anywhere, planned))


def _is_whole(held: GpuShare | MigSlice) -> bool:
    return isinstance(held, GpuShare) and held.milli == MILLI
