"""Problems over several slots, built by hand: hours as slots, equal nodes, jobs by their lengths."""

from __future__ import annotations

from gpuplan.models.problem.jobs import HeldResources, JobClass, Option, PromisedStart, Shape
from gpuplan.models.problem.problem import FreeNode, NodeGroup, Problem, ReplicaRelease

MODEL = "H100-80GB"
HOUR = 3600
RESOURCES = ("cpu_milli", "memory_mib", "disk_mib")


def back(slot, *gpus, milli=1000, incumbent=None, cpu=0):
    """What a job gives back with a slot."""
    return ReplicaRelease(slot, tuple((gpu, milli) for gpu in gpus), (), (cpu, 0, 0), incumbent)


def node(name, free, *, of=None, cpu=64_000, returns=(), **more):
    """A node with `free` of its GPUs free, the last ones; the others are held."""
    total = free if of is None else of
    gpus = (0,) * (total - free) + (1000,) * free
    return FreeNode(name, gpus, (cpu, 10**6, 10**6), releases=tuple(returns), **more)


def ends(slots, hours):
    """By slot of the start: when a job of so many hours is gone."""
    return tuple(min(slots, slot + max(1, hours)) for slot in range(slots))


def worth(slots, hours, points):
    """Points by slot of the start: the share of its work done, and less the later it completes."""

    def at(slot):
        done = min(hours, slots - slot) / max(1, hours)
        return int(points * done * (1 - 0.1 * min(slot + hours, slots) / slots))

    return tuple(at(slot) for slot in range(slots))


def waiting(
    *names, slots, hours=1, gpus=1, milli=0, mig=(), points=1000, minimum=1, maximum=None, cpu=0, groups=(0,),
    ready=0, queue=0, **more,
):  # fmt: skip
    """A class of jobs of so many hours; `ready` is the first slot in which they may start."""
    by_slot = worth(slots, hours, points)
    option = Option(
        gpu_model=MODEL if gpus or milli or mig else None,
        groups=groups if ready == 0 else (),
        points=by_slot[0],
        ends=ends(slots, hours),
        later=(None, *(by_slot[slot] if slot >= ready else None for slot in range(1, slots))),
        later_groups=((), *((*groups, 1) if slot >= ready else () for slot in range(1, slots))),
    )
    return JobClass(
        jobs=names,
        shape=Shape(gpus, milli, (cpu, 0, 0), mig),
        minimum=minimum,
        maximum=minimum if maximum is None else maximum,
        queue=queue,
        options=(option,),
        seconds=hours * HOUR,
        earliest=ready,
        **more,
    )


def promised(start, *nodes, latest=None, gpus=(0,)):
    """A promise of a slot on nodes, a replica each."""
    holds = tuple(HeldResources(node, gpus) for node in nodes)
    return PromisedStart(start, start if latest is None else latest, holds)


def problem(nodes, classes, *, slots, widest=8, queues=("q",), **more):
    """Group 0 are the nodes that are there, group 1 those that open later."""
    return Problem(
        resources=RESOURCES,
        nodes=tuple(nodes),
        groups=tuple(
            NodeGroup(
                MODEL, widest, tuple(index for index, node in enumerate(nodes) if (node.opens > 0) == opening)
            )
            for opening in (False, True)
        ),
        classes=tuple(classes),
        queues=queues,
        budgets=more.pop("budgets", ()),
        edges=tuple(HOUR * slot for slot in range(slots + 1)),
        **more,
    )


def starts(ledger):
    """Slot of each start by job."""
    found = {}
    names = [iter(job_class.jobs) for job_class in ledger.problem.classes]
    for _, placed in sorted(ledger.placed.items()):
        found[next(names[placed.job_class])] = 0
    for _, booked in sorted(ledger.reserved.items(), key=lambda each: (each[1].slot, each[0])):
        found[next(names[booked.job_class])] = booked.slot
    return found
