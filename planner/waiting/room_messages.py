"""Messages of a capacity shortage: the resource, the amount needed and the amount free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.units import MILLI, print_milli
from gpuplan.planner.text_format import format_count, format_cpus, format_gib, format_gpus, join_with_and
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
    from collections.abc import Mapping


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


def wrong_layout(needs: Mapping[str, int]) -> Reason:
    """No GPU has the needed MIG instances, and the policy forbids to repartition."""
    wanted = join_with_and(
        _amount(dimension, need) for dimension, need in needs.items() if dimension.startswith(MIG)
    )
    return make_reason(
        ReasonCode.NO_MATCHING_NODE,
        f"one replica needs {wanted}; no GPU is cut into that; mig.repartition is off",
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
    fits = (
        f"at most {largest} fits beside what is in use" if largest else "nothing fits beside what is in use"
    )
    room = f"{found:,} found, " if found else ""
    return make_reason(
        ReasonCode.LAYOUT_BLOCKED,
        f"needs {times_prefix(replicas)}{_amount(dimension, 1)}; {room}{fits}, "
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
