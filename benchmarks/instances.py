"""Instances that are measured in stages, by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.admission import ADMISSIONS, policy_of, snapshot_of
from benchmarks.odd_cases import ODD_CASES, odd_snapshot
from benchmarks.saturation import epochs, inventory
from benchmarks.saturation.mixes import JUDGE, TUNE
from benchmarks.saturation.report import trace_for
from benchmarks.saturation.trace import shuffled
from benchmarks.sizes import SIZES, made_up
from gpuplan.models.policy.policy import Policy

if TYPE_CHECKING:
    from gpuplan.models.snapshot import Snapshot


MIXES: Final = TUNE | JUDGE
"""Mixes of openb: all pods that fill the empty cluster wait at once. GPUPLAN_OPENB_DIR names the trace."""
FLEET: Final = "Alibaba 2026"
"""A real fleet with a synthetic queue, see `saturation.inventory`."""


@dataclass(frozen=True)
class Instance:
    """A snapshot and a policy that are reproducible from a name and a seed."""

    name: str
    """A key of `SIZES`, of `ODD_CASES`, of `ADMISSIONS` or of `MIXES`, or `FLEET`."""
    seconds: float
    """Time limit of the plan."""
    slots: int = 1
    seed: int = 1
    exact: bool = True
    """False: greedy plans alone, as where an exact solver has no time."""

    @property
    def title(self) -> str:
        """The name, the number of slots if the plan has a horizon, and what is left out."""
        slots = "" if self.slots == 1 else f", {self.slots} slots"
        return f"{self.name}{slots}{'' if self.exact else ', greedy'}"

    def snapshot(self) -> Snapshot:
        """The snapshot of the instance."""
        if self.name in SIZES:
            return made_up(SIZES[self.name], self.seed)
        if self.name in ODD_CASES:
            return odd_snapshot(ODD_CASES[self.name], self.seed)
        if self.name == FLEET:
            return inventory.case(inventory.file(), seed=self.seed)
        if self.name in MIXES:
            return self._mix()
        return snapshot_of(ADMISSIONS[self.name], self.seed)

    def policy(self) -> Policy:
        """The default policy for sizes and odd cases; for the others, one under which no job is disturbed."""
        if self.name in SIZES or self.name in ODD_CASES:
            ahead = {"horizon": {"slots": self.slots}} if self.slots > 1 else {}
            policy = Policy.model_validate(ahead)
        elif self.name in MIXES:
            policy = epochs.policy_of()
        else:
            policy = policy_of(self.slots)
        solvers = Policy().solvers if self.exact else ()
        budget = policy.budget.model_copy(update={"time_limit_ms": int(1000 * self.seconds)})
        return policy.model_copy(update={"budget": budget, "solvers": solvers})

    def _mix(self) -> Snapshot:
        trace = trace_for(Path(os.environ["GPUPLAN_OPENB_DIR"]), self.name, self.seed)
        arrivals = shuffled(trace, self.seed)
        pods = arrivals.shapes[: arrivals.until(trace.gpu_milli)]
        world = epochs.World(epochs.cluster_of(trace.machines[index] for index in arrivals.nodes))
        for number, shape in enumerate(pods.tolist()):
            name = f"pod-{number:05d}"
            world.jobs[name] = epochs.job_of(name, trace.shapes[shape])
        return world.snapshot()
