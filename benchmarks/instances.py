"""Instances that are measured in stages, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.admission import ADMISSIONS, policy_of, snapshot_of
from benchmarks.odd_cases import ODD_CASES, odd_snapshot
from benchmarks.saturation import inventory
from benchmarks.sizes import SIZES, made_up
from gpuplan.models.policy.policy import Policy

if TYPE_CHECKING:
    from gpuplan.models.snapshot import Snapshot


FLEET: Final = "Alibaba 2026"
"""A real fleet with a synthetic queue, see `saturation.inventory`."""


@dataclass(frozen=True)
class Instance:
    """A snapshot and a policy that are reproducible from a name and a seed."""

    name: str
    """A key of `SIZES`, of `ODD_CASES` or of `ADMISSIONS`, or `FLEET`."""
    seconds: float
    """Time limit of the plan."""
    slots: int = 1
    seed: int = 1

    @property
    def title(self) -> str:
        """The name, and the number of slots if the plan has a horizon."""
        return self.name if self.slots == 1 else f"{self.name}, {self.slots} slots"

    def snapshot(self) -> Snapshot:
        """The snapshot of the instance."""
        if self.name in SIZES:
            return made_up(SIZES[self.name], self.seed)
        if self.name in ODD_CASES:
            return odd_snapshot(ODD_CASES[self.name], self.seed)
        if self.name == FLEET:
            return inventory.case(inventory.file(), seed=self.seed)
        return snapshot_of(ADMISSIONS[self.name], self.seed)

    def policy(self) -> Policy:
        """The default policy for sizes and odd cases; for admission, one under which no job is disturbed."""
        if self.name in SIZES or self.name in ODD_CASES:
            ahead = {"horizon": {"slots": self.slots}} if self.slots > 1 else {}
            policy = Policy.model_validate(ahead)
        else:
            policy = policy_of(self.slots)
        budget = policy.budget.model_copy(update={"time_limit_ms": int(1000 * self.seconds)})
        return policy.model_copy(update={"budget": budget})
