"""Messages of waiting reasons: one sentence with its numbers, and the numbers again for programs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.queue import ALL_MODELS, amount_index, is_gpu_model, resource_name
from gpuplan.models.units import MILLI, print_milli, print_timestamp
from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_duration,
    format_gib,
    format_gpus,
    format_quota,
    format_time,
    join_first_names,
    join_jobs,
    join_with_and,
    quota_number,
    replica_size,
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
    profiles_in,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Level
    from gpuplan.models.job import Job
    from gpuplan.models.value.queue_rollout import RolloutStart
    from gpuplan.planner.analysis.quota_headroom import QuotaShortage
    from gpuplan.planner.waiting.eligible_nodes import EligibleNodes


_MOST_REFUSALS_TOLD: Final = 3


def held(job: Job) -> Reason:
    """The job is held: for a reason that is told, or by its user or an operator."""
    text = f"held, since {job.hold_reason}" if job.hold_reason else "held by its user or an operator"
    return make_reason(ReasonCode.HELD, text)


def retries_used_up(failures: int, retries: int) -> Reason:
    """The job has failed more often than it may be tried again."""
    allowed = f"{retries:,} {'retry' if retries == 1 else 'retries'}" if retries else "no retry"
    text = f"failed {format_count(failures, 'time')}, {allowed} allowed"
    return make_reason(ReasonCode.RETRIES_USED_UP, text, failures=failures, retries=retries)


def preempted(followers: Sequence[str]) -> Reason:
    """The plan preempts the job; `followers` are the jobs that take its place."""
    text = f"stopped to make room for {join_jobs(followers)}" if followers else "stopped by this plan"
    return make_reason(ReasonCode.PREEMPTED, text, makes_room_for=", ".join(followers))


def no_match(job: Job, match: EligibleNodes, present: set[str]) -> Reason:
    """No node passes the job's filters; `present` are the GPU models of the cluster."""
    if job.request.needs_gpu and job.gpu_models and not present & job.gpu_models.keys():
        wanted, there = " or ".join(sorted(job.gpu_models)), ", ".join(sorted(present)) or "no GPUs"
        return make_reason(
            ReasonCode.NO_MATCHING_NODE, f"no node has GPU model {wanted}; the cluster has {there}"
        )
    if not match.refusals:
        return make_reason(ReasonCode.NO_MATCHING_NODE, "the cluster has no nodes")
    ordered = sorted(match.refusals.items(), key=lambda item: (-item[1], item[0]))
    told, rest = ordered[:_MOST_REFUSALS_TOLD], ordered[_MOST_REFUSALS_TOLD:]
    parts = [f"{text} ({format_count(nodes, 'node')})" for text, nodes in told]
    if rest:
        parts.append(f"other reasons ({format_count(sum(nodes for _, nodes in rest), 'node')})")
    return make_reason(ReasonCode.NO_MATCHING_NODE, f"no node matches: {', '.join(parts)}", **dict(told))


def beyond_quota(code: ReasonCode, found: QuotaShortage) -> Reason:
    """A quota limit blocks the job, now or in every case."""
    if code is ReasonCode.EXCEEDS_MAX_QUOTA:
        says = f"queue {found.queue} may never hold more than {format_quota(found.limit, found.resource)}"
    else:
        says = f"queue {found.queue} uses {format_quota(found.limit, found.resource, used=found.used)}"
    needed = format_quota(found.needed, ALL_MODELS if is_gpu_model(found.resource) else found.resource)
    return make_reason(
        code,
        f"needs {needed}; {says}",
        queue=found.queue,
        **resource_numbers(found.resource),
        used=quota_number(found.used, found.resource),
        limit=quota_number(found.limit, found.resource),
        needed=quota_number(found.needed, found.resource),
    )


def resource_numbers(resource: str) -> dict[str, str]:
    """The resource of a quota: its GPU model, empty for all models; or CPU cores (`cpus`), or `memory`."""
    if amount_index(resource):
        return {"resource": resource_name(resource)}
    return {"gpu_model": resource}


RESERVED: Final = "has room only where the plan stops jobs; what they leave is for jobs of higher priority"
AVOIDED: Final = "has room only beside jobs it must not meet"


def too_far_apart(job: Job, found: int, domain: str) -> Reason:
    """Each replica fits, but not all of them within the required domain and the spread limit."""
    wanted = f"needs {times_prefix(job.gang.minimum)}{replica_size(job.request)}"
    spread = f", at most {job.spread.most:,} on each {_word(job.spread.level)}" if job.spread else ""
    level = job.locality.required
    if level is None or job.gang.minimum == 1:
        return make_reason(
            ReasonCode.FRAGMENTED,
            f"{wanted}{spread}; {found:,} found",
            replicas=job.gang.minimum,
            found=found,
        )
    room = f"the largest has room for {found:,}" if found else "none has room for one"
    return make_reason(
        ReasonCode.DOMAIN,
        f"{wanted} in one {_word(level)}{spread}; {room}{f' ({domain})' if found else ''}",
        needed=job.gang.minimum,
        largest=found,
        level=level.value,
        domain=domain if found else "",
    )


