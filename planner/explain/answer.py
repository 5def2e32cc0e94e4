"""The explanation of one job, queue or node of a plan, by what its name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpuplan.planner.explain.job import explain
from gpuplan.planner.explain.node import explain_node
from gpuplan.planner.explain.queue import explain_queue

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.explain.answers.job import Explanation
    from gpuplan.planner.explain.answers.node import NodeExplanation
    from gpuplan.planner.explain.answers.queue import QueueExplanation
    from gpuplan.planner.explain.lookup import Kind

    AnyExplanation: TypeAlias = Explanation | QueueExplanation | NodeExplanation


def answer(plan: Plan, kind: Kind, name: str, *, source: str) -> AnyExplanation:
    """Explain what `lookup.meaning` found; `source` is where the plan is from, for messages."""
    match kind:
        case "job":
            return explain(plan, name, source=source)
        case "queue":
            return explain_queue(plan, name)
        case "node":
            return explain_node(plan, name)
