"""
Partitions of a Slurm cluster, with their priorities and the jobs that they take, and pools of its nodes.

A pool has nodes that Slurm powers down and up and that are equal for every job: powered down they are only
names of the pool, powered up they are nodes. Settings: man page of slurm.conf (power saving), Slurm 22.05 to
26.05.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.cluster import Node, NodePool
from gpuplan.models.job import HIGHEST_PRIORITY
from gpuplan.planner.sources.slurm.cluster.nodes import NODE_LABEL
from gpuplan.planner.sources.slurm.values import (
    fields_of,
    flags,
    hosts,
    minutes_of,
    name_of,
    number,
    split_outside_brackets,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from gpuplan.planner.sources.slurm.values import Record


_ALL: Final = "ALL"
_LEVELS: Final = 20
"""Weights that jobs of one tier have at most: jobs of one weight and shape are planned together."""
_STARTS_NOTHING: Final = frozenset({"DOWN", "INACTIVE"})


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition."""

    name: str
    tier: int = 0
    """Its priority tier; of large numbers the rank."""
    state: str = "UP"
    most_nodes: int | None = None
    most_minutes: int | None = None
    accounts: tuple[str, ...] = ()
    """Accounts with jobs that it takes; empty is all."""
    refused_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    """QOS of the jobs that it takes; empty is all."""
    refused_qos: tuple[str, ...] = ()
    own_qos: str = ""
    """QOS with limits for all of its jobs."""
    whole_nodes: bool = False
    """True if its jobs share no nodes."""
    resume_timeout: int = 0
    """Seconds until a node that is powered up takes jobs, where it differs from that of the cluster."""

    def objection(self, *, nodes: int, minutes: int | None, account: str, qos: str) -> str | None:
        """Why it never starts a job of this kind as it is; None if it may."""
        if self.state in _STARTS_NOTHING:
            return f"is {self.state.lower()}"
        if self.most_nodes is not None and nodes > self.most_nodes:
            return f"gives at most {self.most_nodes} nodes to a job"
        if self.most_minutes is not None and (minutes is None or minutes > self.most_minutes):
            return f"runs no job longer than {self.most_minutes:,} minutes"
        if account and _refused(account, self.accounts, self.refused_accounts):
            return f"does not take jobs of account {account}"
        if qos and _refused(qos, self.qos, self.refused_qos):
            return f"does not take jobs of QOS {qos}"
        return None


def _refused(name: str, allowed: tuple[str, ...], denied: tuple[str, ...]) -> bool:
    return name in denied or bool(allowed and name not in allowed)


def partitions_of(text: str, note: Callable[[str, str], None]) -> dict[str, SlurmPartition]:
    """The partitions by name, from `scontrol --oneliner show partition` or JSON of slurmrestd."""
    if text.lstrip().startswith("{"):
        found = [_from_json(record) for record in json.loads(text).get("partitions") or []]
    else:
        lines = (fields_of(line) for line in text.splitlines())
        found = [_from_text(fields) for fields in lines if "PartitionName" in fields]
    return {each["name"]: SlurmPartition(**each) for each in _with_ranks(found, note)}


def _with_ranks(found: list[dict[str, Any]], note: Callable[[str, str], None]) -> list[dict[str, Any]]:
    tiers = sorted({each["tier"] for each in found})
    if not tiers or tiers[-1] <= HIGHEST_PRIORITY:
        return found
    note("partitions", f"tiers above {HIGHEST_PRIORITY:,}: priorities are their ranks")
    return [each | {"tier": tiers.index(each["tier"])} for each in found]


def _names(text: str | None) -> tuple[str, ...]:
    return () if text in (None, "", _ALL) else tuple(words(text))


def _from_text(fields: Mapping[str, str]) -> dict[str, Any]:
    most = fields.get("MaxNodes", "")
    resume = fields.get("ResumeTimeout", "")
    return {
        "name": fields["PartitionName"],
        "tier": int(fields.get("PriorityTier", "0")),
        "state": fields.get("State", "UP"),
        "most_nodes": int(most) if most.isdigit() else None,
        "most_minutes": minutes_of(fields.get("MaxTime")),
        "accounts": _names(fields.get("AllowAccounts")),
        "refused_accounts": _names(fields.get("DenyAccounts")),
        "qos": _names(fields.get("AllowQos")),
        "refused_qos": _names(fields.get("DenyQos")),
        "own_qos": fields.get("QoS", ""),
        # 26.05 has a field of its own.
        "whole_nodes": "EXCLUSIVE" in fields.get("OverSubscribe", "") or fields.get("Exclusive") == "NODE",
        "resume_timeout": int(resume) if resume.isdigit() else 0,
    }


def _from_json(record: Record) -> dict[str, Any]:
    """Of v0.0.38, with the fields side by side, or of a later version, with groups of fields."""

    def at(*path: str) -> Any:
        value: Any = record
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def count(value: Any) -> int | None:
        return number(value) or None  # 0 is no limit too

    states = flags(at("partition", "state") or record.get("state"))
    return {
        "name": str(record["name"]),
        "tier": number(at("priority", "tier")) or number(record.get("priority_tier")) or 0,
        "state": next(iter(sorted(states)), "UP"),
        "most_nodes": count(at("maximums", "nodes") or record.get("maximum_nodes_per_job")),
        "most_minutes": count(at("maximums", "time") or record.get("max_time_limit")),
        "accounts": _names(at("accounts", "allowed") or record.get("allowed_accounts")),
        "refused_accounts": _names(at("accounts", "deny") or record.get("denied_accounts")),
        "qos": _names(at("qos", "allowed") or record.get("allowed_qos")),
        "refused_qos": _names(at("qos", "deny") or record.get("denied_qos")),
        "own_qos": str(record["qos"] or "")
        if isinstance(record.get("qos"), str)
        else at("qos", "assigned") or "",
        "whole_nodes": "NODE" in flags(exclusive)
        if (exclusive := at("partition", "exclusive"))
        else number(at("maximums", "shares")) == 0,
        "resume_timeout": number(at("timeouts", "resume")) or 0,
    }


def weights_of(priorities: Iterable[tuple[int, int]]) -> dict[tuple[int, int], float]:
    """
    Weight of jobs by tier and Slurm's priority, 1 for the lowest of a tier and below 2 for the highest.

    It never falls with the priority; it grows with each of them if a tier has at most 20. The size of the
    priorities means nothing: they are numbers of 32 bits on a scale that each cluster chooses.
    """
    by_tier: dict[int, list[int]] = defaultdict(list)
    for tier, priority in sorted(set(priorities)):
        by_tier[tier].append(priority)
    return {
        (tier, priority): 1 + rank * _LEVELS // max(_LEVELS, len(ordered)) / _LEVELS
        for tier, ordered in by_tier.items()
        for rank, priority in enumerate(ordered)
    }


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
