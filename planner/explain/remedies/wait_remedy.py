"""How long a job has to wait if nothing is changed: jobs end, reservation windows end, start times come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.placement import Placement
from gpuplan.planner.explain.answers.job import RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.relaxation import fewest_steps
from gpuplan.planner.text_format import format_time, join_first_names
from gpuplan.planner.waiting.time_messages import window_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.job import Job
    from gpuplan.models.timing.reservation_windows import ReservationWindow
    from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule
    from gpuplan.planner.explain.feasibility import PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis

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
        return sorted(each for each in found if each >= first)

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
        begun = tuple(
            Placement(job=stay.job.name, replicas=stay.replicas)
            for stay in self._stays
            if stay.slot and stay.job.name not in over
        )
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
            text = f"until {join_first_names(last)} {'ends' if len(last) == 1 else 'end'}, expected at {at}"
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
        return "it" if job.name in names else join_first_names(names)


def _without(job: Job, over: frozenset[str]) -> Job:
    """The job with its dependencies on ended jobs satisfied."""
    left = tuple(each for each in job.depends_on if each.job not in over)
    if job.depends_on_at_least is None:
        return job.model_copy(update={"depends_on": left})
    needed = job.depends_on_at_least - (len(job.depends_on) - len(left))
    if needed <= 0:
        return job.model_copy(update={"depends_on": (), "depends_on_at_least": None})
    return job.model_copy(update={"depends_on": left, "depends_on_at_least": needed})