def blocked_room(text: str, nodes: Collection[str]) -> Reason:
    """The only nodes with capacity are closed to this job."""
    return make_reason(ReasonCode.NOT_CHOSEN, f"{text} ({join_first_names(sorted(nodes))})", nodes=len(nodes))


def new_nodes(pool: str, price: int, value: int) -> Reason:
    """Only new nodes would have capacity."""
    return make_reason(
        ReasonCode.NOT_CHOSEN,
        f"has room only on new nodes of pool {pool}, at {price:,} points each; brings {value:,} points",
        pool=pool,
        node_points=price,
        points=value,
    )


def cost_exceeds_value(cost: int, value: int) -> Reason:
    """The places where the job fits cost more than it brings."""
    return make_reason(
        ReasonCode.NOT_CHOSEN,
        f"would fit, but costs at least {cost:,} points there and brings {value:,}",
        cost=cost,
        points=value,
    )


def waits_for_better(model: str, best: str, until: datetime, now: datetime) -> Reason:
    """The job would fit on a GPU model, but still waits for another one, on which it ends much sooner."""
    return make_reason(
        ReasonCode.NOT_CHOSEN,
        f"would fit on {model}, but waits for {best}, which is much better for it; "
        f"starts on {model} from {format_time(until, now)} on at the latest",
        gpu_model=model,
        waits_for=best,
        until=print_timestamp(until),
    )


def starts_later(start: RolloutStart, now: datetime) -> Reason:
    """The job would fit, but those of its or of a higher priority complete sooner if it starts later."""
    begins = now + timedelta(seconds=start.begins)
    return make_reason(
        ReasonCode.NOT_CHOSEN,
        f"would fit, but the waiting jobs complete {format_duration(start.saved)} sooner on average if it "
        f"starts on {start.gpu_model} at about {format_time(begins, now)}",
        gpu_model=start.gpu_model,
        starts=print_timestamp(begins),
        saved_seconds=start.saved,
    )


def zero_weight() -> Reason:
    """The job's weight is 0."""
    return make_reason(ReasonCode.NOT_CHOSEN, "has weight 0: starting it earns nothing")


def not_chosen(*, proven: bool) -> Reason:
    """The job would fit, but the plan does not start it."""
    if proven:
        return make_reason(ReasonCode.NOT_CHOSEN, "would fit, but no plan with it scores more")
    return make_reason(
        ReasonCode.NOT_CHOSEN, "would fit, but no plan with it that keeps all rules and scores more was found"
    )


def _word(level: Level) -> str:
    return level.value.replace("_", " ")


# Messages of a capacity shortage: the resource, the amount needed and the amount free.


def too_large(empty: FreeCapacity, needs: Mapping[str, int]) -> Reason:
    """One replica fits on no matching node, even if the node were empty."""
    nodes = format_count(len(empty), "matching node")
    for dimension, need in needs.items():
        if dimension.startswith(MIG) and not empty.largest(dimension):
            cut = empty.free_slices()[1]
            where = f"no GPU of {nodes} is in MIG mode, and the policy switches none to it"
            if cut:
                where = f"{format_count(cut, 'GPU')} in MIG mode of {nodes} cannot have that"
            return make_reason(
                ReasonCode.NO_MATCHING_NODE,
                f"one replica needs {_amount(dimension, need)}; {where}",
                needed=_amount(dimension, need),
                gpus_in_mig_mode=cut,
            )
        if (largest := empty.largest(dimension)) < need:
            return make_reason(
                ReasonCode.NO_MATCHING_NODE,
                f"one replica needs {_amount(dimension, need)}; "
                f"the largest of {nodes} has {_amount(dimension, largest)}",
                needed=_number(dimension, need),
                largest=_number(dimension, largest),
            )
    together = join_with_and(_amount(dimension, need) for dimension, need in needs.items())
    return make_reason(
        ReasonCode.NO_MATCHING_NODE, f"one replica needs {together}; none of {nodes} has all of it"
    )


def wrong_layout(needs: Mapping[str, int], why: str) -> Reason:
    """No GPU has the needed MIG instances, and none is repartitioned; `why` says what forbids it."""
    wanted = join_with_and(
        _amount(dimension, need) for dimension, need in needs.items() if dimension.startswith(MIG)
    )
    return make_reason(
        ReasonCode.NO_MATCHING_NODE,
        f"one replica needs {wanted}; no GPU is cut into that; {why}",
        needed=wanted,
    )


def too_little_free(pool: FreeCapacity, needs: Mapping[str, int], replicas: int) -> Reason | None:
    """First resource of which the nodes together have too little free; None if there is enough of all."""
    for dimension, need in needs.items():
        if dimension.startswith(MIG):
            if (found := _too_few_slices(pool, dimension, replicas)) is not None:
                return found
            continue
        total = SHARE if dimension == GPUS else dimension
        needed = need * replicas * (MILLI if dimension == GPUS else 1)
        if (free := pool.total(dimension)) < needed:
            return make_reason(
                ReasonCode.RESOURCES,
                f"needs {_amount(total, needed)}; "
                f"{_amount(total, free)} free on {format_count(len(pool), 'matching node')}",
                needed=_number(total, needed),
                free=_number(total, free),
            )
    return None


