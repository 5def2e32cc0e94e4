"""The loop of a periodic run: epochs until a stop is requested, each recorded before the next begins."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.service.gauges import epoch_gauges
from gpuplan.planner.service.history import TROUBLE, EpochOutcome
from gpuplan.planner.service.run_epoch import RunningEpoch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.service.history import EpochRecord, History
    from gpuplan.planner.service.prometheus import MetricsRegistry
    from gpuplan.planner.service.run_epoch import Applier, RunContext
    from gpuplan.planner.service.schedule import EpochSchedule

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
