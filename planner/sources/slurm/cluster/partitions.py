"""Partitions of a Slurm cluster: their priorities, and which jobs they take."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.job import HIGHEST_PRIORITY
from gpuplan.planner.sources.slurm.values import fields_of, flags, minutes_of, number, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
