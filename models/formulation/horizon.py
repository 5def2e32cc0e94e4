"""(C14) Horizon."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from planner.models.formulation.prospects import FIRST_RESOURCE, SHARED, SLICES, WHOLE, Prospects
from planner.models.formulation.rows import Row, dense, row
from planner.models.mig import mig_geometry
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.models.cluster import Level
    from planner.models.formulation.columns import Columns
    from planner.models.formulation.later import Area, Presence
    from planner.models.formulation.prospects import Measure, Supply
    from planner.models.formulation.rows import Ints
    from planner.models.problem import Problem, QueueBudget


def horizon(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Each job starts in one slot, and in every later slot there is room for all who are there then.

        Σ_k jobs[j,k] + Σ_{k, τ} later[j,k,τ]  ≤  n_j    ∀ classes j  (= 1, τ ≤ b, if booked in slot b)
        there[p,τ] = there[p,τ−1] + Σ_{starts of p that come at τ} later[j,k,σ] − Σ_{that are gone by τ}
        Σ_{p ⊆ A} ⌊g_p/s⌋ · R_p · there[p,τ]  ≤  Σ_{n ∈ A} ⌊f_nτ/s⌋    ∀ areas A, slots τ ≥ 1, sizes s
        Σ_{p ⊆ A, in one domain} ⌊R_p · g_p/S⌋ · there[p,τ]  ≤  Σ_d ⌊Σ_{n ∈ A, d} f_nτ/S⌋    ∀ A, τ, sizes S
        the same for thousandths of GPUs, memory slices of MIG and each resource, all in total
        usage[r,q,τ]  ≤  limit_rq    as in (C7), of those at τ
        needed_j · Σ_{σ ≤ τ} start[j,σ]  ≤  Σ_{predecessors i} come[i,τ]    ∀ j with predecessors, τ
        start[j,τ] = start[j',τ]    ∀ j, j' that start together, τ

    A presence p counts the jobs, those that start now included, that need R_p replicas of g_p GPUs each and
    may be on the groups of one area; it counts where that is within A. f_nτ are the GPUs free on n at τ once
    all running jobs have ended that are expected to; departures, openings and closings change that as in
    (C3). start[j,τ] is Σ_k later[j,k,τ], or Σ_k jobs[j,k] in slot 0, and come[i,τ] whether a predecessor has
    started, or ended, by the beginning of τ. With a single slot there are only the last of these rows.
    """
    if problem.slots == 1:
        yield from _together(problem, x)
        return
    yield from _once(problem, x)
    yield from _presences(problem, x)
    ahead, upper = Prospects(x), np.array(x.upper, dtype=np.int64)
    areas = sorted({each.area for each in x.later.presences})
    inside: dict[Area, list[Presence]] = defaultdict(list)
    for each in x.later.presences:
        for area in _within(each.area, areas):
            inside[area].append(each)
    for slot in range(1, problem.slots):
        for area in areas:
            # Where nobody comes, whoever is there was there before, and no less is free.
            if slot == 1 or any(each.coming[slot] for each in inside[area]):
                yield from _room(problem, upper, (area, slot), inside[area], ahead.supply(area, slot))
        for number, budget in enumerate(problem.budgets):
            yield from _quota(x, number, budget, slot)
    yield from _precedence(problem, x)
    yield from _together(problem, x)


def _within(area: Area, areas: Sequence[Area]) -> list[Area]:
    """Areas of which all of an area is part."""
    groups = set(area)
    return [larger for larger in areas if groups <= set(larger)]


def _once(problem: Problem, x: Columns) -> Iterator[Row]:
    booked = {booking.job_class: booking.slot for booking in problem.bookings}
    for index, job_class in enumerate(problem.classes):
        starts = list(x.later.starts_of(index))
        if index in booked:
            terms = [(column, 1) for column, slot, _ in starts if slot <= booked[index]]
            yield row("horizon", ("booked", index), terms, lower=1, upper=1)
        elif any(slot for _, slot, _ in starts):
            terms = [(column, 1) for column, _, _ in starts]
            yield row("horizon", ("once", index), terms, upper=len(job_class.jobs))


