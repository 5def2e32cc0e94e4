"""Actions sorted by type and grouped into kinds, so that a plan with thousands of actions can be reviewed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.placement import GpuShare, Placement
from gpuplan.models.plan.actions import (
    ACTIONS,
    Action,
    Disturbance,
    Grow,
    Keep,
    NodeAction,
    PoolAction,
    Preempt,
    Release,
    Repartition,
    Shrink,
    Start,
    Wait,
)
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import MILLI
from gpuplan.planner.text_format import format_count, format_mig_layout, format_resize, placement_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuplan.models.snapshot import Snapshot


SEVERITY: Final = {code: rank for rank, code in enumerate(ReasonCode)}
"""Rank of a reason code; the most severe has the lowest rank."""

Moving: TypeAlias = Start | Disturbance
"""A change of a job."""

_Key: TypeAlias = tuple[str, ...]

_LEAST_DISRUPTIVE_FIRST: Final = {kind.value: rank for rank, kind in enumerate(ACTIONS)}


@dataclass(frozen=True, slots=True)
class SortedActions:
    """The actions of a plan by subject; inside a group the least disruptive type is first."""

    releases: tuple[Release, ...]
    starts: tuple[Start, ...]
    disturbances: tuple[Disturbance, ...]
    nodes: tuple[NodeAction, ...]
    keeps: tuple[Keep, ...]
    waits: tuple[Wait, ...]

    def count(self, type_: str) -> int:
        """Actions of a type."""
        everything = (*self.releases, *self.starts, *self.disturbances, *self.nodes, *self.keeps, *self.waits)
        return sum(action.type == type_ for action in everything)


@dataclass(frozen=True, slots=True)
class JobActionGroup:
    """Changes of jobs that share a line of text."""

    type: str
    actions: tuple[Moving, ...]
    size: str
    queue: str
    """A queue name, or the number of queues."""
    gpu_milli: int
    nodes: int


@dataclass(frozen=True, slots=True)
class NodeActionGroup:
    """Actions on nodes that share a line of text."""

    type: str
    actions: tuple[NodeAction, ...]
    what: str
    """The pool, or the change of the MIG layout."""


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Waits with one reason code, grouped by the text of the reason."""

    code: ReasonCode
    waits: int
    by_text: tuple[tuple[str, tuple[Wait, ...]], ...]
    """The most frequent first."""


def sort_actions(actions: Iterable[Action]) -> SortedActions:
    """Sort the actions by subject."""
    actions = tuple(actions)
    rank = _LEAST_DISRUPTIVE_FIRST
    disturbances = [action for action in actions if isinstance(action, Disturbance)]
    nodes = [action for action in actions if isinstance(action, NodeAction)]
    return SortedActions(
        releases=tuple(action for action in actions if isinstance(action, Release)),
        starts=tuple(action for action in actions if isinstance(action, Start)),
        disturbances=tuple(sorted(disturbances, key=lambda action: rank[action.type])),
        nodes=tuple(sorted(nodes, key=lambda action: rank[action.type])),
        keeps=tuple(action for action in actions if isinstance(action, Keep)),
        waits=tuple(action for action in actions if isinstance(action, Wait)),
    )


def sizing_placement(action: Moving) -> Placement:
    """The placement that gives the size of a change: the one after it, or the one before a preemption."""
    return action.before if isinstance(action, Preempt) else action.after


def reason_number(action: Moving, name: str) -> int | float:
    """A number of an action's reason; 0 if absent."""
    number = action.reason.numbers.get(name, 0)
    return 0 if isinstance(number, str) else number


def placement_gpu_milli(placement: Placement | None) -> int:
    """Thousandths of GPUs that a placement holds."""
    return sum(replica.quota_milli for replica in placement.replicas) if placement else 0


def _size(action: Moving) -> str:
    if isinstance(action, Grow | Shrink):
        return format_resize(action.before, action.after)
    return placement_size(sizing_placement(action))


def group_job_actions(actions: Sequence[Moving], snapshot: Snapshot, *, most: int) -> list[JobActionGroup]:
    """Group changes into kinds, at the finest level that gives at most `most` kinds; most GPUs first."""
    queue = {job.name: job.queue for job in snapshot.jobs}
    levels: tuple[Callable[[Moving], _Key], ...] = (
        lambda action: (action.type, _size(action), queue[action.job]),
        lambda action: (action.type, _coarse_size(sizing_placement(action)), queue[action.job]),
        lambda action: (action.type, _coarse_size(sizing_placement(action)), ""),
    )
    members: dict[_Key, list[Moving]] = {}
    for level in levels:
        members = defaultdict(list)
        for action in actions:
            members[level(action)].append(action)
        if len(members) <= most:
            break
    kinds = [
        JobActionGroup(
            type=type_,
            actions=tuple(found),
            size=size,
            queue=f"queue {name}"
            if name
            else format_count(len({queue[action.job] for action in found}), "queue"),
            gpu_milli=sum(placement_gpu_milli(sizing_placement(action)) for action in found),
            nodes=len({replica.node for action in found for replica in sizing_placement(action).replicas}),
        )
        for (type_, size, name), found in members.items()
    ]
    rank = _LEAST_DISRUPTIVE_FIRST
    return sorted(
        kinds,
        key=lambda kind: (rank[kind.type], -kind.gpu_milli, -len(kind.actions), kind.size, kind.queue),
    )


def group_node_actions(actions: Iterable[NodeAction]) -> list[NodeActionGroup]:
    """Group node actions by type and by pool or layout change; the most frequent of a type first."""
    members: dict[_Key, list[NodeAction]] = defaultdict(list)
    for action in actions:
        members[action.type, _what(action)].append(action)
    kinds = [NodeActionGroup(type_, tuple(found), what) for (type_, what), found in members.items()]
    rank = _LEAST_DISRUPTIVE_FIRST
    return sorted(kinds, key=lambda kind: (rank[kind.type], -len(kind.actions), kind.what))


def _what(action: NodeAction) -> str:
    match action:
        case Repartition():
            return f"{format_mig_layout(action.before)} → {format_mig_layout(action.after)}"
        case _:
            return f"pool {action.pool}" if isinstance(action, PoolAction) else ""


def group_waits(waits: Iterable[Wait]) -> list[WaitGroup]:
    """Group waits by reason code, the most severe first."""
    by_code: dict[ReasonCode, dict[str, list[Wait]]] = defaultdict(lambda: defaultdict(list))
    for wait in waits:
        by_code[wait.reason.code][wait.reason.text].append(wait)
    return [
        WaitGroup(
            code=code,
            waits=sum(map(len, by_code[code].values())),
            by_text=tuple(
                (text, tuple(found))
                for text, found in sorted(by_code[code].items(), key=lambda item: (-len(item[1]), item[0]))
            ),
        )
        for code in sorted(by_code, key=SEVERITY.__getitem__)
    ]


def _coarse_size(placement: Placement) -> str:
    """The size in whole GPUs; all shared GPUs count as one size, and all work without GPUs as another."""
    held = [part for replica in placement.replicas for part in replica.gpus]
    if not held:
        return "no GPU"
    whole = all(isinstance(part, GpuShare) and part.milli == MILLI for part in held)
    return placement_size(placement) if whole else "shared GPU"
