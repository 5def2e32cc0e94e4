"""explain_node(plan, name) → NodeExplanation: its jobs, its free resources, and the waiting jobs near it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import MILLI, Count, Mib, Milli, Name, Timestamp, print_milli
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.text_format import (
    format_cpus,
    format_gib,
    format_gpus,
    format_mig_layout,
    node_size,
)
from gpuplan.planner.waiting.free_capacity import (
    CPU,
    DISK,
    GPUS,
    MEMORY,
    MIG,
    POWER,
    SHARE,
    FreeCapacity,
    replica_needs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.waiting.free_capacity import NodeRoom


class GpuHolder(Noun):
    """A job on one GPU."""

    job: Name
    holds: str
    """`1 GPU`, `0.46 GPU`, or a MIG profile."""


class GpuUse(Noun):
    """One GPU of a node."""

    index: Count
    healthy: bool
    fault: str = ""
    """What makes it unhealthy; empty if it is healthy or the cause is unknown."""
    layout: str | None
    """MIG layout in words; None if the GPU is not in MIG mode."""
    holders: tuple[GpuHolder, ...]
    """Sorted by name."""
    utilization: Count | None = None
    """Measured utilization in percent; None if unknown."""
    memory_mib: Mib | None = None
    """Memory measured to be in use; None if unknown."""
    free_milli: Milli = Field(alias="free")
    """0 if the GPU is unhealthy or in MIG mode."""


class NodeTenant(Noun):
    """A job on a node."""

    job: Name
    queue: Name
    user: Name
    priority: Count
    replicas: Count
    """Replicas on this node."""
    starts: bool
    """True if this plan starts it."""
    ends_at: Timestamp
    """Expected end."""


class NodeBooking(Noun):
    """A later start that the plan places on a node."""

    job: Name
    starts_at: Timestamp
    promised: bool


class NodeClosure(Noun):
    """A window in which a node is closed to most or all jobs."""

    reservation: Name
    begins_at: Timestamp
    ends_at: Timestamp


class Stranded(Noun):
    """A reason why waiting jobs that may use a node do not start on its free capacity."""

    why: str
    jobs: Count
    example: Name


class NodeExplanation(Noun):
    """Explanation of one node of a plan."""

    plan_id: str
    """Id of the plan."""
    epoch: Timestamp
    """The instant that the plan is for."""
    node: Name
    """Name of the node."""
    size: str
    """`8 × H100-80GB`."""
    state: tuple[str, ...]
    """Exceptional states: `cordoned`, `not ready` and similar."""
    state_reason: str = ""
    """Why it is cordoned, to be drained or down, as its operators say; empty if they gave no reason."""
    pool: Name | None
    """Pool that it belongs to; None if it is in none."""
    place: str
    """Region, zone, rack and NVLink island, as far as they are known."""
    price_per_hour: float
    """In the cluster's currency."""
    gpus: tuple[GpuUse, ...]
    """By index."""
    free_cpu_milli: Milli = Field(alias="free_cpus")
    """CPU cores free after the plan, in thousandths."""
    cpu_milli: Milli = Field(alias="cpus")
    """CPU cores of the node, in thousandths."""
    free_memory_mib: Mib
    """Memory free after the plan, in MiB."""
    memory_mib: Mib
    """Memory of the node, in MiB."""
    tenants: tuple[NodeTenant, ...] = ()
    """Sorted by expected end."""
    bookings: tuple[NodeBooking, ...] = ()
    """Later starts on the node."""
    closures: tuple[NodeClosure, ...] = ()
    """Windows in which it is closed to most or all jobs."""
    stranded: tuple[Stranded, ...] = ()
    """Most jobs first; empty if no waiting job may use the node."""


