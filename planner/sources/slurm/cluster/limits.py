"""
Limits of accounts and QOS: those on GPUs of accounts and of their users become quotas of queues.

The queue of a job is its account, or `ACCOUNT/USER` for a user with a limit of its own. A limit holds for
everything below it, and gives no right to so many GPUs. So in the arithmetic of quotas (`models/queue.py`)
the nominal quota of a limited queue is 0, and it borrows, up to its limit, from a root without a quota. That
root lends without limit, since a queue without a quota and without jobs is below it. Meaning of the limits:
Slurm's page on resource limits, and man page of sacctmgr, Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpuplan.models.queue import ALL_MODELS, Queue, Quota
from gpuplan.planner.sources.slurm.values import name_of, number, tres_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpuplan.planner.sources.slurm.values import Record

_GPU: Final = re.compile(r"^gres/gpu(?::(?P<type>.+))?$")
_ROOT: Final = "slurm/all"
_UNLIMITED: Final = "slurm/unlimited"
_PLACE: Final = {
    "Cluster": "cluster",
    "Account": "account",
    "User": "user",
    "Partition": "partition",
    "ParentName": "parent_account",
    "Name": "name",
}
"""Columns that are no limits, with the fields of slurmrestd."""
_OF_LIMIT: Final = re.compile(r"^(QOS|Assoc)(Grp|Max|Min)\w*$|^AssociationJobLimit$")
"""Reasons of jobs that wait for a limit that is no quota."""
_OTHERS: Final = frozenset(
    {
        *("PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "DependencyNeverSatisfied"),
        *("InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "ReservationDeleted"),
        *("Reservation deleted", "JobHoldMaxRequeue"),
    }
)
"""Other reasons for which Slurm starts a job only when something is changed."""


def is_refused(reason: str) -> bool:
    """True if Slurm does not start a job for this reason, and a plan cannot tell when it does."""
    return reason in _OTHERS or (bool(_OF_LIMIT.match(reason)) and reason != "AssocGrpGRES")


@dataclass(frozen=True)
class Queues:
    """Accounts, and users with limits, as queues."""

    parents: Mapping[str, str] = field(default_factory=dict)
    """Queue above each queue."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Largest numbers of GPUs of a queue and all below it, by model; only queues with limits."""

    def of(self, record: Record) -> str:
        """The queue of a job; empty if it has no account."""
        account = str(record.get("account") or "")
        own = f"{account}/{record.get('user_name')}"
        return own if account and own in self.limits else account

    def tree(self, used: Iterable[str]) -> tuple[Queue, ...]:
        """The queues of jobs, and those above them up to the highest one with a limit."""
        parents: dict[str, str | None] = {}
        for name in set(used):
            chain = list(self._upwards(name))
            limited = [position for position, each in enumerate(chain) if each in self.limits]
            kept = chain[: limited[-1] + 1] if limited else [name]
            parents |= dict(zip(kept, [*kept[1:], _ROOT if limited else None], strict=True))
        if _ROOT in parents.values():
            parents |= {_ROOT: None, _UNLIMITED: _ROOT}
        return tuple(_queue(name, parent, self.limits.get(name, {})) for name, parent in parents.items())

    def _upwards(self, name: str) -> Iterator[str]:
        seen: set[str] = set()
        above: str | None = name
        while above is not None and above not in seen:
            seen.add(above)
            yield above
            above = self.parents.get(above)


def _queue(name: str, parent: str | None, limits: Mapping[str, int]) -> Queue:
    quotas = {name: Quota(nominal=0, borrowing_limit=count) for name, count in limits.items()}
    return Queue(
        name=name_of(name),
        parent=None if parent is None else name_of(parent),
        quota=quotas.pop(ALL_MODELS, None),
        gpu_models={name_of(model): quota for model, quota in quotas.items()},
    )


def queues_of(associations: str, qos: str, cluster: str, note: Callable[[str, str], None]) -> Queues:
    """The accounts of a cluster, from `sacctmgr --parsable2 show associations` and `show qos`."""
    parents: dict[str, str] = {}
    limits: dict[str, dict[str, int]] = {}
    rows = list(_rows(associations))
    if len({row.get("Cluster") for row in rows}) > 1:
        rows = [row for row in rows if name_of(row.get("Cluster", "")) == cluster]
    accounts = {row["Account"]: row for row in rows if not row.get("User")}
    for row in rows:
        account, user = row["Account"], row.get("User")
        name = f"{account}/{user}" if user else account
        inherited = accounts.get(account if user else row.get("ParentName", ""), {})
        others = _others(row, inherited)
        gpus = _gpus(row.get("GrpTRES", ""))
        if gpus and row.get("Partition"):
            others.append(f"GrpTRES={row['GrpTRES']} in partition {row['Partition']}")
        elif gpus:
            limits[name] = gpus
        if others:
            note(f"{'association' if user else 'account'} {name}", _unplanned(others))
        above = account if user else row.get("ParentName")
        if above:
            parents[name] = above
    for row in _rows(qos):
        others = _others(row, {})
        if _gpus(row.get("GrpTRES", "")):
            others.append(f"GrpTRES={row['GrpTRES']}")
        if others:
            note(f"QOS {row.get('Name')}", _unplanned(others))
    return Queues(parents, limits)


def _unplanned(limits: list[str]) -> str:
    return f"its limits {', '.join(sorted(limits))} are no quotas: jobs that wait for them in Slurm are held"


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Lines of a table with `|` between columns, the first with their names; or records of slurmrestd."""
    if text.lstrip().startswith("{"):
        found = json.loads(text)
        yield from map(_row_of, found.get("associations") or found.get("qos") or found.get("QOS") or [])
        return
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    for cells in lines[1:]:
        yield {name: cell for name, cell in zip(lines[0], cells, strict=False) if cell}


def _row_of(record: Record) -> dict[str, str]:
    """An association or a QOS of slurmrestd, with the columns of a table; other limits by their path."""
    row = {column: str(record.get(key) or "") for column, key in _PLACE.items()}
    limits = record.get("limits") or record
    for path, value in _leaves({key: limits.get(key) for key in ("max", "min")}):
        row["GrpTRES" if path == "max.tres.total" else path] = value
    return {name: value for name, value in row.items() if value}


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Limits that are set, with their paths; lists of TRES as texts."""
    if isinstance(value, list):
        names = ("/".join(each[key] for key in ("type", "name") if each.get(key)) for each in value)
        counts = (number(each.get("count")) for each in value)
        yield path, ",".join(f"{name}={count}" for name, count in zip(names, counts, strict=True))
    elif isinstance(value, dict) and "number" not in value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}".lstrip("."))
    elif count := number(value):
        yield path, str(count)


def _gpus(text: str) -> dict[str, int]:
    """Numbers of GPUs in a TRES text by type; under `ALL_MODELS` of all types."""
    found = ((_GPU.match(name), count) for name, count in tres_of(text).items())
    return {match["type"] or ALL_MODELS: count for match, count in found if match}


def _others(row: Mapping[str, str], inherited: Mapping[str, str]) -> list[str]:
    """Limits of a row that are no quota, and not the same as those of the account above."""
    found = []
    for name, value in row.items():
        if name in _PLACE or (name.startswith(("Max", "max")) and inherited.get(name) == value):
            continue
        parts = words(value)
        if name == "GrpTRES":
            parts = [part for part in parts if not _GPU.match(part.partition("=")[0])]
        if parts:
            found.append(f"{name}={','.join(parts)}")
    return found
