"""(C14) Horizon."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row, row_of_arrays
from gpuplan.models.formulation.time_indexed.early_release import EarlyReleases
from gpuplan.models.formulation.time_indexed.future_capacity import FIRST_RESOURCE, SHARED, SLICES, WHOLE
from gpuplan.models.mig import mig_geometry
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.queue import amount_index
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.time_indexed.future_capacity import Area, BlockGang
    from gpuplan.models.formulation.time_indexed.time_variables import PresenceClass
    from gpuplan.models.problem.problem import Problem, QueueBudget


def horizon(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Each job starts in one slot, and in every later slot capacity suffices for all jobs present in it.

        Σ_k jobs[j,k] + Σ_{k, τ} later[j,k,τ]  ≤  n_j    ∀ classes j  (= 1, τ ≤ b, if booked in slot b)
        Σ_{k, τ} later[j,k,τ]  ≤  stop[v]    ∀ classes j that resume running job v
        there[p,τ] = there[p,τ−1] + Σ_{starts of p that come at τ} later[j,k,σ] − Σ_{that are gone by τ}
        gain[m,τ] = gain[m,τ−1] + Σ_{columns that start to release m at τ} column − Σ_{columns that stop}
        Σ_{p ⊆ A} ⌊g_p/s⌋ · R_p · there[p,τ]  ≤  Σ_{n ∈ A} ⌊f_nτ/s⌋ + Σ_m s_m · gain[m,τ]    ∀ areas A, τ, s
        Σ_p ⌊R_p · ⌊g_p/g⌋ / R⌋ · there[p,τ]  ≤  Σ_d ⌊Σ_n ⌊f_nτ/g⌋ / R⌋ + Σ_m gain[m,τ]    ∀ A, τ, R × g
        Σ_{w ⊆ A} ⌊g_w/s⌋ · R_w · there[w,τ]  ≤  Σ_{n ∈ A} ⌊f_nτ/s⌋    ∀ A, τ, s
        the same for thousandths of GPUs, memory slices of MIG and each resource, all in total
        usage[r,q,τ]  ≤  limit_rq    as in (C7), of those at τ
        needed_j · Σ_{σ ≤ τ} start[j,σ]  ≤  Σ_{predecessors i} come[i,τ]    ∀ j with predecessors, τ
        start[j,τ] = start[j',τ]    ∀ j, j' that start together, τ

    A presence p counts the jobs, including those that start now, that need R_p replicas of g_p GPUs each and
    may be placed on the groups of one area; it counts in A if that area lies within A. f_nτ is the number of
    GPUs free on n at τ after the expected end of running jobs. A gain m is a change of free blocks by
    evictions, openings and closings as in (C3), or a multiple of it: s_m blocks of s GPUs. R × g are the
    replicas and GPUs of gangs that require one domain d; only presences with the same requirement count in
    their rows. If a domain lacks L blocks of g for one more such gang, and its cheapest nodes can supply U <
    L, each block on its other nodes counts as 1/(L − U) of a gang. start[j,τ] is Σ_k later[j,k,τ], or Σ_k
    jobs[j,k] in slot 0. w is a presence of waiting jobs that start later. They count on nothing that running
    jobs give up, so they also fit if these stay: rows without gains say so, for gangs in domains and quotas
    too. There are none if no running job may be disturbed, nor on areas with nodes that may be added.
    come[i,τ] is 1 if predecessor i has started in an earlier slot or, where j waits for its end, has ended
    by the beginning of τ. With a single slot only the last of these rows are stated.
    """
    if problem.slots == 1:
        yield from _together(problem, x)
        return
    yield from _once(problem, x)
    yield from _flows(problem, x)
    inside = {area: x.later.inside(area) for area in x.later.areas}
    for slot in range(1, problem.slots):
        for area, present in inside.items():
            # A slot in which no presence grows has no fewer free resources and no more jobs than the one
            # before.
            if slot == 1 or any(each.flow.may_increase(slot) for each in present):
                yield from _room(x, area, slot, present)
            waiting = [each for each in present if each.undisturbed]
            existing = all(problem.groups[group].pool is None for group in area)
            if waiting and existing and (slot == 1 or any(each.flow.may_increase(slot) for each in waiting)):
                yield from _room(x, area, slot, waiting, undisturbed=True)
        for number, budget in enumerate(problem.budgets):
            yield from _quota(x, number, budget, slot)
            if problem.may_disturb:
                yield from _undisturbed_quota(x, number, budget, slot)
    yield from _precedence(problem, x)
    yield from _together(problem, x)


