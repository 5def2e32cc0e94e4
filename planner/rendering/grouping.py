"""Actions sorted by type and gathered into kinds, so that a plan of thousands can be reviewed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from planner.models.placement import GpuShare
from planner.models.plan import Keep, ReasonCode, Start, Wait
from planner.models.units import MILLI
from planner.wording import counted, placement_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner.models.placement import Placement
    from planner.models.plan import Action
    from planner.models.snapshot import Snapshot

SEVERITY: Final = {code: rank for rank, code in enumerate(ReasonCode)}
"""Rank of a reason, the most severe lowest."""

_Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SortedActions:
    """The actions of a plan by type, each in the plan's order."""

    starts: tuple[Start, ...]
    keeps: tuple[Keep, ...]
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class StartKind:
    """Starts that share a line."""

    starts: tuple[Start, ...]
    size: str
    queue: str
    """A name, or how many queues there are."""
    gpu_milli: int
    nodes: int


@dataclass(frozen=True, slots=True)
class WaitKind:
    """Waits with one reason code, by the words of the reason."""

    code: ReasonCode
    waits: int
    by_text: tuple[tuple[str, tuple[Wait, ...]], ...]
    """The commonest first."""


def sort_actions(actions: Iterable[Action]) -> SortedActions:
    """The actions by type."""
    starts: list[Start] = []
    keeps: list[Keep] = []
    waits: list[Wait] = []
    for action in actions:
        match action:
            case Start():
                starts.append(action)
            case Keep():
                keeps.append(action)
            case Wait():
                waits.append(action)
            case _:
                assert_never(action)
    return SortedActions(tuple(starts), tuple(keeps), tuple(waits))


def start_kinds(starts: Iterable[Start], snapshot: Snapshot, *, most: int) -> list[StartKind]:
    """Kinds of starts, as fine as so many kinds allow; those with the most GPUs first."""
    queue = {job.name: job.queue for job in snapshot.jobs}
    levels: tuple[Callable[[Start], _Key], ...] = (
        lambda start: (placement_size(start.after), queue[start.job]),
        lambda start: (_coarse_size(start.after), queue[start.job]),
        lambda start: (_coarse_size(start.after), ""),
    )
    members: dict[_Key, list[Start]] = {}
    for level in levels:
        members = defaultdict(list)
        for start in starts:
            members[level(start)].append(start)
        if len(members) <= most:
            break
    kinds = [
        StartKind(
            starts=tuple(found),
            size=size,
            queue=f"queue {name}" if name else counted(len({queue[start.job] for start in found}), "queue"),
            gpu_milli=sum(replica.quota_milli for start in found for replica in start.after.replicas),
            nodes=len({replica.node for start in found for replica in start.after.replicas}),
        )
        for (size, name), found in members.items()
    ]
    return sorted(kinds, key=lambda kind: (-kind.gpu_milli, -len(kind.starts), kind.size, kind.queue))


def wait_kinds(waits: Iterable[Wait]) -> list[WaitKind]:
    """Reasons for waiting, the most severe first."""
    by_code: dict[ReasonCode, dict[str, list[Wait]]] = defaultdict(lambda: defaultdict(list))
    for wait in waits:
        by_code[wait.reason.code][wait.reason.text].append(wait)
    return [
        WaitKind(
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
    """The size of whole GPUs; all parts of GPUs count as one size, and so does all work without GPUs."""
    held = [part for replica in placement.replicas for part in replica.gpus]
    if not held:
        return "no GPU"
    whole = all(isinstance(part, GpuShare) and part.milli == MILLI for part in held)
    return placement_size(placement) if whole else "shared GPU"