def _presences(problem: Problem, x: Columns) -> Iterator[Row]:
    for number, each in enumerate(x.later.presences):
        for slot in range(1, problem.slots):
            terms = [(each.there[slot], -1), *((column, 1) for column in each.coming[slot])]
            terms += [(column, -1) for column in each.going[slot]]
            terms += [(each.there[slot - 1], 1)] if slot > 1 else []
            yield row("horizon", ("there", number, slot), terms, lower=0, upper=0)


def _room(
    problem: Problem, upper: Ints, place: tuple[Area, int], present: list[Presence], supply: Supply
) -> Iterator[Row]:
    """Rows of all that is measured on the nodes of an area in one slot; `upper` bounds the columns."""
    area, slot = place
    where = ("-".join(map(str, area)), slot)

    def fits(name: str, each: Callable[[Presence], int], offer: Measure) -> Iterator[Row]:
        takers = np.array([one.there[slot] for one in present], dtype=np.int64)
        taken = np.array([each(one) for one in present], dtype=np.int64)
        constant, givers, given = offer
        least = constant + int(np.minimum(0, given) @ upper[givers])
        if int(taken @ upper[takers]) > least:
            columns, amounts = np.append(takers, givers), np.append(taken, -given)
            yield dense("horizon", (name, *where), columns, amounts, upper=constant)

    for size in sorted({one.shape.gpus for one in present if one.shape.gpus} | {1}):
        yield from fits(
            f"blocks of {size}",
            lambda one, size=size: one.replicas * (one.shape.gpus // size),  # type: ignore[misc]
            supply.total(WHOLE) if size == 1 else supply.blocks(size),
        )
    if any(one.shape.gpu_milli for one in present):
        yield from fits("GPUs", _milli, supply.total(SHARED))
    if any(one.shape.mig for one in present):
        geometry = mig_geometry(problem.groups[area[0]].gpu_model or "")
        sizes = {name: each.memory_slices for name, each in geometry.profiles.items()} if geometry else {}
        yield from fits("slices", lambda one: _slices(one, sizes), supply.total(SLICES))
    for resource, name in enumerate(problem.resources):
        if any(one.shape.amounts[resource] for one in present):
            yield from fits(
                name,
                lambda one, resource=resource: one.replicas * one.shape.amounts[resource],  # type: ignore[misc]
                supply.total(FIRST_RESOURCE + resource),
            )
    for level, size in sorted(_gangs(present)):
        yield from fits(
            f"{level} of {size}",
            lambda one, level=level, size=size: (  # type: ignore[misc]
                one.replicas * one.shape.gpus // size if one.required == level else 0
            ),
            supply.domain_blocks(level, size),
        )


def _gangs(present: list[Presence]) -> set[tuple[Level, int]]:
    """(level, GPUs) of gangs that have to be in one domain."""
    return {
        (one.required, one.replicas * one.shape.gpus)
        for one in present
        if one.required is not None and one.shape.gpus
    }


def _milli(one: Presence) -> int:
    return one.replicas * (one.shape.gpus * MILLI + one.shape.gpu_milli)


def _slices(one: Presence, sizes: dict[str, int]) -> int:
    return one.replicas * sum(sizes.get(profile, 0) * count for profile, count in one.shape.mig)


def _quota(x: Columns, number: int, budget: QueueBudget, slot: int) -> Iterator[Row]:
    """The limits of one resource in one slot."""
    terms, fixed = x.later.usage(x, budget, slot)
    staying = budget.up_the_tree(_there_already(x.problem, budget, slot, fixed))
    for queue in budget.leaves_first:
        key = ("quota", number, queue, slot)
        if (firm := budget.firm[queue]) is not None and any(amount > 0 for _, amount in terms[queue]):
            # Who is there already may hold too much; then nobody comes who counts here.
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


def _there_already(problem: Problem, budget: QueueBudget, slot: int, fixed: list[int]) -> list[int]:
    """What who runs now may hold in a slot, by queue: whoever is moved is there longer than if it stayed."""
    held = list(fixed)
    for incumbent in problem.incumbents:
        if incumbent.move is not None and incumbent.until <= slot:
            options = problem.classes[incumbent.move].options
            if any(option.ends[0] > slot and budget.counts(option.gpu_model) for option in options):
                held[incumbent.queue] += incumbent.shape.quota_milli * len(incumbent.holds)
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
