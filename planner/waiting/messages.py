"""Messages of waiting reasons: one sentence with its numbers, and the numbers again for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.units import MILLI, print_milli
from gpuplan.planner.text_format import (
    format_count,
    format_gpus,
    format_milli,
    join_first_names,
    replica_size,
)
from gpuplan.planner.waiting.room_messages import make_reason, times_prefix

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuplan.models.cluster import Level
    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.quota_headroom import QuotaShortage
    from gpuplan.planner.waiting.eligible_nodes import EligibleNodes

_MOST_REFUSALS_TOLD: Final = 3


def held_by_user() -> Reason:
    """The user or an operator holds the job."""
    return make_reason(ReasonCode.HELD, "held by its user or an operator")


def preempted(followers: Sequence[str]) -> Reason:
    """The plan preempts the job; `followers` are the jobs that take its place."""
    text = f"stopped to make room for {join_first_names(followers)}" if followers else "stopped by this plan"
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
    kind = "" if found.gpu_model == ALL_MODELS else f"{found.gpu_model} "
    limit = f"{format_milli(found.limit)} {kind}GPU{'' if 0 < found.limit <= MILLI else 's'}"
    if code is ReasonCode.EXCEEDS_MAX_QUOTA:
        says = f"queue {found.queue} may never hold more than {limit}"
    else:
        says = f"queue {found.queue} uses {format_milli(found.used)} of {limit}"
    return make_reason(
        code,
        f"needs {format_gpus(found.needed)}; {says}",
        queue=found.queue,
        gpu_model=found.gpu_model,
        used=print_milli(found.used),
        limit=print_milli(found.limit),
        needed=print_milli(found.needed),
    )


RESERVED: Final = "has room only where the plan stops jobs for others of higher priority"
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


def zero_weight() -> Reason:
    """The job's weight is 0."""
    return make_reason(ReasonCode.NOT_CHOSEN, "has weight 0: starting it earns nothing")


def not_chosen(*, proven: bool) -> Reason:
    """The job would fit, but the plan does not start it."""
    if proven:
        return make_reason(ReasonCode.NOT_CHOSEN, "would fit, but no plan with it scores more")
    return make_reason(ReasonCode.NOT_CHOSEN, "would fit, but no place was chosen for it in the time given")


def _word(level: Level) -> str:
    return level.value.replace("_", " ")
