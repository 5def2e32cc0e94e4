"""
The start of the jobs of one group in two phases: all are reserved, then all are confirmed, or none starts.

Until the last one runs, nothing is done for good: if one of them cannot be reserved or started in time, all
are taken back, also those that run. A process may be killed at any point. The marks on the cluster say how
far each job is, and the next apply reserves and confirms what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Start
from gpuplan.planner.executors.interface import ActionPhase, ActionProgress, UnreachableError
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.text_format import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.apply.outcome import MonotonicClock
    from gpuplan.planner.apply.promises import Step
    from gpuplan.planner.executors.interface import Executor

_IN_HAND: Final = (ActionPhase.RESERVED, ActionPhase.UNDER_WAY, ActionPhase.LANDED)
_LEAST_LOOKS: Final = 10
"""Times that a start is taken back before it is given up: the machine may have slept since the last one."""
_MOVING: Final = (ActionPhase.RESERVED, ActionPhase.ASKED, ActionPhase.UNDER_WAY)


def observed(cluster: Executor, keys: Iterable[str]) -> dict[str, ActionProgress]:
    """Progress of the actions with these keys; unknown if the cluster gives no answer."""
    keys = tuple(keys)
    try:
        return dict(cluster.observe(keys))
    except LockedError:
        # The cluster is another's now: this apply ends, as if it were killed.
        raise
    except PlannerError as error:
        return dict.fromkeys(keys, ActionProgress(ActionPhase.UNKNOWN, str(error)))


def start_groups(plan: Plan) -> tuple[tuple[Start, ...], ...]:
    """The starts of each `co_start` group of which a plan starts several jobs, in the plan's order."""
    jobs, groups = plan.snapshot.job_by_name, defaultdict[str, list[Start]](list)
    for action in plan.actions:
        if isinstance(action, Start) and action.job in jobs and (name := jobs[action.job].co_start):
            groups[name].append(action)
    return tuple(tuple(starts) for starts in groups.values() if len(starts) > 1)


def starts_in_motion(
    plan: Plan, phases: Mapping[str, ActionPhase], recorded: frozenset[str]
) -> frozenset[str]:
    """
    Ids of the starts of groups that an earlier apply began and did not bring to their end.

    A job that runs counts as under way until its whole group runs. A job that is gone is none of the group.
    """
    found: set[str] = set()
    for group in start_groups(plan):
        there = {step.id for step in group if phases[step.id] is not ActionPhase.GONE}
        landed = {id_ for id_ in there if phases[id_] is ActionPhase.LANDED}
        moving = any(phases[id_] in _MOVING for id_ in there) or (landed and landed != there)
        if moving and recorded.isdisjoint(there):
            found |= there
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """How the start of a group ended."""

    why: str = ""
    """Why it was taken back; empty if all jobs run."""
    retryable: bool = False
    """True if it may succeed if it is begun again."""
    placements: Mapping[str, Placement | None] = field(default_factory=dict)
    """By key: where jobs really run, as in `ActionProgress`."""
    may_run: frozenset[str] = frozenset()
    """Keys of starts that could not be taken back in time."""


class _Phase(Enum):
    RESERVE = auto()
    CONFIRM = auto()
    ABORT = auto()


