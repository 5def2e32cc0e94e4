"""
Steps about nodes: which there are, when they come, what they require, why, and their actions.

A new kind of action about nodes is added here, in `gpuplan.models.plan.actions`, in
`gpuplan.planner.analysis.effects` and in the executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from gpuplan.models.plan.actions import (
    ACTIONS,
    ActionKind,
    Cordon,
    Drain,
    NodeAction,
    ScaleDown,
    ScaleUp,
    Uncordon,
)
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.planner.text_format import format_count, format_duration, format_money, join_jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuplan.models.plan.precondition import Precondition
    from gpuplan.planner.analysis.job_changes import PlanChanges


class Phase(Enum):
    """Points in the order of a plan at which steps about nodes come."""

    BEFORE_JOBS_LEAVE = auto()
    BEFORE_MOVES = auto()
    BEFORE_STARTS = auto()


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step that cordons, drains, adds or removes a node."""

    id: str
    kind: ActionKind
    node: str
    after: tuple[str, ...]
    """Ids of the earlier steps that this one requires, in their order."""


def node_steps(
    changes: PlanChanges, phase: Phase, *, early: Iterable[str]
) -> Iterator[tuple[ActionKind, Sequence[str]]]:
    """
    Kinds of steps in a phase, each with the names of its nodes; `early` are new nodes that moves need.

    Drains are in no phase: a node is drained as soon as it is empty.
    """
    match phase:
        case Phase.BEFORE_JOBS_LEAVE:
            yield ActionKind.CORDON, [name for name in changes.emptied if name in changes.target.removed]
        case Phase.BEFORE_MOVES:
            yield ActionKind.UNCORDON, changes.target.undo.opened
            yield ActionKind.SCALE_UP, sorted(early)
        case Phase.BEFORE_STARTS:
            yield ActionKind.SCALE_DOWN, changes.removed
            yield ActionKind.SCALE_UP, sorted(changes.added.keys() - set(early))


def precondition(step: NodeStep) -> Precondition:
    """The precondition that each action of this kind has."""
    return ACTIONS[step.kind].needs.model_validate({"node": step.node})


def action(step: NodeStep, changes: PlanChanges, common: dict[str, Any]) -> NodeAction:
    """The action of a step; `common` has the fields that all actions have."""
    match step.kind:
        case ActionKind.CORDON:
            return Cordon(node=step.node, **common)
        case ActionKind.UNCORDON:
            return Uncordon(node=step.node, **common)
        case ActionKind.DRAIN:
            return Drain(node=step.node, **common)
        case ActionKind.SCALE_UP:
            node = changes.added[step.node]
            return ScaleUp(
                pool=node.pool or "",
                node=node.name,
                after=node,
                provisioning=changes.provisioning(node.pool),
                **common,
            )
        case ActionKind.SCALE_DOWN:
            return ScaleDown(pool=changes.nodes[step.node].pool or "", node=step.node, **common)
        case _:
            raise ValueError(f"expected an action about node {step.node!r}, found {step.kind}")


def reason(
    step: NodeStep, changes: PlanChanges, *, leaving: Sequence[str], arriving: Sequence[str]
) -> Reason:
    """The reason of a step; `leaving` and `arriving` are the jobs that leave the node and that come to it."""
    node = changes.nodes[step.node]
    have = "has" if len(leaving) == 1 else "have"
    match step.kind:
        case ActionKind.CORDON:
            text = f"to be removed once {join_jobs(leaving)} {have} left"
            return Reason(code=ReasonCode.IDLE, text=text, numbers={"jobs": ", ".join(leaving)})
        case ActionKind.UNCORDON:
            return Reason(code=ReasonCode.ROLLED_BACK, text="takes jobs again")
        case ActionKind.DRAIN:
            then = "removed" if step.node in changes.target.removed else "drained"
            text = f"confirms that {join_jobs(leaving)} {have} left a node to be {then}"
            return Reason(code=ReasonCode.DRAINED, text=text, numbers={"jobs": ", ".join(leaving)})
        case ActionKind.SCALE_DOWN:
            text = f"no job needs it; saves {format_money(node.price_per_hour)}/h"
            return Reason(code=ReasonCode.IDLE, text=text, numbers={"price_per_hour": node.price_per_hour})
        case ActionKind.SCALE_UP:
            pool = next(each for each in changes.snapshot.cluster.pools if each.name == node.pool)
            least = f"pool {pool.name} keeps at least {format_count(pool.minimum, 'node')}"
            text = f"needed by {join_jobs(arriving)}" if arriving else least
            text = f"{text}; costs {format_money(node.price_per_hour)}/h"
            if wait := pool.provisioning:
                text = f"{text}, ready after {format_duration(wait)}"
            numbers = {
                "price_per_hour": node.price_per_hour,
                "provisioning_seconds": wait,
                "jobs": ", ".join(arriving),
            }
            return Reason(code=ReasonCode.DEMAND, text=text, numbers=numbers)
        case _:
            raise ValueError(f"expected a step about node {step.node!r}, found {step.kind}")
