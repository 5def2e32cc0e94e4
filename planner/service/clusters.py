"""The live cluster of a run: it gives snapshots and carries out plans."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.service.resume import AppliedSteps, applied_steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.apply.outcome import ApplyOutcome
    from gpuplan.planner.executors.simulated import SimulatedCluster

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster that an executor reads and changes."""

    executor: SimulatedCluster
    audit: AuditLog
    actor: str
    now: Callable[[], datetime]
    stop: Callable[[], bool]
    drift_mode: Drift | None = None
    advance: int = 0
    """Seconds by which the cluster's clock advances before each snapshot."""
    longest_audit: int = 16 * 2**20
    """Size of an audit log in bytes before a new one is begun, since each apply reads all of it."""

    def read(self) -> Snapshot:
        """Snapshot of the cluster as it is now."""
        if self.advance:
            self.executor.advance(self.advance)
        return self.executor.snapshot()

    def apply(self, plan: Plan, *, resume: bool) -> ApplyOutcome:
        """Carry out a plan, up to its end or until `stop` returns True."""
        if not resume:
            self._begin_new_log_when_long()
        return apply_plan(
            plan,
            self.executor,
            self.audit,
            actor=self.actor,
            now=self.now,
            resume=resume,
            drift_mode=self.drift_mode,
            stop=self.stop,
        )

    def _begin_new_log_when_long(self) -> None:
        """Rename a long audit log; only between plans, so that an apply to resume stays in one log."""
        path = self.audit.place
        if not path.exists() or path.stat().st_size <= self.longest_audit:
            return
        aside = path.with_name(f"{path.stem}-{self.now():%Y%m%dT%H%M%SZ}{path.suffix}")
        trail = self.audit.set_aside(aside)
        log_event(
            _LOG, "audit_set_aside", file=str(aside), records=len(trail.records), last_hash=trail.last_hash
        )

    def applied_steps(self, plan: Plan) -> AppliedSteps:
        """Progress of a plan, by this run or any other."""
        path = self.audit.path
        records = verify_log(path).records if path.exists() else ()
        return applied_steps(
            plan,
            self.executor.identity,
            records,
            performed=lambda step: self.executor.performed(key_of(plan, step)),
        )