def fragmented(pool: FreeCapacity, needs: Mapping[str, int], replicas: int) -> Reason:
    """The totals suffice, but the free pieces are too small for the replicas."""
    for dimension, need in needs.items():
        if (found := pool.count_replicas({dimension: need}, replicas)) < replicas:
            if dimension.startswith(MIG):
                return _no_layout(pool, dimension, replicas, found)
            return _pieces_too_small(pool, dimension, need=need, replicas=replicas, found=found)
    first, *others = needs
    for other in others:
        both = {first: needs[first], other: needs[other]}
        if (found := pool.count_replicas(both, replicas)) < replicas:
            nodes = format_count(pool.having(first, needs[first]), "node")
            return _not_together(
                both, replicas, found, f"{nodes} with the first, {found or 'none'} with both"
            )
    found = pool.count_replicas(needs, replicas)
    return _not_together(needs, replicas, found, f"{found} found" if found else "none has all")


def _too_few_slices(pool: FreeCapacity, dimension: str, replicas: int) -> Reason | None:
    """Fewer memory slices are free than the instances take; None if there are enough."""
    needed = replicas * pool.slices(profiles_in(dimension))
    free, gpus = pool.free_slices()
    if free >= needed:
        return None
    return make_reason(
        ReasonCode.RESOURCES,
        f"needs {times_prefix(replicas)}{_amount(dimension, 1)}, {format_count(needed, 'memory slice')}; "
        f"{free:,} free on {format_count(gpus, 'GPU')} in MIG mode",
        needed=needed,
        free=free,
    )


def _no_layout(pool: FreeCapacity, dimension: str, replicas: int, found: int) -> Reason:
    """Enough memory slices are free, but not at positions where an instance may start."""
    free, gpus = pool.free_slices()
    largest = pool.largest_profile()
    fits = f"at most {largest} fits" if largest else "no instance fits"
    beside = " beside what is in use" if pool.instances_in_use else " though none is in use"
    room = f"{found:,} found, " if found else ""
    return make_reason(
        ReasonCode.LAYOUT_BLOCKED,
        f"needs {times_prefix(replicas)}{_amount(dimension, 1)}; {room}{fits}{beside}, "
        f"{free:,} memory slices free on {format_count(gpus, 'GPU')}",
        needed=_amount(dimension, 1),
        replicas=replicas,
        found=found,
        largest=largest,
        free=free,
    )


def _pieces_too_small(pool: FreeCapacity, dimension: str, *, need: int, replicas: int, found: int) -> Reason:
    total = SHARE if dimension == GPUS else dimension
    largest, free = pool.largest(dimension), pool.total(dimension)
    piece, place = _amount(dimension, need), "GPU" if dimension == SHARE else "node"
    if replicas == 1:
        wanted = f"{piece} on one {place}; at most {_bare(dimension, largest)} free on one"
    else:
        wanted = (
            f"{replicas:,} × {piece}, each on one {place}; "
            f"{found:,} found, at most {_bare(dimension, largest)} free"
        )
    return make_reason(
        ReasonCode.FRAGMENTED,
        f"needs {wanted}, {_bare(total, free)} in all",
        needed=_number(dimension, need),
        replicas=replicas,
        found=found,
        largest_free=_number(dimension, largest),
        free=_number(total, free),
    )


def _not_together(needs: Mapping[str, int], replicas: int, found: int, where: str) -> Reason:
    together = join_with_and(_amount(dimension, need) for dimension, need in needs.items())
    return make_reason(
        ReasonCode.FRAGMENTED,
        f"needs {times_prefix(replicas)}{together} on one node; {where}",
        replicas=replicas,
        found=found,
    )


def times_prefix(replicas: int) -> str:
    """Prefix of the size of one replica: `4 × `, or empty for one replica."""
    return "" if replicas == 1 else f"{replicas:,} × "


def make_reason(code: ReasonCode, text: str, **numbers: float | str) -> Reason:
    """Build a reason with its numbers by name."""
    return Reason(code=code, text=text, numbers=numbers)


def _amount(dimension: str, amount: int) -> str:
    if dimension.startswith(MIG):
        return join_with_and(
            profile if count == 1 else f"{count} × {profile}" for profile, count in profiles_in(dimension)
        )
    if dimension == POWER:
        return f"power for {format_gpus(amount)}"
    if dimension == GPUS:
        return format_gpus(amount * MILLI)
    if dimension == SHARE:
        return format_gpus(amount)
    if dimension == CPU:
        return format_cpus(amount)
    if dimension == MEMORY:
        return format_gib(amount)
    return f"{format_gib(amount)} of disk" if dimension == DISK else f"{amount:,} {dimension}"


def _bare(dimension: str, amount: int) -> str:
    """The amount without its unit, which the sentence has named already."""
    return (
        f"{_number(dimension, amount):,}" if dimension in (GPUS, SHARE, CPU) else _amount(dimension, amount)
    )


def _number(dimension: str, amount: int) -> int | float:
    return print_milli(amount) if dimension in (SHARE, CPU, POWER) else amount