def explain_node(plan: Plan, name: str) -> NodeExplanation:
    """Gather what a plan says about a node; the plan may add or remove the node."""
    ground = PlanFeasibility(plan)
    known = plan.snapshot.cluster.node_by_name | {node.name: node for node in plan.target.added}
    node = ground.nodes.get(name, known[name])
    gone = name not in ground.nodes
    any_job = plan.snapshot.jobs[0] if plan.snapshot.jobs else None
    place = None if gone or any_job is None else _place(name, Hypothesis.unchanged(plan, any_job), ground)
    free = place.free if place else None
    return NodeExplanation(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        node=name,
        size=node_size(node),
        state=tuple(_state(node, plan, gone=gone)),
        state_reason=node.state_reason,
        pool=node.pool,
        place="/".join(part for part in (node.region, node.zone, node.rack, node.nvlink_island) if part),
        price_per_hour=node.price_per_hour,
        gpus=() if gone else tuple(_gpus(node, ground, place)),
        free_cpu_milli=print_milli(max(0, free.cpu_milli)) if free else 0,
        cpu_milli=print_milli(node.cpu_milli),
        free_memory_mib=max(0, free.memory_mib) if free else 0,
        memory_mib=node.memory_mib,
        tenants=tuple(_tenants(name, ground)),
        bookings=tuple(_bookings(name, ground)),
        closures=tuple(_closures(name, ground)),
        stranded=tuple(_stranded(place, ground)) if place else (),
    )


def _place(name: str, question: Hypothesis, ground: PlanFeasibility) -> NodeRoom:
    """Free capacity of the node, limited by its rack's power cap too."""
    place = ground.counting.place(name, question)
    return place._replace(power_milli=ground.counting.power.left_by_node.get(name))


def _state(node: Node, plan: Plan, *, gone: bool) -> Iterator[str]:
    if gone:
        yield "removed by this plan"
    if node.name in {added.name for added in plan.target.added}:
        yield "added by this plan"
    if not node.ready:
        yield "not ready"
    if node.cordoned:
        yield "cordoned"
    if node.drain:
        yield "to be drained"
    if node.spot:
        yield "spot"
    for taint in node.taints:
        yield f"taint {taint.key}"


def _gpus(node: Node, ground: PlanFeasibility, place: NodeRoom | None) -> Iterator[GpuUse]:
    if node.gpus is None:
        return
    holders: dict[int, list[GpuHolder]] = defaultdict(list)
    for job, replica in ground.on_node.get(node.name, ()):
        for held in replica.gpus:
            what = (
                format_gpus(held.milli) if isinstance(held, GpuShare) else f"{held.profile} at {held.start}"
            )
            holders[held.index].append(GpuHolder(job=job.name, holds=what))
    measured = {each.index: each for each in ground.plan.snapshot.measured if each.node == node.name}
    for index, gpu in node.gpus.by_index.items():
        seen = measured.get(index)
        milli = place.free.gpu_milli[index] if place else MILLI
        yield GpuUse(
            index=index,
            healthy=gpu.healthy,
            fault=gpu.fault,
            layout=None if gpu.mig is None else format_mig_layout(gpu.mig),
            utilization=seen.utilization if seen else None,
            memory_mib=seen.memory_mib if seen else None,
            holders=tuple(sorted(holders[index], key=lambda each: (each.job, each.holds))),
            free_milli=print_milli(max(0, milli)),
        )


def _tenants(name: str, ground: PlanFeasibility) -> Iterator[NodeTenant]:
    future = ground.outlook.future
    replicas = Counter(job.name for job, _ in ground.on_node.get(name, ()))
    stays = [future.stays[job] for job in replicas]
    for stay in sorted(stays, key=lambda each: (each.end, each.job.name)):
        job = stay.job
        yield NodeTenant(
            job=job.name,
            queue=job.queue,
            user=job.user,
            priority=job.priority,
            replicas=replicas[job.name],
            starts=job.running is None,
            ends_at=future.instant_at(stay.end),
        )


def _bookings(name: str, ground: PlanFeasibility) -> Iterator[NodeBooking]:
    future = ground.outlook.future
    later = [stay for stay in future.on_node.get(name, ()) if stay.slot]
    for stay in sorted(later, key=lambda each: (each.slot, each.job.name)):
        promised = future.planned[stay.job.name].promised
        yield NodeBooking(job=stay.job.name, starts_at=future.begin(stay.slot), promised=promised)


