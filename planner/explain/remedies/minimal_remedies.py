"""
remedies(ground, job) → Remedies: the smallest changes that would make a waiting job start.

Sufficient: the verifier checks the changed snapshot with all actions of the plan and the job on concrete
places. Minimal: counting (`PlanFeasibility`) shows that nothing less suffices. One gang on what the others
leave free needs no search, and the counts are never below the real capacity.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.units import LONGEST_SECONDS
from gpuplan.planner.explain.explanation import ImmediateStart, Remedies, Remedy, RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.cluster_relaxations import new_node_points, relaxations_of_cluster
from gpuplan.planner.explain.remedies.preempt_remedy import (
    jobs_in_the_way,
    preemption_prices,
    priority_remedy,
    stop_relaxation,
    unsaved_gpu_hours,
)
from gpuplan.planner.explain.remedies.relaxation import Relaxation, fewest_steps, relaxations_of_jobs
from gpuplan.planner.explain.verify_trial import TrialStart, TrialVerifier
from gpuplan.planner.text_format import format_time, join_jobs
from gpuplan.planner.waiting.time_messages import window_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.timing.reservation_windows import ReservationWindow
    from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule
    from gpuplan.planner.explain.feasibility import PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis

_MOST_SHOWN: Final = 8

_MOST_ALIKE: Final = 2
"""Remedies of one kind that are verified; the cheapest come first."""

_MOST_PAIRS: Final = 4

_PASSING_ON: Final = {RemedyKind.STOP, RemedyKind.DEFER}
"""Remedies that start the job at the cost of another job."""


def remedies(ground: PlanFeasibility, job: Job) -> Remedies:
    """Find the changes that would start a waiting job of a plan."""
    question = ground.question(job)
    found = _RemedySearch(TrialVerifier(ground), question).answer()
    return found.model_copy(update={"together_with": tuple(other.name for other in question.others)})


@dataclass
class _RemedySearch:
    judge: TrialVerifier
    question: Hypothesis
    found: list[Remedy] = field(default_factory=list)
    more: int = 0
    unconfirmed: int = 0

    def answer(self) -> Remedies:
        if self.ground.has_room(self.question):
            start = self.judge.start(self.question)
            if start is None:
                return Remedies(unplaced=True)
            return Remedies(fits=ImmediateStart(points=start.points, nodes=start.nodes))
        levers = [*relaxations_of_jobs(self.question), *relaxations_of_cluster(self.question, self.ground)]
        alone = [lever for lever in levers if self._is_enough([lever])]
        for lever in self._few_alike(alone):
            self._try([lever])
        in_the_way = jobs_in_the_way(self.question, self.ground, self._prices)
        self._try_stops(in_the_way, (), most=_MOST_ALIKE)
        if (remedy := priority_remedy(self.question, self.judge, self._prices)) is not None:
            self.found.append(remedy)
        if all(_PASSING_ON & {part.kind for part in remedy.parts} for remedy in self.found):
            self._try_several([lever for lever in levers if lever not in alone], set(in_the_way))
        self._wait()
        self.found.sort(key=lambda each: (-each.points, len(each.parts), [part.text for part in each.parts]))
        shown = tuple(self.found[:_MOST_SHOWN])
        return Remedies(
            found=shown, more=self.more + len(self.found) - len(shown), unconfirmed=self.unconfirmed
        )

    @property
    def ground(self) -> PlanFeasibility:
        return self.judge.ground

    @cached_property
    def _prices(self) -> dict[str, int]:
        return preemption_prices(self.ground)

    def _few_alike(self, levers: list[Relaxation]) -> list[Relaxation]:
        """The first few of each kind; the others are only counted."""
        kinds: Counter[RemedyKind] = Counter()
        few = []
        for lever in levers:
            kind = lever.part(lever.most).kind
            if kinds[kind] < _MOST_ALIKE:
                few.append(lever)
            kinds[kind] += 1
        self.more += len(levers) - len(few)
        return few

    def _try_several(self, levers: list[Relaxation], in_the_way: set[str]) -> None:
        """
        Try pairs of levers of which none suffices alone; if no pair does, drop levers from all of them.

        Levers are dropped one by one while the rest still suffices.
        """
        pairs = [pair for pair in combinations(levers, 2) if self._is_enough(pair)]
        for pair in pairs[:_MOST_PAIRS]:
            self._try(pair)
        self.more += len(pairs[_MOST_PAIRS:])
        for lever in levers:
            if lever.part(lever.most).kind is RemedyKind.QUOTA:
                names = jobs_in_the_way(lever.apply(self.question, lever.most), self.ground, self._prices)
                self._try_stops([name for name in names if name not in in_the_way], (lever,), most=1)
        if pairs or self.found or not self._is_enough(levers):
            return
        kept = list(levers)
        for lever in reversed(levers):
            fewer = [each for each in kept if each is not lever]
            if self._is_enough(fewer):
                kept = fewer
        self._try(kept)

    def _try_stops(self, names: list[str], others: tuple[Relaxation, ...], *, most: int) -> None:
        """Try to stop single blocking jobs: the cheapest that run, and the cheapest that the plan starts."""
        jobs = self.question.plan.snapshot.job_by_name
        for running in (True, False):
            same = [name for name in names if (jobs[name].running is not None) == running]
            for name in same[:most]:
                self._try([*others, stop_relaxation(name, self.ground)])
            self.more += len(same[most:])

    def _is_enough(self, levers: Sequence[Relaxation]) -> bool:
        """True if all levers together, at their last step, seem to suffice."""
        return self.ground.has_room(self._pulled(levers, [lever.most for lever in levers]))

    def _try(self, levers: Sequence[Relaxation]) -> None:
        """Find the fewest steps of each lever in turn; keep the remedy if the verifier accepts it."""
        steps = [lever.most for lever in levers]
        for number, lever in enumerate(levers):

            def enough(step: int, number: int = number) -> bool:
                tried = [*steps[:number], step, *steps[number + 1 :]]
                return self.ground.has_room(self._pulled(levers, tried))

            if (step := fewest_steps(lever.most, enough)) is None:
                return
            steps[number] = step
        parts = tuple(lever.part(step) for lever, step in zip(levers, steps, strict=True))
        self._judge(parts, self._pulled(levers, steps))

    def _wait(self) -> None:
        """Remedy without a change: the plan's later start, or the first start found after the horizon."""
        future, name = self.ground.outlook.future, self.question.job.name
        if name in future.planned:
            nodes = tuple(future.stays[name].nodes)
            part = planned_start_part(name, future)
            self.found.append(Remedy(parts=(part,), points=0, nodes=nodes, **_when(part, future)))
        elif (later := WaitMoments(self.question, self.ground).first()) is not None:
            changed, part = later
            self._judge((part,), changed)

    def _judge(self, parts: tuple[RemedyPart, ...], changed: Hypothesis) -> None:
        """Keep the remedy if the verifier accepts it."""
        if (start := self.judge.start(changed)) is None:
            self.unconfirmed += 1
        else:
            self.found.append(self._remedy(parts, changed, start))

    def _pulled(self, levers: Sequence[Relaxation], steps: Sequence[int]) -> Hypothesis:
        question = self.question
        for lever, step in zip(levers, steps, strict=True):
            question = lever.apply(question, step)
        return question

    def _remedy(self, parts: tuple[RemedyPart, ...], changed: Hypothesis, start: TrialStart) -> Remedy:
        jobs, known = changed.plan.snapshot.job_by_name, changed.plan.snapshot.cluster.node_by_name
        stopped = tuple(sorted(name for name in changed.stopped if jobs[name].running is not None))
        new = [node for node in changed.nodes if node.name not in known]
        return Remedy(
            parts=parts,
            points=start.points - sum(new_node_points(changed.policy, node) for node in new),
            nodes=start.nodes,
            stops=stopped,
            by_hand=start.by_hand,
            lost_gpu_hours=unsaved_gpu_hours(stopped, self.ground) if stopped else None,
            price_per_hour=sum(node.price_per_hour for node in new) if new else None,
            **_when(parts[0], self.ground.outlook.future),
        )


