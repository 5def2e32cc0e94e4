"""What one apply tells the audit log."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.models.plan.audit import AuditEntry, AuditKind, Outcome
from gpuplan.planner.action_labels import subject
from gpuplan.planner.apply.promises import SUBJECT, PromiseStep
from gpuplan.planner.plan_file.plan_file import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.apply.audit_log import AuditWriter
    from gpuplan.planner.apply.promises import Step


class Journal:
    """
    The records of one plan on one cluster.

    Records gather until `write`, so that the outcome of one action and the intent of the next wait for the
    disk once.
    """

    def __init__(
        self, log: AuditWriter, *, plan: Plan, cluster: str, who: str, now: Callable[[], datetime]
    ) -> None:
        self._log = log
        self._plan_id = plan.plan_id
        self._plan_uid = uid_of(plan)
        self._cluster = cluster
        self._who = who
        self._now = now
        self._pending: list[AuditEntry] = []

    def begin(self, detail: str) -> None:
        """An apply starts."""
        self._note(AuditKind.BEGIN, detail=detail)

    def intent(self, action: Step, *, detail: str, seen: tuple[str, ...]) -> None:
        """An action is about to be done."""
        self._note(AuditKind.INTENT, action, detail=detail, seen=seen)

    def done(self, action: Step, *, seconds: float) -> None:
        """An action was done."""
        self._note(AuditKind.OUTCOME, action, outcome=Outcome.DONE, seconds=seconds)

    def skipped(self, action: Step) -> None:
        """An action was done by an apply that could not record so."""
        detail = "the cluster had done it before"
        self._note(AuditKind.OUTCOME, action, outcome=Outcome.SKIPPED, detail=detail)

    def failed(
        self, action: Step, *, why: str, seen: tuple[str, ...] = (), seconds: float | None = None
    ) -> None:
        """An action could not be done."""
        outcome = Outcome.FAILED
        self._note(AuditKind.OUTCOME, action, outcome=outcome, detail=why, seen=seen, seconds=seconds)

    def end(self, detail: str) -> None:
        """The apply is over; everything is written."""
        self._note(AuditKind.END, detail=detail)
        self.write()

    def write(self) -> None:
        """Make everything noted so far durable."""
        if self._pending:
            self._log.append(self._pending)
            self._pending = []

    @contextmanager
    def written_whatever_happens(self) -> Iterator[None]:
        """An outcome that is known reaches the log even if the block ends in an error nobody foresaw."""
        try:
            yield
        except BaseException:
            self.write()
            raise

    def _note(
        self,
        kind: AuditKind,
        action: Step | None = None,
        *,
        outcome: Outcome | None = None,
        detail: str = "",
        seen: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> None:
        self._pending.append(
            AuditEntry(
                at=self._now(),
                who=self._who,
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
            )
        )


def _subject(step: Step) -> str:
    return SUBJECT if isinstance(step, PromiseStep) else subject(step)