def _closures(name: str, ground: PlanFeasibility) -> Iterator[NodeClosure]:
    future = ground.outlook.future
    for window in future.windows.of(name):
        yield NodeClosure(
            reservation=window.reservation.name,
            begins_at=future.instant_at(window.begins),
            ends_at=future.instant_at(window.ends),
        )


def _stranded(place: NodeRoom, ground: PlanFeasibility) -> Iterator[Stranded]:
    """Waiting jobs that may use the node, by what one replica lacks there or else waits for."""
    plan = ground.plan
    jobs = plan.snapshot.job_by_name
    found: dict[str, list[str]] = defaultdict(list)
    kinds: dict[Any, str | None] = {}
    for waiting in plan.waiting:
        job = jobs[waiting.job]
        needs = replica_needs(job, ground.cluster, capped=place.power_milli is not None)
        kind = (eligibility_key(job), tuple(needs.items()))
        if kind not in kinds:
            kinds[kind] = _lacking(job, needs, place)
        lacking = kinds[kind]
        if lacking is not None:
            code = waiting.reason.code
            found[lacking or f"room here; {_WAITS.get(code, code.value)}"].append(job.name)
    for why, names in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        yield Stranded(why=why, jobs=len(names), example=names[0])


_WAITS: Final = {
    ReasonCode.HELD: "held",
    ReasonCode.RETRIES_USED_UP: "no retries left",
    ReasonCode.PREEMPTED: "stopped by this plan",
    ReasonCode.DEPENDENCY_NEVER: "can never start, for its dependencies",
    ReasonCode.DEADLINE_IMPOSSIBLE: "would miss its deadline",
    ReasonCode.NO_MATCHING_NODE: "no node matches",
    ReasonCode.EXCEEDS_MAX_QUOTA: "above the limit of its queue",
    ReasonCode.DEPENDENCY: "waits for other jobs",
    ReasonCode.BEGIN_TIME: "waits for its begin",
    ReasonCode.WAITING_FOR_QUOTA: "waits for quota",
    ReasonCode.RESOURCES: "too little room for all replicas",
    ReasonCode.FRAGMENTED: "too little room for all replicas",
    ReasonCode.LAYOUT_BLOCKED: "no MIG layout has room for it",
    ReasonCode.DOMAIN: "no domain has room for all replicas",
    ReasonCode.RESERVED: "would not end before a reservation",
    ReasonCode.CO_START: "waits for its group",
    ReasonCode.NOT_CHOSEN: "not chosen",
}
"""What a job waits for that would have room for a replica, as words to follow its room."""


def _lacking(job: Job, needs: dict[str, int], place: NodeRoom) -> str | None:
    """What one replica lacks on the node; empty if nothing, None if the node is not eligible for the job."""
    if ineligibility(job, place.node) is not None:
        return None
    pool = FreeCapacity([place])
    missing = [
        _words(dimension, pool)
        for dimension, need in needs.items()
        if not pool.count_replicas({dimension: need}, 1)
    ]
    return f"too few {' and '.join(missing)}" if missing else ""


def _words(dimension: str, pool: FreeCapacity) -> str:
    """A resource in words, with its free amount."""
    free = 0 if dimension.startswith(MIG) else pool.largest(dimension)
    match dimension:
        case _ if dimension.startswith(MIG):
            return f"MIG slices for {dimension.removeprefix(MIG)}"
        case _ if dimension == GPUS:
            return f"whole GPUs ({free:,} free)"
        case _ if dimension == SHARE:
            return f"shares of a GPU ({format_gpus(free)} free of one)"
        case _ if dimension == CPU:
            return f"CPUs ({format_cpus(free)} free)"
        case _ if dimension == MEMORY:
            return f"GiB of memory ({format_gib(free)} free)"
        case _ if dimension == DISK:
            return f"GiB of disk ({format_gib(free)} free)"
        case _ if dimension == POWER:
            return f"watts ({format_gpus(free)} may draw power)"
        case _:
            return f"{dimension} ({free:,} free)"
