"""Audit logs made by hand."""

from __future__ import annotations

from gpuplan.models.plan.audit import AuditEntry, AuditKind
from gpuplan.planner.apply.audit_log import AuditLog
from tests.support.builders.build import NOW

ACTOR = "ann@login1"


def entry(number, kind=AuditKind.INTENT, **more):
    return AuditEntry(at=NOW, who=ACTOR, kind=kind, plan_id="7c1e", action=f"a{number}", **more)


def log_of(path, count=4):
    """A log of so many records, written in two goes."""
    log = AuditLog(path)
    for part in (range(1, 2), range(2, count + 1)):
        with log.writing(actor=ACTOR, now=lambda: NOW) as writer:
            writer.append([entry(number, detail="größer\nzweite Zeile") for number in part])
    return log
