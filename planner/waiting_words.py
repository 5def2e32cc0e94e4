"""How each reason for waiting reads: one sentence with its numbers, and the numbers again for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.free_pool import CPU, DISK, GPUS, MEMORY, SHARE, FreePool
from planner.models.plan import Reason, ReasonCode
from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI, print_milli
from planner.wording import counted, decimal, in_cpus, in_gib, in_gpus, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.matching import Match
    from planner.models.job import Job
    from planner.quota_room import QuotaShortage

_MOST_REFUSALS_TOLD: Final = 3


def held() -> Reason:
    """Somebody keeps the job from starting."""
    return _reason(ReasonCode.HELD, "held by its user or an operator")


def not_planned(what: str) -> Reason:
    """The job asks for something that no plan provides."""
    return _reason(ReasonCode.NOT_MODELLED, what)


def no_match(job: Job, match: Match, present: set[str]) -> Reason:
    """No node passes the filters; `present` are the GPU models of the cluster."""
    if job.request.needs_gpu and job.gpu_models and not present & job.gpu_models.keys():
        wanted, there = " or ".join(sorted(job.gpu_models)), ", ".join(sorted(present)) or "no GPUs"
        return _reason(
            ReasonCode.NO_MATCHING_NODE, f"no node has GPU model {wanted}; the cluster has {there}"
        )
    if not match.refusals:
        return _reason(ReasonCode.NO_MATCHING_NODE, "the cluster has no nodes")
    ordered = sorted(match.refusals.items(), key=lambda item: (-item[1], item[0]))
    told, rest = ordered[:_MOST_REFUSALS_TOLD], ordered[_MOST_REFUSALS_TOLD:]
    parts = [f"{text} ({counted(nodes, 'node')})" for text, nodes in told]
    if rest:
        parts.append(f"other reasons ({counted(sum(nodes for _, nodes in rest), 'node')})")
    return _reason(ReasonCode.NO_MATCHING_NODE, f"no node matches: {', '.join(parts)}", **dict(told))


def too_large(empty: FreePool, needs: Mapping[str, int]) -> Reason:
    """One replica fits no matching node, even an empty one."""
    nodes = counted(len(empty), "matching node")
    for dimension, need in needs.items():
        if (largest := empty.largest(dimension)) < need:
            return _reason(
                ReasonCode.NO_MATCHING_NODE,
                f"one replica needs {_amount(dimension, need)}; "
                f"the largest of {nodes} has {_amount(dimension, largest)}",
                needed=_number(dimension, need),
                largest=_number(dimension, largest),
            )
    together = listed(_amount(dimension, need) for dimension, need in needs.items())
    return _reason(
        ReasonCode.NO_MATCHING_NODE, f"one replica needs {together}; none of {nodes} has all of it"
    )


def beyond_quota(code: ReasonCode, found: QuotaShortage) -> Reason:
    """A limit is in the way, now or always."""
    kind = "" if found.gpu_model == ALL_MODELS else f"{found.gpu_model} "
    limit = f"{decimal(found.limit)} {kind}GPU{'' if 0 < found.limit <= MILLI else 's'}"
    if code is ReasonCode.EXCEEDS_MAX_QUOTA:
        says = f"queue {found.queue} may never hold more than {limit}"
    else:
        says = f"queue {found.queue} uses {decimal(found.used)} of {limit}"
    return _reason(
        code,
        f"needs {in_gpus(found.needed)}; {says}",
        queue=found.queue,
        gpu_model=found.gpu_model,
        used=print_milli(found.used),
        limit=print_milli(found.limit),
        needed=print_milli(found.needed),
    )


def too_little_free(pool: FreePool, needs: Mapping[str, int], replicas: int) -> Reason | None:
    """The first thing of which the nodes together have too little free; None if there is enough of all."""
    for dimension, need in needs.items():
        total = SHARE if dimension == GPUS else dimension
        needed = need * replicas * (MILLI if dimension == GPUS else 1)
        if (free := pool.total(dimension)) < needed:
            return _reason(
                ReasonCode.RESOURCES,
                f"needs {_amount(total, needed)}; "
                f"{_amount(total, free)} free on {counted(len(pool), 'matching node')}",
                needed=_number(total, needed),
                free=_number(total, free),
            )
    return None


def fragmented(pool: FreePool, needs: Mapping[str, int], replicas: int) -> Reason:
    """There is enough of everything in all, but not in pieces that one replica can use."""
    for dimension, need in needs.items():
        if (found := pool.fitting({dimension: need}, replicas)) < replicas:
            return _pieces_too_small(pool, dimension, need=need, replicas=replicas, found=found)
    first, *others = needs
    for other in others:
        both = {first: needs[first], other: needs[other]}
        if (found := pool.fitting(both, replicas)) < replicas:
            nodes = counted(pool.having(first, needs[first]), "node")
            return _not_together(
                both, replicas, found, f"{nodes} with the first, {found or 'none'} with both"
            )
    found = pool.fitting(needs, replicas)
    return _not_together(needs, replicas, found, f"{found} found" if found else "none has all")


def not_chosen(job: Job) -> Reason:
    """The job would fit, and still no place was given to it."""
    if job.weight_milli == 0:
        return _reason(ReasonCode.RESOURCES, "has weight 0: starting it earns nothing")
    return _reason(ReasonCode.RESOURCES, "would fit, but no place was chosen for it in the time given")


def _pieces_too_small(pool: FreePool, dimension: str, *, need: int, replicas: int, found: int) -> Reason:
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
    return _reason(
        ReasonCode.FRAGMENTED,
        f"needs {wanted}, {_bare(total, free)} in all",
        needed=_number(dimension, need),
        replicas=replicas,
        found=found,
        largest_free=_number(dimension, largest),
        free=_number(total, free),
    )


def _not_together(needs: Mapping[str, int], replicas: int, found: int, where: str) -> Reason:
    times = "" if replicas == 1 else f"{replicas:,} × "
    together = listed(_amount(dimension, need) for dimension, need in needs.items())
    return _reason(
        ReasonCode.FRAGMENTED,
        f"needs {times}{together} on one node; {where}",
        replicas=replicas,
        found=found,
    )


def _reason(code: ReasonCode, text: str, **numbers: float | str) -> Reason:
    return Reason(code=code, text=text, numbers=numbers)


def _amount(dimension: str, amount: int) -> str:
    if dimension == GPUS:
        return in_gpus(amount * MILLI)
    if dimension == SHARE:
        return in_gpus(amount)
    if dimension == CPU:
        return in_cpus(amount)
    if dimension == MEMORY:
        return in_gib(amount)
    return f"{in_gib(amount)} of disk" if dimension == DISK else f"{amount:,} {dimension}"


def _bare(dimension: str, amount: int) -> str:
    """The amount without the unit that the sentence has just named."""
    return (
        f"{_number(dimension, amount):,}" if dimension in (GPUS, SHARE, CPU) else _amount(dimension, amount)
    )


def _number(dimension: str, amount: int) -> int | float:
    return print_milli(amount) if dimension in (SHARE, CPU) else amount
