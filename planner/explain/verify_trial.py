"""Judging: a question is answered by concrete places that break no rule, and by what they are worth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.job import Running
from gpuplan.models.plan.plan import Keep, Repartition, Wait
from gpuplan.models.plan.plan import Start as Starting
from gpuplan.models.verifier.verify import verify, verify_target
from gpuplan.planner.explain.hypothesis import Question
from gpuplan.planner.explain.trial_placement import placements_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.verifier.verify import Verification
    from gpuplan.planner.explain.feasibility import Ground, Room

_MOST_ROOMS: Final = 3


@dataclass(frozen=True, slots=True)
class Start:
    """The job, and those that start together with it, on places which the verifier accepts."""

    placements: tuple[Placement, ...]
    points: int
    """The objective with it, less the objective without."""
    by_hand: bool = False
    """A rule forbids a plan to stop those who stop: an operator may."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({replica.node for each in self.placements for replica in each.replicas}))


@dataclass(frozen=True)
class Judge:
    """Asks the verifier about starts beside all that one plan does."""

    ground: Ground
    _objectives: dict[tuple[frozenset[str], frozenset[str]], int] = field(default_factory=dict)
    """Without the job, by who waits instead and who is over."""

    def start(self, question: Question) -> Start | None:
        """The job on places that break no rule; None if none were found."""
        for rooms in self._choices(question):
            placements = placements_in(rooms, question, self.ground)
            if placements and (judged := self._judged(question, placements)) is not None:
                return Start(placements, *judged)
        return None

    def _choices(self, question: Question) -> Iterator[list[tuple[str, Room]]]:
        """One of the best rooms after the other; where jobs start together, those of all of them at once."""
        best = []
        for each in question.by_member():
            rooms = sorted(self.ground.rooms(each), key=partial(_order, each.job))[:_MOST_ROOMS]
            best += [(each.job.name, room) for room in rooms]
        yield from [best] if question.others else ([each] for each in best)

    def _judged(self, question: Question, placements: tuple[Placement, ...]) -> tuple[int, bool] | None:
        """What the placements are worth, by the prices of now, and if by hand; None if they break a rule."""
        found, by_hand = self._verified(replace(question, second=0), placements), False
        if question.second:
            if self._verified(question, placements).violations:
                return None
        elif found.violations:
            if not question.stopped:
                return None
            # What the plan may not do, an operator may still do by hand; the price is the same.
            by_hand = True
            if self._verified(question, placements, by_hand=True).violations:
                return None
        return found.objective - self._before(question), by_hand

    def _before(self, question: Question) -> int:
        """The objective of the plan, in a world that knows of those who are over."""
        jobs = question.plan.snapshot.job_by_name
        # Who runs is known in any world; who is to wait instead must not be taken to run already.
        deferred = frozenset(name for name in question.stopped if jobs[name].running is None)
        key = deferred, question.over
        known = self._objectives.get(key)
        if known is None:
            plain = Question.about(question.plan, jobs[question.job.name])
            plain = replace(plain, stopped=deferred, over=question.over, begun=question.begun)
            known = self._objectives[key] = self._verified(plain, ()).objective
        return known

    def _verified(
        self, question: Question, placements: tuple[Placement, ...], *, by_hand: bool = False
    ) -> Verification:
        """
        The verifier's word on the plan with the job on some places, or without it.

        Of a plan that only starts jobs, it is asked about the world with these running, which is the same
        question and takes it a third of the time. So it is of every plan if some time has gone by since.
        """
        ground, plan = self.ground, question.plan
        target = question.target(placements, without=None if placements else question.over)
        if self._only_starts or question.second:
            world = question.snapshot(self._settled, ground.cluster, by_hand=by_hand)
            return verify(world, question.policy, target.placements)
        world = question.snapshot(plan.snapshot.job_by_name, plan.snapshot.cluster, by_hand=by_hand)
        return verify_target(world, question.policy, target)

    @cached_property
    def _only_starts(self) -> bool:
        """True if the plan looks no further than this instant, and disturbs nobody, nor changes any node."""
        actions = self.ground.plan.actions
        calm = all(isinstance(action, Starting | Keep | Wait | Repartition) for action in actions)
        return calm and self.ground.outlook.future.slots.count == 1

    @cached_property
    def _settled(self) -> dict[str, Job]:
        """The jobs as the plan leaves them: those that it places run, and no others do."""
        snapshot, placed = self.ground.plan.snapshot, self.ground.placed
        jobs, durations = dict(snapshot.job_by_name), self.ground.outlook.future.durations
        for name, job in snapshot.job_by_name.items():
            if (placement := placed.get(name)) is not None:
                running = job.running or Running(
                    started_at=snapshot.taken_at,
                    resumed_at=durations.resumes_at(job),
                    replicas=placement.replicas,
                )
                # The very replicas of the target: whoever compares the two need not look into them.
                held = running.model_copy(update={"replicas": placement.replicas})
                jobs[name] = job.model_copy(update={"running": held})
            elif job.running:
                jobs[name] = durations.stopped(job)
        return jobs


def _order(job: Job, room: Room) -> tuple[int, int, str]:
    """Fast GPU models first, then small rooms: what is left is worth more in one piece."""
    return -job.speed_milli(room.gpu_model), sum(room.counts.values()), room.gpu_model or ""
