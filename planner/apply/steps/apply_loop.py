"""
The steps of one apply: begin what is ready, observe what is under way, and stop or go on after a failure.

An action is ready once all actions that it must come after have landed. The starts of one group are ready
together, and count as under way until all of them have landed. The promise step comes last, and only if
everything else has landed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import ActionKind, info_of
from gpuplan.models.policy.settings import OnFailure
from gpuplan.planner.apply.outcome import ApplyOutcome, FailedAction
from gpuplan.planner.apply.promises import PromiseStep
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.apply.steps.apply_view import ApplyView
from gpuplan.planner.apply.steps.checkpoint_slots import CheckpointSlots
from gpuplan.planner.apply.steps.group_start import GroupStart, GroupStarts, observed
from gpuplan.planner.executors.interface import ActionPhase, ActionProgress, UnreachableError
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.text_format import action_label, format_duration

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.plan.actions import Change, Start
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.journal import ApplyJournal
    from gpuplan.planner.apply.outcome import ApplyHooks
    from gpuplan.planner.apply.promises import Step
    from gpuplan.planner.apply.standing import ApplyProgress
    from gpuplan.planner.executors.interface import Executor

_LOG: Final = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
"""Seconds between the first two looks after something happened: most starts land within seconds."""
_GROWTH: Final = 1.5
"""Each pause in which nothing happens is so many times as long as the one before."""
# What takes minutes, such as a node that boots, is noticed late by little of that.
_LONGEST_PAUSE: Final = 5.0
_LONGEST_FOR_GROUPS: Final = 1.0
"""The same while a group starts: what is reserved is fenced, and kept from other jobs."""
_REST: Final = 4.0
"""A pause is at least so many times as long as the last look: a large, busy cluster is asked more seldom."""

_UNDER_WAY: Final = ActionProgress(ActionPhase.UNDER_WAY)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A step that has begun and not landed."""

    step: Change
    key: str
    begun: float
    deadline: float


