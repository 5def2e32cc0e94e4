"""Records that one apply writes to the audit log."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.models.plan.audit import ActionOutcome, AuditEntry, AuditKind
from gpuplan.planner.apply.promises import SUBJECT, PromiseStep
from gpuplan.planner.plan_file.plan_file import uid_of
from gpuplan.planner.text_format import action_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.apply.audit_log import AuditWriter
    from gpuplan.planner.apply.promises import Step


class ApplyJournal:
    """
    The records of one plan on one cluster.

    Records are collected until `write`, so that the outcome of one action and the intent of the next need
    only one disk write.
    """

    def __init__(
        self, log: AuditWriter, *, plan: Plan, cluster: str, actor: str, now: Callable[[], datetime]
    ) -> None:
        self._log = log
        self._plan_id = plan.plan_id
        self._plan_uid = uid_of(plan)
        self._cluster = cluster
        self._actor = actor
        self._now = now
        self._pending: list[AuditEntry] = []

    def seconds_since(self, at: datetime) -> float:
        """Seconds since a record was written; 0 if the clock was put back."""
        return max(0.0, (self._now() - at).total_seconds())

    def begin(self, detail: str, approvers: tuple[str, ...] = ()) -> None:
        """Note that an apply starts."""
        self._note(AuditKind.BEGIN, detail=detail, approvers=approvers)

    def intent(self, action: Step, *, detail: str, seen: tuple[str, ...]) -> None:
        """Note that an action is about to be done."""
        self._note(AuditKind.INTENT, action, detail=detail, seen=seen)

    def done(self, action: Step, *, seconds: float, detail: str = "") -> None:
        """Note that an action was done; the detail says what is not as planned."""
        self._note(AuditKind.OUTCOME, action, outcome=ActionOutcome.DONE, detail=detail, seconds=seconds)

    def skipped(self, action: Step) -> None:
        """Note an action that an earlier apply did but could not record."""
        detail = "the cluster had done it before"
        self._note(AuditKind.OUTCOME, action, outcome=ActionOutcome.SKIPPED, detail=detail)

    def failed(
        self, action: Step, *, why: str, seen: tuple[str, ...] = (), seconds: float | None = None
    ) -> None:
        """Note that an action failed."""
        outcome = ActionOutcome.FAILED
        self._note(AuditKind.OUTCOME, action, outcome=outcome, detail=why, seen=seen, seconds=seconds)

    def end(self, detail: str) -> None:
        """Note that the apply is over, and write everything."""
        self._note(AuditKind.END, detail=detail)
        self.write()

    def write(self) -> None:
        """Write all noted records durably."""
        if self._pending:
            self._log.append(self._pending)
            self._pending = []

    @contextmanager
    def written_whatever_happens(self) -> Iterator[None]:
        """Write the noted records even if the block ends with an unexpected error."""
        try:
            yield
        # A stop by the keyboard as well: what was done has to be told whatever ended it.
        except BaseException:
            self.write()
            raise

    def _note(
        self,
        kind: AuditKind,
        action: Step | None = None,
        *,
        outcome: ActionOutcome | None = None,
        detail: str = "",
        seen: tuple[str, ...] = (),
        seconds: float | None = None,
        approvers: tuple[str, ...] = (),
    ) -> None:
        self._pending.append(
            AuditEntry(
                at=self._now(),
                who=self._actor,
                kind=kind,
                plan_id=self._plan_id,
                plan_uid=self._plan_uid,
                cluster=self._cluster,
                action=action.id if action else "",
                type=action.type if action else "",
                subject=_subject(action) if action else "",
                outcome=outcome,
                detail=detail,
                seen=seen,
                seconds=None if seconds is None else round(seconds, 6),
                approvers=approvers,
            )
        )


def _subject(step: Step) -> str:
    return SUBJECT if isinstance(step, PromiseStep) else action_subject(step)
