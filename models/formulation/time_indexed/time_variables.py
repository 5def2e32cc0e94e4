"""
Time variables: the columns of starts in later slots, and of the jobs present in each slot.

A job that starts later gets no node yet: it counts against sums over all nodes that it may use. Jobs with the
same demand on the same nodes form one presence: a column per slot counts those present. So each start has
three short entries, and the long rows contain only presences. Early releases are counted in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpuplan.models.formulation.time_indexed.early_release import EarlyReleases, balance_of
from gpuplan.models.formulation.time_indexed.future_capacity import BlockGang, DomainBlocks, FutureCapacity
from gpuplan.models.problem.jobs import ClassRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.columns_now import ColumnsNow
    from gpuplan.models.formulation.rows import Ints, Term
    from gpuplan.models.formulation.time_indexed.early_release import InventoryBalance, Place
    from gpuplan.models.formulation.time_indexed.future_capacity import Area
    from gpuplan.models.problem.jobs import JobClass, Shape
    from gpuplan.models.problem.problem import QueueBudget

    Start: TypeAlias = tuple[int, int, int]
    """(class, position of the option, slot)."""


@dataclass(frozen=True, slots=True)
class PresenceClass:
    """Jobs with the same demand, queue and area while they are present."""

    flow: InventoryBalance
    """Number present in each slot."""
    replicas: int
    """Replicas of each counted unit."""
    shape: Shape
    queue: int
    gpu_model: str | None
    area: Area
    required: Level | None
    """Level at which all replicas must be in one domain."""
    undisturbed: bool
    """True if they must also fit beside all running jobs: waiting jobs that start later."""

    @property
    def gang(self) -> BlockGang | None:
        """Demand in one domain; None if no whole GPUs are needed in one."""
        if self.required is None or not self.shape.gpus:
            return None
        return BlockGang(self.required, self.replicas, self.shape.gpus)


class LaterStarts:
    """Columns of later starts; none if the problem has a single slot."""

    def __init__(self, x: ColumnsNow, new: Callable[[int], int]) -> None:
        """Create the columns; `new` makes a column with an upper bound."""
        problem = self.problem = x.problem
        self.starts: dict[Start, int] = {}
        self.now: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By class: (column, end) of its jobs that start in slot 0."""
        self.presence_classes: tuple[PresenceClass, ...] = ()
        self.spill: dict[tuple[str, int, int], int] = {}
        """By resource, queue and slot: usage of a queue beyond what it does not lend."""
        self.gains = EarlyReleases(problem.slots, x.params.max_release_coefficients)
        self._note_starts_of_now(x)
        if problem.slots == 1:
            return
        last = {booking.job_class: booking.slot for booking in problem.firm_reservations}
        for index, job_class in enumerate(problem.classes):
            for position, option in enumerate(job_class.options):
                for slot in range(1, min(problem.slots, last.get(index, problem.slots) + 1)):
                    if option.later[slot] is not None and option.later_groups[slot]:
                        self.starts[index, position, slot] = new(len(job_class.jobs))
        self.presence_classes = tuple(self._presences(x, new))
        self.areas = sorted({each.area for each in self.presence_classes})
        self.sizes = sorted({each.shape.gpus for each in self.presence_classes if each.shape.gpus} | {1})
        """Numbers of whole GPUs per replica."""
        self.ahead = FutureCapacity(x)
        self.domain_blocks = {
            (area, gang): DomainBlocks(self.ahead, area, gang)
            for area in self.areas
            for gang in sorted({each.gang for each in self.inside(area) if each.gang is not None})
        }
        self._note_gains(x, new)
        for budget in problem.budgets:
            for queue in budget.leaves_first:
                if budget.parent[queue] is not None and budget.kept[queue] > 0:
                    for slot in range(1, problem.slots):
                        self.spill[budget.resource, queue, slot] = new(x.most_of(budget.resource))

    def _note_starts_of_now(self, x: ColumnsNow) -> None:
        for _, kind, tier in x.tiers():
            for member in kind.classes:
                end = self.problem.classes[member].options[kind.tiers[tier][0]].ends[0]
                self.now[member].append((x.jobs[member, tier], end))

    def _presences(self, x: ColumnsNow, new: Callable[[int], int]) -> Iterator[PresenceClass]:
        problem = self.problem
        limited = bool(problem.budgets)
        # If no job can be preempted or moved, later starts fit beside all running jobs anyway.
        waits = ClassRole.START if problem.may_disturb else None
        found: dict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)
        """(column, slot of the start, end) of all starts that are counted together."""
        for number, kind, tier in x.tiers():
            area = tuple(sorted(kind.groups[tier]))
            for member in kind.classes:
                job_class = problem.classes[member]
                option = job_class.options[kind.tiers[tier][0]]
                model = option.gpu_model if len(kind.tiers[tier]) == 1 else None
                shape, _, *what = _what(job_class, model, limited=limited)
                if kind.rigid:
                    starting = [x.jobs[member, tier]]
                else:  # an elastic replica type has a single class
                    starting = [column for _, column in x.replicas_of(number, tier)]
                replicas = kind.maximum if kind.rigid else 1
                found[shape, replicas, *what, area, False] += [(each, 0, option.ends[0]) for each in starting]
        for (index, position, slot), column in self.starts.items():
            job_class = problem.classes[index]
            option = job_class.options[position]
            area = tuple(sorted(option.later_groups[slot]))
            alike = _what(job_class, option.gpu_model, limited=limited)
            found[*alike, area, job_class.role is waits].append((column, slot, option.ends[slot]))
        for (shape, replicas, required, queue, model, area, undisturbed), starts in found.items():
            # Slot 0 has rows of its own, so what starts now is counted from slot 1, if it is there then.
            lasting = [each for each in starts if each[2] > max(1, each[1])]
            changes = [(max(1, slot), column, 1) for column, slot, _ in lasting]
            changes += [(end, column, -1) for column, _, end in lasting]
            when, columns, amounts = np.array(changes, dtype=np.int64).reshape(-1, 3).T
            there = balance_of((when, columns, amounts), problem.slots, x.upper, new)
            if there is not None:
                yield PresenceClass(there, replicas, shape, queue, model, area, required, undisturbed)

    def _note_gains(self, x: ColumnsNow, new: Callable[[int], int]) -> None:
        """Register the early releases of all columns."""
        self.ahead.add_releases(self.gains, self.sizes)
        for each in self.domain_blocks.values():
            each.add_releases(self.gains)
        for budget in self.problem.budgets:
            self._note_quota(x, budget)
        self.gains.close(x.upper, new)

    def _note_quota(self, x: ColumnsNow, budget: QueueBudget) -> None:
        """Register the quota that queues regain from running jobs that leave before their end."""
        entries = list[tuple[int, int, int, int]]()
        """(queue, slot before which the job would have ended, column, amount)."""
        for v, incumbent in enumerate(self.problem.incumbents):
            if amount := incumbent.quota_of(budget.resource):
                left = [(column, len(incumbent.holds)) for column in x.fates.leaves(v)]
                left += [(x.shrink[v], 1)] if v in x.shrink else []
                own = incumbent.queue, incumbent.until
                entries += [(*own, column, amount * replicas) for column, replicas in left]
        queues, until, columns, held = np.array(entries, dtype=np.int64).reshape(-1, 4).T
        there = np.arange(self.problem.slots) < until[:, None]
        places: list[Place] = [
            ("queues", budget.resource, queue) for queue in range(len(self.problem.queues))
        ]
        self.gains.note(places, queues, columns, (there * held[:, None])[:, :, None])

    def inside(self, area: Area) -> list[PresenceClass]:
        """Presences with an area inside an area."""
        groups = set(area)
        return [each for each in self.presence_classes if groups.issuperset(each.area)]

    def starts_of(self, index: int) -> Iterator[tuple[int, int, int]]:
        """(column, slot, end) of all starts of a class, including slot 0."""
        for column, end in self.now.get(index, ()):
            yield column, 0, end
        for position, option in enumerate(self.problem.classes[index].options):
            for slot in range(1, self.problem.slots):
                if (column := self.starts.get((index, position, slot), -1)) >= 0:
                    yield column, slot, option.ends[slot]

    def usage(
        self, budget: QueueBudget, slot: int, *, undisturbed: bool = False
    ) -> tuple[list[list[Term]], list[int]]:
        """
        Usage that counts against a quota in a slot, by queue: terms, and a fixed part.

        If `undisturbed`, the terms are of later starts of waiting jobs alone, and no running job has left.
        """
        terms: list[list[Term]] = [[] for _ in self.problem.queues]
        fixed = list(budget.own)
        for when, queue, amount, _ in budget.releases:
            if when <= slot:
                fixed[queue] -= amount
        for each in self.presence_classes:
            amount = each.shape.quota_on(each.gpu_model, budget.resource) * each.replicas
            if amount and (each.undisturbed or not undisturbed):
                terms[each.queue].append((each.flow.there[slot], amount))
        for queue in range(0 if undisturbed else len(terms)):
            columns, amounts = self.gains.of([("queues", budget.resource, queue)], 0, slot)
            terms[queue] += zip(columns.tolist(), (-amounts).tolist(), strict=True)
        return terms, fixed

    @property
    def balances(self) -> Iterator[InventoryBalance]:
        """All flows: of presences and of gains."""
        yield from (each.flow for each in self.presence_classes)
        yield from self.gains.balances

    def add_up(self, values: Ints) -> None:
        """Set the columns of flows from the values of starts and evictions."""
        for each in self.balances:
            each.add_up(values)


def _what(job_class: JobClass, model: str | None, *, limited: bool) -> tuple[Any, ...]:
    """Shape, replicas, required level, queue and GPU model of a job, where these matter to other jobs."""
    counted = limited and any(job_class.shape.quota)
    return (
        job_class.shape,
        job_class.minimum,
        job_class.together.required if job_class.minimum > 1 else None,
        job_class.queue if counted else 0,
        model if counted else None,
    )
