"""
Nodes that Slurm powers down and up: pools of a snapshot, with the names of the nodes.

A pool has nodes that are equal for every job: powered down they are only names of the pool, powered up they
are nodes. Settings: man page of slurm.conf (power saving), Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import Node, NodePool
from gpuplan.planner.sources.slurm.cluster.nodes import NODE_LABEL
from gpuplan.planner.sources.slurm.values import flags, hosts, name_of, split_outside_brackets, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from gpuplan.planner.sources.slurm.cluster.partitions import SlurmPartition
    from gpuplan.planner.sources.slurm.values import Record

_LINE: Final = re.compile(r"^(\w+)\s*=\s(.*)$", re.MULTILINE)
_OFF: Final = frozenset({"", "(null)", "INFINITE", "NONE", "-1"})
_GOING_UP: Final = frozenset({"POWERING_UP", "POWER_UP"})
_NOT_TO_BE_POWERED_UP: Final = frozenset(
    {
        *(
            "DRAIN",
            "DOWN",
            "FAIL",
            "ERROR",
            "MAINTENANCE",
            "MAINT",
            "INVALID_REG",
            "POWERING_DOWN",
            "POWER_DOWN",
        )
    }
    | _GOING_UP
)


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """Settings of power saving."""

    on: bool = False
    resume_timeout: int = 60
    """Longest time until a node that is powered up takes jobs, in seconds."""
    exempt: frozenset[str] = frozenset()
    """Nodes and partitions that are never powered down."""


def settings_of(config: str) -> dict[str, str]:
    """Settings by name, from `scontrol show config`."""
    return {name: value.strip() for name, value in _LINE.findall(config)}


def power_saving_of(config: str, note: Callable[[str, str], None]) -> PowerSaving:
    """Settings from `scontrol show config`."""
    settings = settings_of(config)
    programs = ("SuspendProgram", "ResumeProgram")
    if any(settings.get(key, "") in _OFF for key in (*programs, "SuspendTime")):
        return PowerSaving()
    exempt = []
    for each in (settings.get(key, "") for key in ("SuspendExcNodes", "SuspendExcParts")):
        for part in split_outside_brackets("" if each in _OFF else each):
            names, _, count = part.partition(":")
            exempt += hosts(names)
            if count:
                note("power saving", f"of {names} {count} stay up: none of them is powered down by a plan")
    return PowerSaving(
        on=True,
        resume_timeout=int((settings.get("ResumeTimeout", "").split() or ["60"])[0]),
        exempt=frozenset(exempt),
    )


def with_pools(
    nodes: Iterable[Node],
    records: Iterable[Record],
    saving: PowerSaving,
    named: frozenset[str],
    reserved: Mapping[str, object],
    partitions: Mapping[str, SlurmPartition],
    now: datetime,
) -> tuple[list[Node], tuple[NodePool, ...]]:
    """
    The nodes that are up or coming up, and the pools.

    Nodes of a pool are equal for every job. So a node that a pending job names has a pool of its own, and
    nodes of different reservations, `reserved` by node, have different pools.
    """
    kept: list[Node] = []
    alike: dict[object, list[tuple[Node, bool]]] = defaultdict(list)
    timeouts: dict[str, int] = {}
    for node, record in zip(nodes, records, strict=True):
        name, state = str(record["name"]), flags(record.get("state")) | flags(record.get("state_flags"))
        parts = words(record.get("partitions"))
        down = "POWERED_DOWN" in state
        if not saving.on or not (down or {name, *parts}.isdisjoint(saving.exempt)):
            kept.append(node)
            continue
        ends = [partitions[part].resume_timeout for part in parts if part in partitions]
        timeouts[node.name] = max(ends, default=0) or saving.resume_timeout
        if state & _GOING_UP and not node.cordoned:
            ready_at = now + timedelta(seconds=timeouts[node.name])
            up = node.model_copy(update={"ready": False, "ready_at": ready_at})
        else:
            up = node
        template = _template(node, named=name in named)
        key = template.fingerprint(), reserved.get(name), timeouts[node.name]
        alike[key].append((up, down and not state & _NOT_TO_BE_POWERED_UP))
    pools = []
    for members in alike.values():
        first, _ = min(members, key=lambda member: member[0].name)
        alone = first.labels[NODE_LABEL] in named
        pool = NodePool(
            name=name_of(f"power/{first.name}"),
            template=_template(first, named=alone).model_copy(update={"name": first.name}),
            names=tuple(sorted(node.name for node, _ in members)),
            maximum=len(members),
            provisioning=timeouts[first.name],
        )
        pools.append(pool)
        kept += [node.model_copy(update={"pool": pool.name}) for node, asleep in members if not asleep]
    return kept, tuple(pools)


def _template(node: Node, *, named: bool) -> Node:
    """A node of a pool as it is when it is powered up; only in a pool of one it has the label of its name."""
    labels = {key: value for key, value in node.labels.items() if named or key != NODE_LABEL}
    return node.as_new().model_copy(update={"name": "node", "labels": labels})
