"""The policy of a run: read again for each epoch; the last good one stays if its file cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError
from gpuplan.planner.analysis.policy_changes import changed_knobs
from gpuplan.planner.service.history import KnobChange
from gpuplan.planner.sources.files import default_policy_path, load_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.policy.policy import Policy


class PolicyInForce:
    """The last policy that could be read."""

    def __init__(self, read: Callable[[], Policy]) -> None:
        """Read the policy for the first time; a run does not begin without one."""
        self._read = read
        self.policy = read()
        self.error = ""
        """Why the policy differs from its file; empty if it does not."""
        self._told = self.policy

    def compare_with(self, policy: Policy) -> None:
        """Let the next `reread` report the changes from this policy of an earlier run."""
        self._told = policy

    def reread(self) -> tuple[KnobChange, ...]:
        """Read the policy again; returns the changes since the last report."""
        try:
            self.policy = self._read()
        except PlannerError as error:
            self.error = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new one, the old one is good
            self.error = f"it cannot be read: {type(error).__name__}: {error}"
        else:
            self.error = ""
        before, self._told = self._told, self.policy
        return knob_changes(before, self.policy)


def policy_reader(policy_file: str | None, source: str) -> Callable[[], Policy]:
    """
    A function that reads the policy file: the given one, else the one in the directory of the source.

    A file that existed before and is gone is an error. Otherwise its approval rules would no longer apply.
    """
    known = policy_file

    def read() -> Policy:
        nonlocal known
        if policy_file is None:
            known = default_policy_path(source) or known
        return load_policy(known)

    return read


def knob_changes(old: Policy, new: Policy) -> tuple[KnobChange, ...]:
    """The knobs that differ between two policies."""
    return tuple(
        KnobChange(knob=path, old=before, new=after) for path, before, after in changed_knobs(old, new)
    )
