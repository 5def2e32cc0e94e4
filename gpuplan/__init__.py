"""
gpuplan: an optimization-based batch planner for GPU clusters.

What this module lists in `__all__` is the public API. Versions that differ in the last number alone leave it
as it is, and what another one changes stands in CHANGELOG.md. All other modules may change at any time.

The functions do what the commands of the same names do (docs/api.md has an example). They read no clock but
for time limits and `created_at`, print nothing, and write nothing but what `save_plan` is told to.

Quantities are integers with a unit, as their fields say: GPUs, cores and replicas in thousandths
(`..._milli`), memory in MiB, times in whole seconds, instants as aware `datetime` in UTC, values of plans in
points (docs/formulation.md). Words are those of docs/glossary.md.

Importing the module loads nothing; what a function needs is loaded when it is first called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuplan.models.errors import BadInputError, InputProblem, PlannerError, TamperedError
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.plan.violation import Rule, Violation
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.api import (
        explain,
        load_plan,
        load_policy,
        load_snapshot,
        plan,
        save_plan,
        simulate,
        verify,
        whatif,
    )
    from gpuplan.planner.apply.verdict import Verdict
    from gpuplan.planner.explain.explanation import Explanation
    from gpuplan.planner.explain.node import NodeExplanation
    from gpuplan.planner.explain.queue import QueueExplanation
    from gpuplan.planner.simulate.outcome import (
        Distribution,
        EpochFigures,
        Scorecard,
        ScoreValue,
        SimulatedRun,
        Simulation,
    )
    from gpuplan.planner.whatif.compare import Comparison, JobOutcomeChange, JobOutcomeKind, Trial
    from gpuplan.planner.whatif.measures import PlanFigures
    from gpuplan.planner.whatif.patch.scenario import Scenario

__all__ = [
    "BadInputError",
    "Comparison",
    "Distribution",
    "EpochFigures",
    "Explanation",
    "InputProblem",
    "JobOutcomeChange",
    "JobOutcomeKind",
    "Milestone",
    "NodeExplanation",
    "Plan",
    "PlanFigures",
    "PlannerError",
    "Policy",
    "QueueExplanation",
    "Rule",
    "Scenario",
    "ScoreValue",
    "Scorecard",
    "SimulatedRun",
    "Simulation",
    "Snapshot",
    "TamperedError",
    "Trial",
    "Verdict",
    "Violation",
    "explain",
    "load_plan",
    "load_policy",
    "load_snapshot",
    "plan",
    "save_plan",
    "simulate",
    "verify",
    "whatif",
]

_HOMES = {
    "models.errors": ("BadInputError", "InputProblem", "PlannerError", "TamperedError"),
    "models.plan.plan": ("Plan",),
    "models.plan.solution": ("Milestone",),
    "models.plan.violation": ("Rule", "Violation"),
    "models.policy.policy": ("Policy",),
    "models.snapshot": ("Snapshot",),
    "planner.api": (
        "explain",
        "load_plan",
        "load_policy",
        "load_snapshot",
        "plan",
        "save_plan",
        "simulate",
        "verify",
        "whatif",
    ),
    "planner.apply.verdict": ("Verdict",),
    "planner.explain.explanation": ("Explanation",),
    "planner.explain.node": ("NodeExplanation",),
    "planner.explain.queue": ("QueueExplanation",),
    "planner.simulate.outcome": (
        "Distribution",
        "EpochFigures",
        "ScoreValue",
        "SimulatedRun",
        "Scorecard",
        "Simulation",
    ),
    "planner.whatif.compare": ("Comparison", "JobOutcomeChange", "JobOutcomeKind", "Trial"),
    "planner.whatif.measures": ("PlanFigures",),
    "planner.whatif.patch.scenario": ("Scenario",),
}
"""Where each name is defined."""


def __getattr__(name: str) -> Any:
    """Load a name when it is first asked for."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"gpuplan.{home}"), name)
            return found
    raise AttributeError(f"module 'gpuplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
