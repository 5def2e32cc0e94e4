"""Slots and node groups in which a job may start, and the points of each start."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.problem.jobs import ClassRole, Option
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.value.start_value import StartValue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.candidates import JobCandidate
    from gpuplan.planner.problem_builder.node_groups import NodeGroups

_Later: TypeAlias = "tuple[tuple[int | None, ...], tuple[tuple[int, ...], ...]]"
"""Points and groups by slot (see `Option.later` and `Option.later_groups`)."""


class StartValues:
    """Slots, expected durations, windows and start values of one problem."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._now = snapshot.taken_at
        self.slots = TimeSlots.of(policy.horizon, snapshot.taken_at)
        self.durations = Durations(snapshot, policy)
        self.start_value = StartValue(snapshot, policy, self.durations)
        self.windows = ReservationWindows(snapshot, policy, self.durations)
        self.ahead = self.slots.count > 1
        """True if there is more than one slot."""
        self.ignores_time = not (self.ahead or self.windows.all)
        """True if durations have no effect, except on jobs with hard deadlines."""
        self._reservations = list(
            {
                (each.job and each.nodes, each.reservation.name): each.reservation
                for each in self.windows.all
            }.values()
        )
        self._owned: dict[tuple[Hashable, ...], tuple[int, ...]] = {}
        self._owner_labels = sorted({key for each in self._reservations for key in each.job_labels})
        self._remaining: dict[str, int] = {}
        self._after = range(1, self.slots.count)
        self._never: _Later = ((None,) * self.slots.count, ((),) * self.slots.count)
        self._has_tariffs = bool(snapshot.cluster.tariffs)
        self._by_model = any(tariff.gpu_models for tariff in snapshot.cluster.tariffs)
        self._ends: dict[int, tuple[int, ...]] = {}
        self._worth: dict[tuple[str, int, str | None], tuple[int | None, ...]] = {}
        self._places: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {}
        self._stays: dict[tuple[int, ...], dict[int, tuple[float, ...]]] = {}
        self._shared: dict[tuple[int, ...], tuple[int, ...]] = {}

    def second(self, time: datetime) -> int:
        """Seconds from now to a time."""
        return int((time - self._now).total_seconds())

    def remaining(self, job: Job) -> int:
        """Expected remaining seconds of a running job at its present places."""
        if job.name not in self._remaining:
            self._remaining[job.name] = self.durations.remaining(job)
        return self._remaining[job.name]

    def until(self, job: Job) -> int:
        """First slot in which a running job has ended."""
        return self.slots.until(0, self.remaining(job)) if self.ahead else 1

    def seconds(self, candidate: JobCandidate, gpu_model: str | None) -> int:
        """
        Duration of a candidate's new replicas on a GPU model.

        A migration repeats the lost work. Replicas of a growth stay until the job's other replicas end.
        """
        job = candidate.job
        match candidate.role:
            case ClassRole.START:
                return self.durations.seconds(job, gpu_model)
            case ClassRole.GROW:
                return self.remaining(job)
            case ClassRole.MOVE:
                return self.durations.restart_seconds_now(job, gpu_model)
            case ClassRole.RESUME:
                return self.durations.again(job, gpu_model)

    def coming(self, nodes: Iterable[Node]) -> dict[str, int]:
        """The later slot from which each node that becomes ready within the horizon takes jobs, by name."""
        return {node.name: slot for node in nodes if (slot := self._opens(node))}

    def _opens(self, node: Node) -> int | None:
        """The later slot from which a node takes jobs; None if it does now, or not within the horizon."""
        if node.ready or node.ready_at is None or node.cordoned or node.drain:
            return None
        # A node past its ready time may be broken, so it is not planned on.
        slot = self.slots.after(self.second(node.ready_at))
        return slot if 0 < slot < self.slots.count else None

    def kind(self, job: Job, bound: int) -> Hashable:
        """Time key of a pending job: jobs that are otherwise equal and have equal keys have equal options."""
        avoided = self.start_value.worth.avoided_models(job)
        if self.ignores_time and not job.hard_deadline:
            return avoided
        deadline = job.deadline and self.second(job.deadline)
        return avoided, self.owned(job), self.durations.work(job), deadline, job.hard_deadline, bound

    def owned(self, job: Job) -> tuple[int, ...]:
        """Numbers of the reservations that a job may use."""
        if not self._reservations:
            return ()
        hold = self.windows.node_hold
        held = hold and (job.priority, job.name if hold.is_for(job.name) else None)
        labels = tuple(job.labels.get(key) for key in self._owner_labels)
        key = (job.queue, job.user, labels, held)
        if key not in self._owned:
            self._owned[key] = tuple(
                number for number, each in enumerate(self._reservations) if self.windows.owns(job, each)
            )
        return self._owned[key]

    def due(self, job: Job) -> int | None:
        """Seconds to a deadline that can be met with a slack below half the duration; else None."""
        if not self.ahead or job.deadline is None:
            return None
        seconds = self.durations.seconds(job, None)
        slack = self.start_value.slack(job, seconds)
        critical = slack is not None and 0 <= 2 * slack < seconds
        return self.second(job.deadline) if critical else None

    def options(self, candidate: JobCandidate, sites: NodeGroups, bound: int = 0) -> tuple[Option, ...]:
        """
        Options of a candidate that starts in slot `bound` or later, the highest points first.

        Options without a feasible slot are left out.
        """
        job, allowed = candidate.job, sites.allowed(candidate)
        later = () if job.gang.scaled else self.start_value.worth.avoided_models(job)
        models = sorted(
            (model for model in allowed if model not in later),
            key=lambda model: (-job.speed_milli(model), sites.scarcity(allowed[model]), model or ""),
        )
        if job.gang.scaled:
            # With a long queue the fastest model is not worth most for a job that gains little from it.
            models.sort(key=lambda model: -self.start_value.usual_points(job, model))
        if self.ignores_time and not job.hard_deadline:
            return tuple(
                Option(model, allowed[model], points, further)
                for model in models
                for points, further in [self._placed(candidate, model)]
            )
        options = [self._option(candidate, model, allowed[model], sites, bound) for model in models]
        # The fastest model is not always best: tariffs differ by GPU model.
        best = sorted(options, key=lambda option: -(option.points + option.once))
        return tuple(option for option in best if has_start_slot(option))

    def _option(
        self,
        candidate: JobCandidate,
        model: str | None,
        groups: tuple[int, ...],
        sites: NodeGroups,
        bound: int,
    ) -> Option:
        job, starts = candidate.job, candidate.role in (ClassRole.START, ClassRole.RESUME)
        seconds = self.seconds(candidate, model)
        points, further = self._placed(candidate, model, seconds)
        barred = bound > 0
        if starts:
            charged = 1 if job.gang.elastic and not job.gang.scaled else job.gang.minimum
            each = self.start_value.tariff_points(job, model, 1, start=0, seconds=seconds)
            points -= charged * each
            further = tuple(more - each for more in further)
            barred = barred or self.start_value.misses_hard_deadline(job, start=0, seconds=seconds)
        later, later_groups = self._never
        if self.ahead and starts:
            later, later_groups = self._later(job, model, groups, sites, seconds)
        option = Option(
            gpu_model=model,
            groups=() if barred else self._unbarred(job, sites.open_in(groups, 0), sites, 0, seconds),
            points=points,
            further=further,
            once=self.start_value.saved_lateness(job, start=0, seconds=seconds) if starts else 0,
            ends=self._ends_of(seconds),
            later=later,
            later_groups=later_groups,
        )
        return from_slot(option, bound)

    def _placed(
        self, candidate: JobCandidate, model: str | None, seconds: int | None = None
    ) -> tuple[int, tuple[int, ...]]:
        """`Option.points` and `Option.further` from completion points only."""
        job, completion = candidate.job, self.start_value.completion
        if not job.gang.scaled or candidate.role is ClassRole.MOVE:
            replicas = candidate.maximum if candidate.role is ClassRole.MOVE else 1
            return completion(job, model, replicas, seconds=seconds), ()
        if candidate.role in (ClassRole.START, ClassRole.RESUME):
            fewest, before = candidate.minimum, 0
        else:
            held = job.running.replicas if job.running else ()
            fewest = len(held) + candidate.minimum
            before = completion(job, model, len(held), seconds=seconds)
        sizes = range(fewest, fewest + candidate.maximum - candidate.minimum + 1)
        further = self.start_value.further(job, model, sizes, seconds=seconds)
        return completion(job, model, fewest, seconds=seconds) - before, further

    def _later(
        self, job: Job, model: str | None, groups: tuple[int, ...], sites: NodeGroups, seconds: int
    ) -> _Later:
        """Points and groups of starts in later slots."""
        points = self._points(job, model, seconds)
        if sites.windowed.isdisjoint(groups):
            # Without windows the result depends only on the groups, so jobs share it.
            places = self._places.get(groups)
            if places is None:
                places = self._places[groups] = ((), *(sites.open_in(groups, slot) for slot in self._after))
        else:
            places = (
                (),
                *(
                    self._unbarred(job, sites.open_in(groups, slot), sites, slot, seconds)
                    for slot in self._after
                ),
            )
        if None not in points[1:] and all(places[1:]):
            return points, places
        open_then = [worth is not None and bool(where) for worth, where in zip(points, places, strict=True)]
        return (
            tuple(worth if is_open else None for worth, is_open in zip(points, open_then, strict=True)),
            tuple(where if is_open else () for where, is_open in zip(places, open_then, strict=True)),
        )

    def _points(self, job: Job, model: str | None, seconds: int) -> tuple[int | None, ...]:
        """Points of a start in each later slot; None if it would miss a hard deadline."""
        key = job.name, seconds, model if self._by_model or job.gang.scaled else None
        points = self._worth.get(key)
        if points is None:
            starts, fewest = self.slots.edges[1:-1], job.gang.minimum
            earned = self.start_value.completions(job, model, fewest, starts, seconds=seconds)
            if job.deadline is None and not self._has_tariffs:
                points = None, *earned
            else:
                points = None, *map(partial(self._timed, job, model, seconds), starts, earned)
            self._worth[key] = points
        return points

    def _timed(self, job: Job, model: str | None, seconds: int, start: int, earned: int) -> int | None:
        """The same of one start, with lateness and tariffs."""
        values = self.start_value
        if values.misses_hard_deadline(job, start=start, seconds=seconds):
            return None
        return (
            earned
            + values.saved_lateness(job, start=start, seconds=seconds)
            - values.tariff_points(job, model, job.gang.minimum, start=start, seconds=seconds)
        )

    def _unbarred(
        self, job: Job, groups: tuple[int, ...], sites: NodeGroups, slot: int, seconds: int
    ) -> tuple[int, ...]:
        """Groups on which no window blocks a start in a slot."""
        if sites.windowed.isdisjoint(groups):
            return groups
        stays = self._stays_of(job, sites)
        unbarred = tuple(group for group in groups if group not in stays or seconds <= stays[group][slot])
        return groups if len(unbarred) == len(groups) else self._shared.setdefault(unbarred, unbarred)

    def _stays_of(self, job: Job, sites: NodeGroups) -> dict[int, tuple[float, ...]]:
        """
        Seconds that a job may run before a window of a reservation that it does not own, by group and slot.

        A start in the slot conflicts with a window that ends later if the job still runs when the window
        begins. So only the first such window counts.
        """
        owned = self.owned(job)
        if owned not in self._stays:
            self._stays[owned] = {}
            for group in sorted(sites.windowed):
                windows = [
                    window
                    for window in self.windows.of(sites.first_of(group).name)
                    if not self.windows.owns(job, window.reservation)
                ]
                self._stays[owned][group] = tuple(
                    min((each.begins - start for each in windows if each.ends > start), default=inf)
                    for start in self.slots.edges[:-1]
                )
        return self._stays[owned]

    def _ends_of(self, seconds: int) -> tuple[int, ...]:
        ends = self._ends.get(seconds)
        if ends is None:
            ends = self._ends[seconds] = tuple(
                self.slots.until(slot, seconds) for slot in range(self.slots.count)
            )
        return ends


def has_start_slot(option: Option) -> bool:
    """True if the option allows a start in some slot."""
    return bool(option.groups) or any(points is not None for points in option.later)


def start_slots(options: Iterable[Option]) -> tuple[int, ...]:
    """Slots in which these options allow a start, in order."""
    options = tuple(options)
    later = {slot for option in options for slot, points in enumerate(option.later) if points is not None}
    now = (0,) if any(option.groups for option in options) else ()
    return (*now, *sorted(later))


def from_slot(option: Option, earliest: int) -> Option:
    """The option restricted to starts in slot `earliest` or later."""
    if earliest == 0:
        return option
    later, places = enumerate(option.later), enumerate(option.later_groups)
    return replace(
        option,
        groups=(),
        later=tuple(points if slot >= earliest else None for slot, points in later),
        later_groups=tuple(groups if slot >= earliest else () for slot, groups in places),
    )
