"""
Marks that gpuplan leaves on objects of a Slurm cluster: in the AdminComment of a job, the Comment of a node.

Text that operators wrote there stays in front. Users can read both fields of their jobs and change neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuplan.planner.action_marks import MarkStage, mark_of, with_mark, without_mark

_OPENING: Final = "gpuplan:{"


@dataclass(frozen=True, slots=True)
class Mark:
    """One action of one plan on an object."""

    key: str
    """Key of the action, as `ClusterWriter` has it."""
    step: MarkStage
    nodes: str = ""
    """Nodes that the job is to run on, separated by commas."""
    until: int = 0
    """End of the time that a notified job has, in seconds since 1970."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands in the field of one object."""

    theirs: str = ""
    """Text of the cluster's operators."""
    marks: tuple[Mark, ...] = ()
    """Oldest first; one for each key."""
    required: str | None = None
    """Nodes that the job's user requires, once gpuplan has written others in their place; None before."""
    submitted: int | None = None
    """Time of the submission, in seconds since 1970; Slurm's own is that of the last requeue or release."""
    promise: str = ""
    """Promised start with its nodes, as `START@NODES`."""
    promise_key: str = ""
    """Key of the step that recorded the promise."""
    begin: int | None = None
    """Earliest start that gpuplan wrote last, in seconds since 1970; None if it wrote none."""

    @classmethod
    def read(cls, text: str) -> Marks:
        """The marks in a field; a text that gpuplan did not write is all theirs."""
        text = "" if text in ("(null)", "N/A") else text
        theirs, opening, rest = text.rpartition(_OPENING)
        try:
            found: dict[str, Any] = json.loads("{" + rest) if opening else {}
            marks = tuple(
                Mark(
                    each["key"],
                    MarkStage(each["step"]),
                    *(each.get(name, default) for name, default in _FURTHER),
                )
                for each in found.get("marks", ())
            )
            return cls(
                theirs.rstrip() if opening else text,
                marks,
                found.get("required"),
                found.get("submitted"),
                found.get("promise", ""),
                found.get("promise_key", ""),
                found.get("begin"),
            )
        except (ValueError, LookupError, TypeError):
            return cls(text)

    def __str__(self) -> str:
        """The text of the field; empty if nothing is to be kept."""
        found: dict[str, Any] = {}
        if self.marks:
            found["marks"] = [_document(mark) for mark in self.marks]
        if self.required is not None:
            found["required"] = self.required
        if self.submitted is not None:
            found["submitted"] = self.submitted
        if self.begin is not None:
            found["begin"] = self.begin
        if self.promise:
            found |= {"promise": self.promise, "promise_key": self.promise_key}
        own = f"gpuplan:{json.dumps(found, separators=(',', ':'))}" if found else ""
        return " ".join(part for part in (self.theirs, own) if part)

    def of(self, key: str) -> Mark | None:
        """The mark of an action."""
        return mark_of(self.marks, key)

    def with_mark(self, mark: Mark) -> Marks:
        """With this mark as the newest."""
        return replace(self, marks=with_mark(self.marks, mark))

    def without(self, key: str) -> Marks:
        """Without the mark of an action."""
        return replace(self, marks=without_mark(self.marks, key))


_FURTHER: Final = (("nodes", ""), ("until", 0), ("reason", ""))


def _document(mark: Mark) -> dict[str, Any]:
    further = {name: getattr(mark, name) for name, default in _FURTHER if getattr(mark, name) != default}
    return {"key": mark.key, "step": mark.step.value, **further}
