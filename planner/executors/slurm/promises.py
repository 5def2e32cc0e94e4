"""Promises of a plan on a Slurm cluster: texts in the marks of the jobs that wait for their start."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuplan.planner.executors.slurm.commands import update

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.placement import Promise
    from gpuplan.planner.executors.slurm.commands import JobRow


def set_promises(rows: Mapping[str, JobRow], promises: Mapping[str, Promise], key: str) -> None:
    """
    Set these promises on jobs that wait, and clear those of the others, all under a key.

    The promises of other jobs go first, and each mark says last that all are there. So a step that was killed
    on the way counts as not begun.
    """
    for name, row in rows.items():
        if row.marks.promise and name not in promises:
            _set(row, "", "")
    texts = {name: _text(promise) for name, promise in promises.items() if name in rows}
    for done in ("", key):
        for name, text in texts.items():
            _set(rows[name], text, done)


def has_promises(jobs: Mapping[str, JobRow], key: str) -> bool:
    """True if the promises were set under this key."""
    return any(row.marks.promise_key == key for row in jobs.values())


def _set(row: JobRow, text: str, key: str) -> None:
    marks = replace(row.marks, promise=text, promise_key=key)
    if marks != row.marks:
        update("JobId", row.id, AdminComment=str(marks))


def _text(promise: Promise) -> str:
    return f"{promise.start.isoformat()}@{','.join(replica.node for replica in promise.replicas)}"