class ApplyLoop:
    """State of one running apply."""

    def __init__(
        self,
        plan: Plan,
        cluster: Executor,
        journal: ApplyJournal,
        live: Snapshot,
        standing: ApplyProgress,
        hooks: ApplyHooks,
    ) -> None:
        self._plan, self._cluster, self._journal = plan, cluster, journal
        self._standing, self._hooks = standing, hooks
        self._rules, self._slots = plan.policy.apply, CheckpointSlots(plan)
        self._left = {step.id: step for step in standing.left}
        """Steps that are neither landed nor under way, in the plan's order."""
        self._under_way: dict[str, _UnderWay] = {}
        begun = {step.id for step in standing.under_way}
        self._groups = GroupStarts(plan, self._left, begun)
        self._done: set[str] = set()
        self._failures: list[FailedAction] = []
        self._failed: set[str] = set()
        """Steps that failed for good."""
        self._attempts: dict[str, int] = {}
        """Attempts so far, by step."""
        self._not_before: dict[str, float] = {}
        """Earliest instant of the next attempt, by step that failed for a reason that may pass."""
        self._stopped = False
        self._stray: dict[str, _UnderWay] = {}
        """Steps that lasted too long and may still land; they count for the limit in parallel."""
        self._view = ApplyView(plan, cluster, live, standing)
        self._pause, self._look, self._due = _FIRST_PAUSE, 0.0, inf
        """Seconds: of the next pause, of the last look, and from then until a next step is due."""

    def run(self) -> ApplyOutcome:
        """Carry out the steps; returns what landed, what failed and what was not done."""
        self._adopt()
        while True:
            self._begin_ready()
            if self._under_way:
                if not self._observe():
                    self._wait(self._seconds_to_look())
            elif (wait := self._seconds_to_retry()) is not None:
                # A stop is noticed meanwhile.
                self._wait(min(wait, 1.0))
            else:
                break
        ids = [step.id for step in self._standing.left]
        done = tuple(filter(self._done.__contains__, ids))
        remaining = tuple(id_ for id_ in ids if id_ in self._left and id_ not in self._failed)
        return ApplyOutcome(done, self._standing.done_ids, tuple(self._failures), remaining)

    def _seconds_to_look(self) -> float:
        """Pause until the next look: often at first, seldom later, and in time for what is due."""
        longest = _LONGEST_FOR_GROUPS if self._groups.under_way else _LONGEST_PAUSE
        now, pause = self._hooks.clock.now(), max(min(self._pause, longest), _REST * self._look)
        self._pause *= _GROWTH
        ends = (each.deadline - now for each in self._under_way.values())
        return max(_FIRST_PAUSE, min(pause, self._due, *ends))

    def _wait(self, seconds: float) -> None:
        """Let time pass; the log then says all that is known."""
        # Should this fail, the records are written before the next intent, or at the end.
        with suppress(PlannerError):
            self._journal.write()
        self._hooks.clock.sleep(seconds)

    # --- beginning -----------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Go on with what an earlier run began and the cluster still carries out."""
        for step in self._standing.under_way:
            if step.id in self._attempts:
                continue
            if group := self._groups.of(step):
                self._follow_group(group)
                continue
            self._attempts[step.id] = 1
            intended = self._standing.intended_at.get(step.id)
            ago = 0.0 if intended is None else self._journal.seconds_since(intended)
            self._follow_from(self._hooks.clock.now() - ago, step, key_of(self._plan, step), _UNDER_WAY)

    def _begin_ready(self) -> None:
        """Begin the steps that are ready, in the plan's order, while there is room for more."""
        for step in tuple(self._left.values()):
            group = self._groups.of(step)
            busy = len(self._under_way) + len(self._stray)
            if self._ends() or busy >= self._rules.parallel:
                return
            under_way = (each.step for each in (*self._under_way.values(), *self._stray.values()))
            if not self._is_ready(step, group) or not self._slots.has_room(step, under_way):
                continue
            if not group:
                self._begin(step)
            elif busy and busy + len(group) > self._rules.parallel:
                # A group of more than that begins once nothing else is under way.
                return
            else:
                self._begin_group(group)

    def _ends(self) -> bool:
        """True if no further step may begin."""
        self._stopped = self._stopped or self._hooks.stop()
        return self._stopped

    def _is_ready(self, step: Step, group: Collection[Start]) -> bool:
        """True if a step, and what begins together with it, may begin now."""
        own = {step.id, *(each.id for each in group)}
        if step.id not in self._left or not own.isdisjoint(self._failed):
            return False
        if max(self._not_before.get(id_, 0.0) for id_ in own) > self._hooks.clock.now():
            return False
        if isinstance(step, PromiseStep):
            return not self._under_way and self._left.keys() == {step.id}
        early = (id_ for each in (group or (step,)) for id_ in each.after_actions if id_ not in own)
        return not any(id_ in self._left or id_ in self._under_way for id_ in early)

    def _begin(self, step: Step) -> None:
        """Check the preconditions, write the intent durably, begin."""
        self._not_before.pop(step.id, None)
        # The cluster may have changed since the first attempt, and since the snapshot that the view is of.
        if self._attempts.get(step.id) and not isinstance(step, PromiseStep):
            self._view.look_again(step)
        seen, why = ((), "") if isinstance(step, PromiseStep) else self._view.check_preconditions(step)
        if why:
            self._journal.failed(step, why=why, seen=seen)
            self._give_up(step, why)
            return
        if not self._intend([(step, seen)]):
            return
        begun = self._hooks.clock.now()
        key = key_of(self._plan, step)
        if isinstance(step, PromiseStep):
            self._record_promises(step, key, begun)
            return
        try:
            progress = self._cluster.begin(step, key)
        except UnreachableError as error:
            # It may have begun: the cluster's own mark will tell.
            progress = ActionProgress(ActionPhase.UNKNOWN, str(error))
        except LockedError:
            raise
        except PlannerError as error:
            self._fail(step, str(error), begun)
            return
        self._follow_from(begun, step, key, progress)

    def _intend(self, steps: Collection[tuple[Step, tuple[str, ...]]]) -> bool:
        """Record durably that these steps begin, with what their preconditions found; False if that fails."""
        for step, seen in steps:
            attempt = self._attempts[step.id] = self._attempts.get(step.id, 0) + 1
            again = f" (attempt {attempt} of {self._rules.attempts})" if attempt > 1 else ""
            self._journal.intent(step, detail=f"{_label(step)}{again}", seen=seen)
        try:
            self._journal.write()
        except PlannerError as error:
            for step, _ in steps:
                self._give_up(step, f"its intent cannot be recorded: {error}")
            # Nothing may be done that is not recorded.
            self._stopped = True
            return False
        return True

    # --- groups --------------------------------------------------------------------------------------------

    def _begin_group(self, group: Collection[Start]) -> None:
        """Check the preconditions of all, each as if those before it had begun; then reserve them."""
        if any(self._attempts.get(step.id) for step in group):
            self._view.look_again(*group)
        seen: list[tuple[Step, tuple[str, ...]]] = []
        why = ""
        for step in group:
            self._not_before.pop(step.id, None)
            found, unmet = self._view.check_preconditions(step)
            why = why or (f"job {step.job} of its group cannot start: {unmet}" if unmet else "")
            seen.append((step, found))
            self._view.begin(step)
        if why:
            for step in group:
                self._view.withdraw(step, may_land=False)
                self._journal.failed(step, why=why)
                self._give_up(step, why)
            return
        if self._intend(seen):
            self._follow_group(group)

    def _follow_group(self, group: Collection[Start]) -> None:
        """Count the starts of a group as under way, in their first phase."""
        now = self._hooks.clock.now()
        for step in group:
            self._attempts.setdefault(step.id, 1)
            self._view.begin(step)
            del self._left[step.id]
            self._under_way[step.id] = _UnderWay(step, key_of(self._plan, step), now, inf)
        self._pause = _FIRST_PAUSE
        self._groups.add(
            GroupStart(
                {key_of(self._plan, step): step for step in group},
                self._cluster,
                self._hooks.clock,
                seconds=self._rules.group_timeout,
                abort_seconds=self._timeout(next(iter(group))),
            )
        )

    def _advance_groups(self) -> None:
        """Do what is due for the groups, and take note of those that ended."""
        for start, end in self._groups.advance():
            for key, step in start.steps.items():
                each = self._under_way[step.id]
                if end.why:
                    # One that may still run keeps its places; it is no success, since its group does not run.
                    self._withdraw(each, may_land=key in end.may_run)
                    self._fail(step, end.why, each.begun, retryable=end.retryable)
                else:
                    self._land(step, each.begun, self._view.land(step, end.placements[key]))

    def _follow_from(self, begun: float, step: Change, key: str, progress: ActionProgress) -> None:
        """Count a step that began at an instant as under way."""
        self._view.begin(step)
        self._pause = _FIRST_PAUSE
        del self._left[step.id]
        self._under_way[step.id] = _UnderWay(step, key, begun, begun + self._timeout(step))
        self._follow(self._under_way[step.id], progress)

    def _record_promises(self, step: PromiseStep, key: str, begun: float) -> None:
        try:
            self._cluster.keep_promises(step.promises, key)
        except UnreachableError as error:
            # All or none are recorded, so the cluster can tell whether only the answer was lost.
            if observed(self._cluster, (key,))[key].phase is not ActionPhase.LANDED:
                self._fail(step, str(error), begun, retryable=True)
                return
        except LockedError:
            raise
        except PlannerError as error:
            self._fail(step, str(error), begun)
            return
        self._land(step, begun)

    def _timeout(self, step: Change) -> int:
        return self._rules.timeouts.get(ActionKind(step.type), info_of(step).timeout)

    # --- observing -----------------------------------------------------------------------------------------

    def _observe(self) -> bool:
        """Follow all that is under way or may still land; False if nothing under way ended."""
        before, began = len(self._under_way), self._hooks.clock.now()
        self._due = inf
        in_groups = self._groups.under_way
        alone = [each for id_, each in self._under_way.items() if id_ not in in_groups]
        found = observed(self._cluster, tuple(each.key for each in (*alone, *self._stray.values())))
        for each in alone:
            self._follow(each, found[each.key])
        for each in tuple(self._stray.values()):
            if each.key in found:
                self._follow_stray(each, found[each.key])
        self._advance_groups()
        self._look = self._hooks.clock.now() - began
        if len(self._under_way) == before:
            return False
        self._pause = _FIRST_PAUSE
        return True

    def _follow(self, each: _UnderWay, progress: ActionProgress) -> None:
        """Take note of the progress of a step."""
        if progress.phase is ActionPhase.LANDED:
            self._land(each.step, each.begun, self._view.land(each.step, progress.placement))
        elif progress.phase is ActionPhase.FAILED:
            self._withdraw(each)
            self._fail(each.step, progress.reason, each.begun, retryable=progress.retryable)
        elif progress.phase is ActionPhase.GONE:
            self._withdraw(each)
            self._fail(each.step, "it is no longer on the cluster", each.begun)
        elif progress.phase is ActionPhase.NOT_BEGUN:
            self._withdraw(each)
            self._fail(each.step, "the cluster has no mark of it", each.begun, retryable=True)
        elif self._hooks.clock.now() >= each.deadline:
            self._time_out(each, progress)
        elif progress.due_in is not None:
            self._due = min(self._due, progress.due_in)

    def _follow_stray(self, each: _UnderWay, progress: ActionProgress) -> None:
        """Take note if a step that has failed, since it lasted too long, lands after all or never will."""
        if progress.phase is ActionPhase.LANDED:
            del self._stray[each.step.id]
            self._failed.discard(each.step.id)
            # What is done is no failure; an apply that was stopped because of it stays stopped.
            self._failures = [failure for failure in self._failures if failure.action != each.step.id]
            self._land(each.step, each.begun, self._view.land(each.step, progress.placement))
        elif progress.phase.ended:
            del self._stray[each.step.id]
            self._view.withdraw(each.step, may_land=False)

    def _time_out(self, each: _UnderWay, progress: ActionProgress) -> None:
        """Withdraw a step that lasts too long, unless it lands in this moment."""
        with suppress(PlannerError):
            self._cluster.undo(each.key)
        now = observed(self._cluster, (each.key,))[each.key]
        if now.phase is ActionPhase.LANDED:
            self._land(each.step, each.begun, self._view.land(each.step, now.placement))
            return
        may_land = not now.phase.ended
        self._withdraw(each, may_land=may_land)
        reason = f": {progress.reason}" if progress.reason else ""
        if may_land:
            self._stray[each.step.id] = each
            reason += "; it may still land"
        limit = format_duration(self._timeout(each.step))
        where = progress.phase.value.replace("_", " ")
        self._fail(each.step, f"it is {where} after {limit}{reason}", each.begun)

    def _land(self, step: Step, begun: float, where: str = "") -> None:
        self._journal.done(step, seconds=max(0.0, self._hooks.clock.now() - begun), detail=where)
        self._done.add(step.id)
        self._left.pop(step.id, None)
        self._under_way.pop(step.id, None)
        if self._hooks.on_progress is not None:
            before = len(self._standing.done)
            self._hooks.on_progress(before + len(self._done), self._standing.total, _label(step))

    # --- failing -------------------------------------------------------------------------------------------

    def _withdraw(self, each: _UnderWay, *, may_land: bool = False) -> None:
        """Put a step that did not land back among those that are left."""
        del self._under_way[each.step.id]
        self._left = {
            step.id: step for step in self._standing.left if step.id in self._left or step.id == each.step.id
        }
        self._view.withdraw(each.step, may_land=may_land)

    def _fail(self, step: Step, why: str, begun: float, *, retryable: bool = False) -> None:
        """Try a step again later if that may help; otherwise record that it failed."""
        attempt = self._attempts[step.id]
        if retryable and attempt < self._rules.attempts:
            wait = self._rules.backoff * 2 ** (attempt - 1)
            self._not_before[step.id] = self._hooks.clock.now() + wait
            _LOG.info("phase=apply action=%s attempt=%d retry_in=%d reason=%s", step.id, attempt, wait, why)
            return
        self._journal.failed(step, why=why, seconds=max(0.0, self._hooks.clock.now() - begun))
        self._give_up(step, why)

    def _give_up(self, step: Step, why: str) -> None:
        self._failures.append(FailedAction(step.id, why))
        self._failed.add(step.id)
        if self._rules.on_failure is OnFailure.STOP or len(self._failures) >= self._rules.most_failures:
            self._stopped = True

    def _seconds_to_retry(self) -> float | None:
        """Seconds until the next attempt of a step; None if there is none to come."""
        if self._ends():
            return None
        now = self._hooks.clock.now()
        waits = [self._not_before[each] - now for each in self._left if each in self._not_before]
        return max(0.0, min(waits)) if waits else None


def _label(step: Step) -> str:
    return step.label if isinstance(step, PromiseStep) else action_label(step)