def _once(problem: Problem, x: Columns) -> Iterator[Row]:
    booked = {booking.job_class: booking.slot for booking in problem.firm_reservations}
    for index, job_class in enumerate(problem.classes):
        starts = list(x.later.starts_of(index))
        if index in booked:
            terms = [(column, 1) for column, slot, _ in starts if slot <= booked[index]]
            yield row("horizon", ("booked", index), terms, lower=1, upper=1)
        elif job_class.role is ClassRole.RESUME and job_class.incumbent is not None:
            stops = x.fates.stops(job_class.incumbent)
            terms = [*((column, 1) for column, _, _ in starts), *((column, -1) for column in stops)]
            yield row("horizon", ("resumed", index), terms, upper=0)
        elif any(slot for _, slot, _ in starts):
            terms = [(column, 1) for column, _, _ in starts]
            yield row("horizon", ("once", index), terms, upper=len(job_class.jobs))


def _flows(problem: Problem, x: Columns) -> Iterator[Row]:
    for number, each in enumerate(x.later.balances):
        for slot in range(1, problem.slots):
            yield row_of_arrays("horizon", ("there", number, slot), *each.terms(slot), lower=0, upper=0)


def _room(
    x: Columns, area: Area, slot: int, present: list[PresenceClass], *, undisturbed: bool = False
) -> Iterator[Row]:
    """Rows of all measures on the nodes of an area in one slot; if undisturbed, nothing is released early."""
    problem, later, ahead = x.problem, x.later, x.later.ahead
    prefix, gains = ("undisturbed ", EarlyReleases(problem.slots, 0)) if undisturbed else ("", later.gains)
    takers = np.array([one.flow.there[slot] for one in present], dtype=np.int64)
    most = np.array([x.upper[column] for column in takers.tolist()], dtype=np.int64)

    def fits(
        name: str, each: Callable[[PresenceClass], int], free: int, gained: tuple[Ints, Ints]
    ) -> Iterator[Row]:
        taken = np.array([each(one) for one in present], dtype=np.int64)
        givers, given = gained
        lost = np.minimum(0, given) @ np.array(
            [x.upper[column] for column in givers.tolist()], dtype=np.int64
        )
        # Most slots of most clusters have room for all that may be present: such rows only cost time.
        if int(taken @ most) > free + int(lost):
            key = prefix + name, "-".join(map(str, area)), slot
            columns, amounts = np.append(takers, givers), np.append(taken, -given)
            yield row_of_arrays("horizon", key, columns, amounts, upper=free)

    def sums(name: str, each: Callable[[PresenceClass], int], measure: int) -> Iterator[Row]:
        gained = gains.of((("sums", group) for group in area), measure, slot)
        yield from fits(name, each, ahead.total(area, slot, measure), gained)

    yield from sums("blocks of 1", lambda one: one.replicas * one.shape.gpus, WHOLE)
    for number, size in enumerate(later.sizes):
        if size > 1 and any(one.shape.gpus == size for one in present):
            gained = gains.of((("blocks", group) for group in area), number, slot)
            yield from fits(
                f"blocks of {size}",
                lambda one, size=size: one.replicas * (one.shape.gpus // size),  # type: ignore[misc]
                ahead.blocks(area, slot, size),
                gained,
            )
    if any(one.shape.gpu_milli for one in present):
        yield from sums("GPUs", _milli, SHARED)
    if any(one.shape.mig for one in present):
        geometry = mig_geometry(problem.groups[area[0]].gpu_model or "")
        sizes = {name: each.memory_slices for name, each in geometry.profiles.items()} if geometry else {}
        yield from sums("slices", lambda one: _slices(one, sizes), SLICES)
    for resource, name in enumerate(problem.resources):
        if any(one.shape.amounts[resource] for one in present):
            yield from sums(
                name,
                lambda one, resource=resource: one.replicas * one.shape.amounts[resource],  # type: ignore[misc]
                FIRST_RESOURCE + resource,
            )
    for gang in sorted({one.gang for one in present if one.gang is not None}):
        bundles = later.domain_blocks[area, gang]
        yield from fits(
            f"{gang.level} of {gang.replicas} × {gang.gpus}",
            lambda one, gang=gang: MILLI * _bundles(one, gang),  # type: ignore[misc]
            MILLI * int(bundles.free[slot]),
            gains.of([bundles.place], 0, slot),
        )


def _bundles(one: PresenceClass, gang: BlockGang) -> int:
    """Lower bound on the bundles for a gang that a presence takes."""
    if one.required != gang.level:
        return 0
    return one.replicas * (one.shape.gpus // gang.gpus) // gang.replicas


def _milli(one: PresenceClass) -> int:
    return one.replicas * (one.shape.gpus * MILLI + one.shape.gpu_milli)


def _slices(one: PresenceClass, sizes: dict[str, int]) -> int:
    return one.replicas * sum(sizes.get(profile, 0) * count for profile, count in one.shape.mig)


def _quota(x: Columns, number: int, budget: QueueBudget, slot: int) -> Iterator[Row]:
    """Queue limits of one resource in one slot."""
    terms, fixed = x.later.usage(budget, slot)
    staying = budget.usage_up_the_tree(_there_already(x.problem, budget, slot, fixed))
    for queue in budget.leaves_first:
        key = ("queues", number, queue, slot)
        if (firm := budget.firm[queue]) is not None and any(amount > 0 for _, amount in terms[queue]):
            # Running jobs may exceed the limit; then no new job that counts here may be present.
            yield row("horizon", key, terms[queue], upper=max(firm, staying[queue]) - fixed[queue])
        if (parent := budget.parent[queue]) is None:
            continue
        if (spill := x.later.spill.get((budget.resource, queue, slot))) is None:
            terms[parent] += terms[queue]
            fixed[parent] += fixed[queue]
        else:
            lends = [*terms[queue], (spill, -1)]
            yield row("horizon", (*key, "spill"), lends, upper=budget.kept[queue] - fixed[queue])
            terms[parent].append((spill, 1))


def _undisturbed_quota(x: Columns, number: int, budget: QueueBudget, slot: int) -> Iterator[Row]:
    """The same for waiting jobs beside all running jobs; a queue passes up at least its spill."""
    terms, fixed = x.later.usage(budget, slot, undisturbed=True)
    staying = budget.usage_up_the_tree(list(fixed))
    for queue in budget.leaves_first:
        if (firm := budget.firm[queue]) is not None and terms[queue]:
            upper = max(firm, staying[queue]) - fixed[queue]
            yield row("horizon", ("undisturbed queues", number, queue, slot), terms[queue], upper=upper)
        if (parent := budget.parent[queue]) is not None:
            terms[parent] += terms[queue]
            fixed[parent] += fixed[queue] - budget.kept[queue]


def _there_already(problem: Problem, budget: QueueBudget, slot: int, fixed: list[int]) -> list[int]:
    """Quota that running jobs may hold in a slot, by queue; a migrating job may end later than before."""
    held = list(fixed)
    for incumbent in problem.incumbents:
        if incumbent.move is not None and incumbent.until <= slot:
            options = problem.classes[incumbent.move].options
            shape = problem.classes[incumbent.move].shape
            if any(
                option.ends[0] > slot and shape.quota_on(option.gpu_model, budget.resource)
                for option in options
            ):
                held[incumbent.queue] += incumbent.shape.quota[amount_index(budget.resource)] * len(
                    incumbent.holds
                )
    return held


def _precedence(problem: Problem, x: Columns) -> Iterator[Row]:
    for index, job_class in enumerate(problem.classes):
        if not job_class.needed:
            continue
        starts = list(x.later.starts_of(index))
        for slot in range(1, problem.slots):
            terms = [(column, job_class.needed) for column, when, _ in starts if when <= slot]
            fixed = 0
            for each in job_class.predecessors:
                if each.job_class is None:
                    fixed += each.slot <= slot
                    continue
                for column, when, end in x.later.starts_of(each.job_class):
                    if (end if each.ended else when + 1) <= slot:
                        terms.append((column, -1))
            yield row("horizon", ("after", index, slot), terms, upper=fixed)


def _together(problem: Problem, x: Columns) -> Iterator[Row]:
    members: dict[int, list[int]] = defaultdict(list)
    for index, job_class in enumerate(problem.classes):
        if job_class.co_start is not None:
            members[job_class.co_start].append(index)
    for group, classes in sorted(members.items()):
        first = list(x.later.starts_of(classes[0]))
        for other in classes[1:]:
            starts = list(x.later.starts_of(other))
            for slot in range(problem.slots):
                terms = [(column, 1) for column, when, _ in first if when == slot]
                terms += [(column, -1) for column, when, _ in starts if when == slot]
                if terms:
                    yield row("horizon", ("together", group, other, slot), terms, lower=0, upper=0)
