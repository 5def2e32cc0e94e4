"""Every schedule of a small instance, of which the verifier says what is legal."""

from __future__ import annotations

import itertools
from collections import Counter

from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.plan.solution import DesiredState, LaterStart
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_milli
from gpuplan.models.verifier.verify import verify_target
from tests.support.seeds import EVERY_SEED

MOST_JUDGED = 6_000 if EVERY_SEED else 2_000
"""Schedules of one instance at most: of eighty instances six have more, which took most of the time."""


class TooLargeError(Exception):
    """There is too much to try."""


def judged(snapshot, policy, target):
    """The verifier's answer to a target."""
    return verify_target(snapshot, policy, target)


def best_schedule(snapshot, policy, *, stopping=()):
    """(target, objective) of the best legal schedule; running jobs named by `stopping` may be preempted."""
    best = None
    # Of too many none is judged: that takes far longer than to find out that there are too many.
    for target in list(every_schedule(snapshot, policy, stopping=stopping)):
        verification = judged(snapshot, policy, target)
        if not verification.violations and (best is None or verification.objective > best[1]):
            best = target, verification.objective
    return best


def every_schedule(snapshot, policy, *, stopping):
    """Targets, legal or not, that start waiting jobs or resume stopped ones where there are GPUs for all."""
    slots, durations = TimeSlots.of(policy.horizon, snapshot.taken_at), Durations(snapshot, policy)
    running = [job for job in snapshot.jobs if job.running]
    waiting = [job for job in snapshot.jobs if not job.running and not job.held]
    fates = itertools.product(*((True, False) if job.name in stopping else (True,) for job in running))
    count = 0
    for stays in fates:
        kept = [job for job, stay in zip(running, stays, strict=True) if stay]
        stopped = [job for job, stay in zip(running, stays, strict=True) if not stay and not job.held]
        held = [(job.running.replicas, 0, slots.until(0, durations.remaining(job))) for job in kept]
        for chosen in _choices(snapshot, slots, durations, [*waiting, *stopped], held):
            count += 1
            if count > MOST_JUDGED:
                raise TooLargeError
            yield _target(snapshot, slots, kept, held, chosen)


def _choices(snapshot, slots, durations, waiting, held):
    """Every way to start some with GPUs for all, stopped ones in later slots: (job, slot, end, nodes)."""
    free = {}
    for node in snapshot.cluster.nodes:
        for slot in range(slots.count):
            free[node.name, slot] = node.gpu_count
    for replicas, first, until in held:
        for replica in replicas:
            for slot in range(first, until):
                free[replica.node, slot] -= len(replica.gpus)

    def extend(position, chosen):
        if position == len(waiting):
            yield tuple(chosen)
            return
        yield from extend(position + 1, chosen)
        job = waiting[position]
        names = [node.name for node in snapshot.cluster.nodes if node.gpus]
        takes = durations.again if job.running else durations.seconds
        for slot in range(1 if job.running else 0, slots.count):
            for nodes in itertools.combinations_with_replacement(names, job.gang.minimum):
                end = slots.until(slot, takes(job, snapshot.cluster.node_by_name[nodes[0]].gpu_model))
                taken = {
                    (name, when): count * job.request.gpus
                    for name, count in Counter(nodes).items()
                    for when in range(slot, end)
                }
                if all(free[at] >= amount for at, amount in taken.items()):
                    for at, amount in taken.items():
                        free[at] -= amount
                    yield from extend(position + 1, [*chosen, (job, slot, end, nodes)])
                    for at, amount in taken.items():
                        free[at] += amount

    yield from extend(0, [])


def _target(snapshot, slots, kept, held, chosen):
    busy = [
        (replica.node, share.index, first, until)
        for replicas, first, until in held
        for replica in replicas
        for share in replica.gpus
    ]
    placements = [Placement(job=job.name, replicas=job.running.replicas) for job in kept]
    planned = []
    for job, slot, end, nodes in sorted(chosen, key=lambda each: each[1]):
        replicas = []
        for name in nodes:
            used = {
                index for node, index, first, until in busy if node == name and first < end and slot < until
            }
            indices = [
                index for index in range(snapshot.cluster.node_by_name[name].gpu_count) if index not in used
            ][: job.request.gpus]
            busy += [(name, index, slot, end) for index in indices]
            request = job.request
            replicas.append(
                Replica(
                    node=name,
                    gpus=tuple(GpuShare(index=index, milli=1000) for index in indices),
                    cpus=print_milli(request.cpu_milli),
                    memory_mib=request.memory_mib,
                )
            )
        if slot:
            planned.append(LaterStart(job.name, slot, tuple(replicas)))
        else:
            placements.append(Placement(job=job.name, replicas=tuple(replicas)))
    return DesiredState(
        tuple(sorted(placements, key=lambda each: each.job)),
        planned=tuple(sorted(planned, key=lambda each: each.job)),
    )
