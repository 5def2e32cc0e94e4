"""The policy of a run: read again for each epoch, and kept as it was while its file cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.models.errors import PlannerError
from planner.running.record import KnobChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.models.policy import Policy


class PolicyInForce:
    """The last policy that could be read."""

    def __init__(self, read: Callable[[], Policy]) -> None:
        """Read it for the first time: a run does not begin without a policy."""
        self._read = read
        self.policy = read()
        self.error = ""
        """Why it is not what its file says now; empty if it is."""

    def reread(self) -> tuple[KnobChange, ...]:
        """Read it again; what has changed since the last time that it could be read."""
        before = self.policy
        try:
            self.policy = self._read()
        except PlannerError as error:
            self.error = str(error)
            return ()
        self.error = ""
        return knob_changes(before, self.policy)


def knob_changes(old: Policy, new: Policy) -> tuple[KnobChange, ...]:
    """Every knob that differs between two policies, by its path; lists are one knob each."""
    before, after = (dict(_knobs(policy.model_dump(mode="json"))) for policy in (old, new))
    return tuple(
        KnobChange(knob=knob, old=before.get(knob), new=after.get(knob))
        for knob in sorted(before.keys() | after.keys())
        if before.get(knob) != after.get(knob)
    )


def _knobs(document: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _knobs(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
