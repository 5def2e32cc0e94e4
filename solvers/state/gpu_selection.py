"""Choose GPUs of a node for a replica: close together, and so that large groups stay whole."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def choose_gpus(free: list[int], groups: Sequence[tuple[int, int]], count: int) -> tuple[int, ...]:
    """
    Choose `count` free GPUs in as few NVLink groups, and within these in as few NUMA nodes, as possible.

    `groups` is (NVLink group, NUMA node) by GPU index; without it all GPUs are one group. The smallest group
    with enough GPUs is taken, so that large ones stay whole.
    """
    if not groups:
        return tuple(free[:count])
    return tuple(sorted(_nearest(free, groups, count, level=0)))


def _nearest(free: list[int], groups: Sequence[tuple[int, int]], count: int, *, level: int) -> list[int]:
    if level == 2 or count >= len(free):
        return free[:count]
    members: dict[int, list[int]] = defaultdict(list)
    for gpu in free:
        members[groups[gpu][level]].append(gpu)
    enough = [gpus for gpus in members.values() if len(gpus) >= count]
    if enough:
        smallest = min(enough, key=lambda gpus: (len(gpus), gpus))
        return _nearest(smallest, groups, count, level=level + 1)
    largest = min(members.values(), key=lambda gpus: (-len(gpus), gpus))
    rest = [gpu for gpu in free if gpu not in largest]
    return largest + _nearest(rest, groups, count - len(largest), level=level)
