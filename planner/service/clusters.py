"""The live cluster of a run: what it reads, and what carries its plans out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.service.event_log import tell
from gpuplan.planner.service.resume import Trail, trail_of

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
    """A cluster that is read and changed by an executor."""

    executor: SimulatedCluster
    audit: AuditLog
    who: str
    now: Callable[[], datetime]
    stop: Callable[[], bool]
    drift_mode: Drift | None = None
    advance: int = 0
    """Seconds by which its clock moves before it is read."""
    longest_audit: int = 16 * 2**20
    """Bytes of an audit log before a new one is begun: each apply reads all of it."""

    def read(self) -> Snapshot:
        """The cluster as it is now."""
        if self.advance:
            self.executor.advance(self.advance)
        return self.executor.snapshot()

    def apply(self, plan: Plan, *, resume: bool) -> ApplyOutcome:
        """Carry a plan out, up to its end or until told to stop."""
        if not resume:
            self._begin_new_log_when_long()
        return apply_plan(
            plan,
            self.executor,
            self.audit,
            who=self.who,
            now=self.now,
            resume=resume,
            drift_mode=self.drift_mode,
            stop=self.stop,
        )

    def _begin_new_log_when_long(self) -> None:
        """Between two plans: what is to be resumed stays in the log."""
        path = self.audit.place
        if not path.exists() or path.stat().st_size <= self.longest_audit:
            return
        aside = path.with_name(f"{path.stem}-{self.now():%Y%m%dT%H%M%SZ}{path.suffix}")
        trail = self.audit.set_aside(aside)
        tell(_LOG, "audit_set_aside", file=str(aside), records=len(trail.records), last_hash=trail.last_hash)

    def trail(self, plan: Plan) -> Trail:
        """How far a plan was carried out, by whomever."""
        path = self.audit.path
        records = verify_log(path).records if path.exists() else ()
        return trail_of(
            plan,
            self.executor.identity,
            records,
            performed=lambda step: self.executor.performed(key_of(plan, step)),
        )