class GroupStart:
    """One attempt to start the jobs of a group."""

    def __init__(
        self,
        steps: Mapping[str, Start],
        cluster: Executor,
        clock: MonotonicClock,
        *,
        seconds: int,
        abort_seconds: int,
    ) -> None:
        """Begin the first phase of these starts, by key; each of two phases may last `seconds`."""
        self.steps = steps
        self._cluster, self._clock = cluster, clock
        self._seconds, self._abort_seconds = seconds, abort_seconds
        self._phase, self._deadline = _Phase.RESERVE, clock.now() + seconds
        self._landed: dict[str, Placement | None] = {}
        self._end, self._looks = GroupEnd(), 0

    def advance(self) -> GroupEnd | None:
        """Do what is due now; the end of the attempt, None while it lasts."""
        if self._phase is _Phase.RESERVE:
            self._reserve()
        if self._phase is _Phase.CONFIRM:
            self._confirm()
        if self._phase is _Phase.ABORT:
            return self._abort()
        return GroupEnd(placements=self._landed) if self._landed.keys() == self.steps.keys() else None

    def _reserve(self) -> None:
        waits: dict[str, str] = {}
        for key, step in self.steps.items():
            progress = self._asked(self._cluster.reserve, key)
            if progress.phase.ended:
                self._give_up(step, progress.reason, retryable=progress.retryable)
                return
            if progress.phase not in _IN_HAND:
                waits[key] = progress.reason
        if not waits:
            self._phase, self._deadline = _Phase.CONFIRM, self._clock.now() + self._seconds
        elif self._clock.now() >= self._deadline:
            key, why = next(iter(waits.items()))
            self._give_up(self.steps[key], f"its places are not reserved{self._after(why)}")

    def _confirm(self) -> None:
        found = observed(self._cluster, self.steps)
        for key, step in self.steps.items():
            if found[key].phase is ActionPhase.RESERVED:
                found[key] = self._asked(self._cluster.begin, key)
            if found[key].phase is ActionPhase.LANDED:
                self._landed[key] = found[key].placement
            elif found[key].phase.ended and key not in self._landed:
                why = found[key].reason or _WORDS[found[key].phase]
                self._give_up(step, why, retryable=found[key].retryable)
                return
        late = next((key for key in self.steps if key not in self._landed), "")
        if late and self._clock.now() >= self._deadline:
            self._give_up(self.steps[late], f"it does not run{self._after(found[late].reason)}")

    def _abort(self) -> GroupEnd | None:
        for key in self.steps:
            try:
                self._cluster.abort(key, self._end.why)
            except LockedError:
                raise
            except PlannerError:
                continue
        found = observed(self._cluster, self.steps)
        left = frozenset(key for key in self.steps if not found[key].phase.ended)
        self._looks += 1
        if left and (self._looks < _LEAST_LOOKS or self._clock.now() < self._deadline):
            return None
        why, end = self._end.why, self._end
        if left:
            why += f"; not taken back: {', '.join(sorted(self.steps[key].job for key in left))}"
        return GroupEnd(why, end.retryable and not left, may_run=left)

    def _give_up(self, step: Start, why: str, *, retryable: bool = False) -> None:
        self._phase, self._deadline = _Phase.ABORT, self._clock.now() + self._abort_seconds
        said = why if why.startswith(f"job {step.job} ") else f"job {step.job}: {why}"
        self._end = GroupEnd(f"its group starts together or not at all; {said}", retryable)

    def _asked(self, request: Callable[[Start, str], ActionProgress], key: str) -> ActionProgress:
        """Answer to a request about a start; a refusal is a failure for good."""
        try:
            return request(self.steps[key], key)
        except UnreachableError as error:
            return ActionProgress(ActionPhase.UNKNOWN, str(error))
        except LockedError:
            # The cluster is another's now, and says so only once: whatever goes on does so without a lock.
            raise
        except PlannerError as error:
            return ActionProgress(ActionPhase.FAILED, str(error))

    def _after(self, why: str) -> str:
        return f" after {format_duration(self._seconds)}" + (f": {why}" if why else "")


class GroupStarts:
    """The groups of one apply: which starts belong together, and which groups start now."""

    def __init__(self, plan: Plan, left: Iterable[str], begun: Collection[str]) -> None:
        """
        Of the steps with the ids `left`, those of one group are together; so are those that have `begun`.

        Where an earlier apply began a group, only jobs that are gone are none of these.
        """
        waits = {*left}
        parts = (
            tuple(step for step in group if step.id in waits and (step.id in begun) is there)
            for group in start_groups(plan)
            for there in (False, True)
        )
        self._of = {step.id: part for part in parts for step in part}
        self._starting: list[GroupStart] = []

    def of(self, step: Step) -> tuple[Start, ...]:
        """The starts that begin together with a step, and this, in the plan's order; empty if it is alone."""
        return self._of.get(step.id, ())

    @property
    def under_way(self) -> frozenset[str]:
        """Ids of the starts of groups that start now."""
        return frozenset(step.id for start in self._starting for step in start.steps.values())

    def add(self, start: GroupStart) -> None:
        """Follow the start of a group from now on."""
        self._starting.append(start)

    def advance(self) -> Iterator[tuple[GroupStart, GroupEnd]]:
        """Do what is due; the groups of which the start has ended."""
        for start in tuple(self._starting):
            if (end := start.advance()) is not None:
                self._starting.remove(start)
                yield start, end


_WORDS: Final = {
    ActionPhase.NOT_BEGUN: "the cluster has no mark of it",
    ActionPhase.FAILED: "it failed",
    ActionPhase.GONE: "it is no longer on the cluster",
}
