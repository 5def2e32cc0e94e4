"""Judging: a question is answered by concrete places that break no rule, and by what they are worth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from planner.explaining.placing import placement_in
from planner.explaining.question import Question
from planner.models.verifier import verify, verify_target

if TYPE_CHECKING:
    from planner.explaining.ground import Ground, Room
    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.verifier import Verification

_MOST_ROOMS: Final = 3


@dataclass(frozen=True, slots=True)
class Start:
    """The job on its places, which the verifier accepts."""

    placement: Placement
    points: int
    """The objective with it, less the objective without."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({replica.node for replica in self.placement.replicas}))


@dataclass(frozen=True)
class Judge:
    """Asks the verifier about starts beside all that one plan does."""

    ground: Ground
    _objectives: dict[frozenset[str], int] = field(default_factory=dict)

    def start(self, question: Question) -> Start | None:
        """The job on places that break no rule; None if none were found."""
        job = question.job
        rooms = sorted(self.ground.rooms(question), key=lambda room: _order(room, job))
        for room in rooms[:_MOST_ROOMS]:
            placement = placement_in(room, question, self.ground)
            if placement is not None and (points := self._points(question, placement)) is not None:
                return Start(placement, points)
        return None

    def _points(self, question: Question, placement: Placement) -> int | None:
        """What the placement is worth; None if it breaks a rule."""
        found = self._verified(question, placement)
        if found.violations:
            if not question.stopped:
                return None
            # What the plan may not do, somebody may still do by hand; the price is the same.
            if self._verified(question, placement, by_hand=True).violations:
                return None
        return found.objective - self._before(question)

    def _before(self, question: Question) -> int:
        """The objective of the plan, in a world that knows of those who are over."""
        jobs = question.plan.snapshot.job_by_name
        # Who runs is known in any world; who is to wait instead must not be taken to run already.
        deferred = frozenset(name for name in question.stopped if jobs[name].running is None)
        key = deferred | question.over
        known = self._objectives.get(key)
        if known is None:
            plain = Question.about(question.plan, jobs[question.job.name])
            plain = replace(plain, stopped=deferred, over=question.over)
            known = self._objectives[key] = self._verified(plain, None).objective
        return known

    def _verified(
        self, question: Question, placement: Placement | None, *, by_hand: bool = False
    ) -> Verification:
        """
        The verifier's word on the plan with the job on a placement, or without it.

        Of a plan that only starts jobs, it is asked about the world with these running, which is the same
        question and takes it a third of the time.
        """
        ground, plan = self.ground, question.plan
        target = question.target(placement)
        if ground.only_starts:
            world = question.snapshot(ground.settled, ground.cluster, by_hand=by_hand)
            return verify(world, question.policy, target.placements)
        world = question.snapshot(plan.snapshot.job_by_name, plan.snapshot.cluster, by_hand=by_hand)
        return verify_target(world, question.policy, target)


def _order(room: Room, job: Job) -> tuple[int, int, str]:
    """Fast GPU models first, then small rooms: what is left is worth more in one piece."""
    return -job.speed_milli(room.gpu_model), sum(room.counts.values()), room.gpu_model or ""
