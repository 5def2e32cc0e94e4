"""The loop of a periodic run: epochs until a stop is requested, each recorded before the next begins."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.service.history import TROUBLE, EpochOutcome, EpochRecord, History
from gpuplan.planner.service.prometheus import epoch_gauges
from gpuplan.planner.service.run_epoch import Applier, RunContext, RunningEpoch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.service.prometheus import MetricsRegistry


# Schedule of the epochs: at fixed ticks, and with exponential backoff after a failure.
#
# Times are seconds of a monotonic clock and are arguments; this module neither waits nor reads a clock.


FIRST_RETRY: Final = 1 / 8
"""First retry, as a part of the interval; short, since a file that is being rewritten is soon complete."""

FIRST_SECONDS: Final = 60.0
"""Longest time to the first retry."""

LONGEST_RETRY: Final = 4
"""Longest time between two tries, in intervals."""

LONGEST_SECONDS: Final = 900.0
"""Longest time between two tries, in seconds; one interval if that is longer."""

_JITTER: Final = 0.2
"""Random variation of the retry time, as a part of it, so that several planners do not retry in step."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause after an epoch."""

    seconds: float
    """Time until the next epoch begins."""
    skipped: int
    """Ticks that passed during the epoch."""


class EpochSchedule:
    """Epochs begin at multiples of an interval after the first; a tick during an epoch is skipped."""

    def __init__(self, every: float, *, began: float, draw: random.Random) -> None:
        self._every = every
        self._began = began
        self._draw = draw
        self._tick = 0
        """The last tick before the current epoch began."""
        self.failures = 0
        """Consecutive failures."""

    def after(self, now: float, *, trouble: bool) -> Pause:
        """The pause after an epoch that ended now."""
        passed = self._tick_at(now)
        skipped = passed - self._tick
        if trouble:
            self.failures += 1
            begins = now + self._retry_seconds()
            self._tick = self._tick_at(begins)
        else:
            self.failures = 0
            self._tick = passed + 1
            begins = self._began + self._tick * self._every
        return Pause(max(0.0, begins - now), skipped)

    def _tick_at(self, now: float) -> int:
        return floor((now - self._began) / self._every)

    def _retry_seconds(self) -> float:
        first = min(FIRST_RETRY * self._every, FIRST_SECONDS)
        longest = min(LONGEST_RETRY * self._every, max(self._every, LONGEST_SECONDS))
        # The exponent is bounded, so that a fault that lasts a year does not overflow.
        seconds: float = min(longest, first * 2 ** min(self.failures - 1, 32))
        return seconds * self._draw.uniform(1 - _JITTER, 1 + _JITTER)


# The loop itself.


_LOG: Final = logging.getLogger(__name__)
_COMPLETE: Final = frozenset({EpochOutcome.APPLIED, EpochOutcome.RESUMED})


@dataclass
class ServiceLoop:
    """A periodic run on one cluster."""

    context: RunContext
    history: History
    metrics: MetricsRegistry
    pace: EpochSchedule
    clock: Callable[[], float]
    """Seconds of a monotonic clock."""
    metrics_file: Path | None = None
    last: Plan | None = None
    """The last good plan; at the beginning that of an earlier run."""
    number: int = 1
    """Number of the next epoch; an epoch that could not be recorded leaves a gap in the history."""

    def begin(self) -> None:
        """
        Continue where an earlier run ended, in whatever way it ended.

        Its last plan is the warm start of the next search. If that was applied in part, the rest comes first.
        """
        log_event(_LOG, "began", plans=str(self.context.plans.folder), history=str(self.history.path))
        self.number = self.history.next_number
        try:
            self.last = self.context.plans.latest()
        except PlannerError as error:
            log_event(_LOG, "last_plan_unreadable", level=logging.WARNING, error=str(error))
        if self.last is None:
            return
        self.context.policy.compare_with(self.last.policy)
        if self.context.applier is not None:
            self._resume(self.last, self.context.applier)

    def _resume(self, plan: Plan, applier: Applier) -> None:
        """Finish an interrupted apply, or record why it is not finished."""
        try:
            found, recorded = applier.applied_steps(plan), self.history.of_plan(plan.plan_id)
        except PlannerError as error:
            log_event(_LOG, "not_resumed", level=logging.ERROR, plan=plan.plan_id, error=str(error))
            return
        if recorded and recorded.ended_at < plan.created_at:
            # The record is of an earlier, equal plan, which has the same id.
            recorded = None
        if not found.begun or (recorded and (found.failed or recorded.outcome in _COMPLETE)):
            return
        epoch = self._next(last=None)
        log_event(_LOG, "resuming", epoch=epoch.number, plan=plan.plan_id, done=len(found.done))
        self._record(epoch, epoch.resume(plan, found, applier), skipped=0)

    def until_stopped(self, *, epochs: int | None = None) -> bool:
        """
        Plan until a stop is requested, or for `epochs` epochs.

        Returns
        -------
            True if the last epoch went well.
        """
        stop, well, count = self.context.stop, True, 0
        while not stop.requested and count != epochs:
            # 1. One epoch; its record contains any error.
            epoch = self._next(self.last)
            record = epoch.work()
            well = record.outcome not in TROUBLE
            # 2. Time of the next epoch; ticks that have passed meanwhile are skipped.
            pause = self.pace.after(self.clock(), trouble=not well)
            # 3. Keep the plan and record the epoch.
            if epoch.plan is not None:
                self.last = epoch.plan
            well &= self._record(epoch, record, skipped=pause.skipped)
            count += 1
            # 4. Only the plan of an epoch is kept; reference cycles are collected here, between epochs.
            del epoch, record
            gc.collect()
            if count != epochs:
                stop.pause(pause.seconds)
        log_event(_LOG, "ended", epochs=count, told_to_stop=stop.requested)
        return well

    def _next(self, last: Plan | None) -> RunningEpoch:
        number, self.number = self.number, self.number + 1
        return RunningEpoch(number, self.context, last)

    def _record(self, epoch: RunningEpoch, record: EpochRecord, *, skipped: int) -> bool:
        """Write an epoch to history, metrics and log; False if the history cannot be written."""
        record = record.model_copy(update={"skipped_ticks": skipped})
        try:
            self.history.add(record)
            kept = True
        except PlannerError as error:
            kept = False
            log_event(_LOG, "not_recorded", level=logging.ERROR, epoch=record.number, error=str(error))
        self._measure(epoch, record)
        log_event(
            _LOG,
            "epoch",
            level=logging.ERROR if record.outcome in TROUBLE else logging.INFO,
            epoch=record.number,
            outcome=record.outcome.value,
            plan=record.plan_id,
            done=record.done,
            done_before=record.done_before,
            undone=record.undone,
            skipped_ticks=skipped,
            failures=self.pace.failures,
            error=record.error,
        )
        return kept

    def _measure(self, epoch: RunningEpoch, record: EpochRecord) -> None:
        exposition, plan = self.metrics, epoch.plan
        if plan is not None:
            applied = record.outcome in _COMPLETE
            if record.seconds is not None:
                exposition.planned(plan, record.seconds)
            if epoch.outcome is not None:
                exposition.applied(plan, epoch.outcome)
            exposition.show(plan, epoch_gauges(plan, applied=applied))
        elif epoch.plan_seconds and record.outcome is EpochOutcome.FAILED:
            exposition.not_planned(epoch.plan_seconds)
        exposition.epoch(record, failures=self.pace.failures)
        if self.metrics_file is not None:
            try:
                exposition.write(self.metrics_file)
            except PlannerError as error:
                log_event(_LOG, "metrics_not_written", level=logging.ERROR, error=str(error))