def _when(part: RemedyPart, future: ProjectedSchedule) -> dict[str, Any]:
    """The time fields of a remedy; only waiting takes time."""
    if part.kind is not RemedyKind.WAIT:
        return {}
    seconds = int(part.after or 0)
    return {"seconds": seconds, "starts_at": future.instant_at(seconds)}


_NEXT_PLAN: Final = 1
"""Seconds from now at which this plan is applied, and any job may use what its preemptions free."""

_MOST_MOMENTS: Final = 400
"""Most moments tried one by one, which is needed if a later moment may be worse."""


def planned_start_part(name: str, future: ProjectedSchedule) -> RemedyPart:
    """The later start that a plan with a horizon has for a job."""
    stay = future.stays[name]
    at = format_time(future.instant_at(stay.start), future.snapshot.taken_at)
    starts = "is promised to start" if future.planned[name].promised else "is foreseen to start"
    return RemedyPart(
        kind=RemedyKind.WAIT, subject=name, after=stay.start, text=f"wait until {at}, when it {starts}"
    )


@dataclass(frozen=True)
class WaitMoments:
    """
    The moments at which something a job may wait for changes without any intervention.

    Within its horizon the plan itself has the later starts, so only moments after the horizon count.
    """

    question: Hypothesis
    ground: PlanFeasibility

    def first(self) -> tuple[Hypothesis, RemedyPart] | None:
        """The question at the first moment with room for the job, and the remedy; None if there is none."""
        moments = self._moments
        if not moments:
            return None
        if self._later_may_be_worse:
            tried = moments[:_MOST_MOMENTS]
            second = next((each for each in tried if self.ground.has_room(self._at(each))), None)
        else:
            step = fewest_steps(len(moments), lambda step: self.ground.has_room(self._at(moments[step - 1])))
            second = None if step is None else moments[step - 1]
        return None if second is None else (self._at(second), self._part(second))

    @property
    def _later_may_be_worse(self) -> bool:
        return bool(self._windows) or any(job.hard_deadline for job in self.question.members)

    @cached_property
    def _moments(self) -> list[int]:
        """Seconds from now."""
        slots = self.ground.outlook.future.slots
        first = slots.end if slots.count > 1 else 1
        found = {slots.end} if slots.count > 1 else set()
        found |= {stay.end for stay in self._stays} | {window.ends for window in self._windows}
        found |= {self.ground.outlook.begins(job) for job in self.question.members}
        found |= {_NEXT_PLAN} if self.ground.reserves_freed_resources else set()
        # Some jobs are held by an earliest start that never comes, such as the year 9999.
        return sorted(each for each in found if first <= each <= LONGEST_SECONDS)

    @cached_property
    def _stays(self) -> list[JobInterval]:
        """Stays of other jobs, by their end."""
        stays = self.ground.outlook.future.stays
        others = (stay for name, stay in stays.items() if name not in self.question.names)
        return sorted(others, key=lambda stay: (stay.end, stay.job.name))

    @cached_property
    def _windows(self) -> tuple[ReservationWindow, ...]:
        return self.ground.outlook.future.windows.all

    def _at(self, second: int, going_on: Collection[str] = ()) -> Hypothesis:
        """The question at that second: later starts have begun, and jobs not in `going_on` have ended."""
        ended = (stay.job.name for stay in self._stays if stay.end <= second)
        over = frozenset(name for name in ended if name not in going_on)
        begun = tuple(stay.placement for stay in self._stays if stay.slot and stay.job.name not in over)
        return replace(
            self.question,
            second=second,
            over=over,
            begun=begun,
            job=_without(self.question.job, over),
            others=tuple(_without(job, over) for job in self.question.others),
        )

    def _part(self, second: int) -> RemedyPart:
        future = self.ground.outlook.future
        at = format_time(future.instant_at(second), future.snapshot.taken_at)
        last = self._needed(second)
        over = [window for window in self._windows if window.ends == second]
        if second == _NEXT_PLAN and self.ground.reserves_freed_resources:
            text = "until the next plan, which may give any job what this one frees"
        elif last:
            text = f"until {join_jobs(last)} {'ends' if len(last) == 1 else 'end'}, expected at {at}"
        elif over:
            text = f"until {window_name(over[0])} is over at {at}"
        elif second == future.slots.end and future.slots.count > 1:
            text = f"until {at}, up to which this plan has no start for it"
        else:
            text = f"until {at}, before which {self._who_begins(second)} may not begin"
        subject = (*last, *(window.reservation.name for window in over), self.question.job.name)[0]
        return RemedyPart(kind=RemedyKind.WAIT, subject=subject, after=second, text=f"wait {text}")

    def _needed(self, second: int) -> list[str]:
        """
        Choose a minimal set of the jobs that end at a moment such that the job fits once they have ended.

        The jobs that hold most are considered first, so that few are named.
        """
        ending = [stay for stay in self._stays if stay.end == second]
        ending.sort(key=lambda stay: -sum(replica.quota_milli for replica in stay.replicas))
        names = [stay.job.name for stay in ending]
        needed: set[str] = set()

        def enough(step: int) -> bool:
            over = needed.union(names[:step])
            return self.ground.has_room(self._at(second, {name for name in names if name not in over}))

        left = len(names)
        while not enough(0):
            step = fewest_steps(left, enough) if left else None
            if step is None:
                return sorted(names)
            # Without the last of these the job does not fit: it is needed, and the names after it are not.
            needed.add(names[step - 1])
            left = step - 1
        return sorted(needed)

    def _who_begins(self, second: int) -> str:
        job = self.question.job
        names = [each.name for each in self.question.members if self.ground.outlook.begins(each) == second]
        return "it" if job.name in names else join_jobs(names)


def _without(job: Job, over: frozenset[str]) -> Job:
    """The job with its dependencies on ended jobs satisfied."""
    left = tuple(each for each in job.depends_on if each.job not in over)
    if job.depends_on_at_least is None:
        return job.model_copy(update={"depends_on": left})
    needed = job.depends_on_at_least - (len(job.depends_on) - len(left))
    if needed <= 0:
        return job.model_copy(update={"depends_on": (), "depends_on_at_least": None})
    return job.model_copy(update={"depends_on": left, "depends_on_at_least": needed})
