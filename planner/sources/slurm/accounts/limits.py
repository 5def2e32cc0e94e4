"""
Limits of accounts, users and QOS: which of them hold for a job, and how much of each it takes.

A limit on what jobs have together becomes a quota of a queue, or decides how many jobs may
start (both in `quotas.py`). A limit on each job by itself is checked here.

Of several limits of one kind on one resource that of a QOS counts: the partition's, then the job's, with
OverPartQOS the other way round; without one those of the association and of all accounts above it. What a job
takes counts everywhere, also where another limit is the one in force. Sources: Slurm's page on resource
limits, and man page of sacctmgr, Slurm 22.05 to 26.05; which limit is in force: tried on 22.05 and 24.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gpuplan.planner.sources.slurm.accounts.rows import (
    JOBS,
    TOTALS,
    WALL,
    amounts_of,
    association_rows,
    qos_rows,
)
from gpuplan.planner.sources.slurm.values import name_of, number, tres_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuplan.planner.sources.slurm.accounts.rows import Row
    from gpuplan.planner.sources.slurm.cluster.partitions import SlurmPartition
    from gpuplan.planner.sources.slurm.values import Record


class LimitKind(StrEnum):
    """What the jobs have in common that a limit counts; the last five are of one job."""

    GROUP = "group"
    USER = "user"
    ACCOUNT = "account"
    JOB = "job"
    NODE = "node"
    MINUTES = "minutes"
    WALL = "wall"
    LEAST = "least"


_COLUMNS: Final = {
    "GrpTRES": LimitKind.GROUP,
    "GrpJobs": LimitKind.GROUP,
    "MaxTRESPU": LimitKind.USER,
    "MaxJobsPU": LimitKind.USER,
    "MaxJobs": LimitKind.USER,
    "MaxTRESPA": LimitKind.ACCOUNT,
    "MaxJobsPA": LimitKind.ACCOUNT,
    "MaxTRES": LimitKind.JOB,
    "MaxTRESPerNode": LimitKind.NODE,
    "MaxTRESMins": LimitKind.MINUTES,
    "MaxWall": LimitKind.WALL,
    "MinTRES": LimitKind.LEAST,
}
TOGETHER: Final = frozenset({LimitKind.GROUP, LimitKind.USER, LimitKind.ACCOUNT})
"""Kinds of limits on what jobs have together."""
_GROUP: Final = ("GrpTRES", "GrpJobs")
_OF_USER: Final = ("MaxJobs", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall")
"""Limits that a user has from the lowest account with one, if not an own one."""
_ENFORCED: Final = frozenset({"limits", "safe", "all"})
"""Values of AccountingStorageEnforce with which Slurm keeps limits (man page of slurm.conf)."""

_OF_LIMIT: Final = re.compile(
    r"^(QOS|Assoc)(Grp|Max|Min)\w*$|^Max\w+Per(User|Account)$|^AssociationJobLimit$"
)
"""Reasons of jobs that wait for a limit: tried on 22.05 and 24.11."""
_OVER_TIME: Final = re.compile(r"Minutes|RunMins|Wall")
"""In reasons that mean limits on times."""
_WORDS: Final = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "billing": "Billing", JOBS: "Jobs"}
"""What a reason calls a resource; others are GRES."""
_OTHERS: Final = frozenset(
    {
        *("PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "DependencyNeverSatisfied"),
        *("InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "ReservationDeleted"),
        *("Reservation deleted", "JobHoldMaxRequeue"),
    }
)
"""Other reasons for which Slurm starts a job only when something is changed."""


class Payer(NamedTuple):
    """What decides which limits hold for a job."""

    account: str
    user: str
    partition: str
    """Partition of the association; empty for one of all partitions."""
    qos: str
    partition_qos: str


class LimitId(NamedTuple):
    """One amount of one limit."""

    scope: tuple[str, ...]
    """Where it is set: `account A`, `user A U`, `user A U PARTITION` or `qos Q`; then the user or account."""
    kind: LimitKind
    tres: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, as it is for one job."""

    id: LimitId
    most: int
    """The largest amount, or with `LEAST` the smallest; memory in MiB."""
    column: str
    """What sacctmgr calls it."""
    in_force: bool = True
    """False if a QOS has another limit in its place: the job only counts there."""

    @property
    def text(self) -> str:
        """As sacctmgr writes it, with what it is set on."""
        scope, _, tres = self.id
        amount = (
            f"{self.most}" if tres in (JOBS, WALL) else f"{tres}={self.most}{'M' if tres == 'mem' else ''}"
        )
        subject = f"QOS {scope[1]}" if scope[0] == "qos" else f"{scope[0]} {'/'.join(scope[1:])}"
        return f"{self.column}={amount} of {subject}"

    @property
    def together(self) -> bool:
        """True if the limit is on what jobs have together."""
        return self.id.kind in TOGETHER

    def is_meant_by(self, reason: str) -> bool:
        """True if this is a limit that Slurm may mean by the reason of a waiting job."""
        if not self.in_force or not self.together or _OVER_TIME.search(reason):
            return False
        of_qos = self.id.scope[0] == "qos"
        word = _WORDS.get(self.id.tres, "GRES")
        match self.id.kind:
            case LimitKind.GROUP:
                return reason.startswith(("QOSGrp" if of_qos else "AssocGrp") + word)
            case LimitKind.USER if of_qos:
                return reason.startswith(f"QOSMax{word}") and "PerUser" in reason
            case LimitKind.USER:
                return reason == "AssocMaxJobsLimit"
            case _:
                return f"Max{word}" in reason and "PerAccount" in reason


@dataclass(frozen=True, slots=True)
class Holder:
    """An association or a QOS: what can have limits."""

    row: Row
    amounts: Mapping[str, Mapping[str, int]]
    """Its limits by column and TRES."""

    @classmethod
    def of(cls, row: Row) -> Holder:
        """Read the limits of a row."""
        return cls(row, {column: found for column in _COLUMNS if (found := amounts_of(row, column))})


@dataclass
class AccountLimits:
    """Associations and QOS of a cluster."""

    associations: Mapping[tuple[str, str, str], Holder] = field(default_factory=dict)
    """By account, user and partition; empty without a user or partition."""
    qos: Mapping[str, Holder] = field(default_factory=dict)
    partitions: Mapping[str, SlurmPartition] = field(default_factory=dict)
    _by_qos: dict[tuple[str, str, str], tuple[Limit, ...]] = field(default_factory=dict)
    _by_association: dict[tuple[str, str, str], tuple[Limit, ...]] = field(default_factory=dict)

    def payer(self, record: Record) -> Payer:
        """What decides about the limits of a job; of several partitions the first with limits of its own."""
        account, user = str(record.get("account") or ""), str(record.get("user_name") or "")
        qos = str(record.get("qos") or "")
        found = list(dict.fromkeys(self._places(account, user, words(record.get("partition")))))
        place, partition_qos = next((each for each in found if any(each)), ("", ""))
        return Payer(account, user, place, qos, partition_qos)

    def _places(self, account: str, user: str, names: list[str]) -> Iterator[tuple[str, str]]:
        for name in names:
            partition = self.partitions.get(name)
            own = name if (account, user, name) in self.associations else ""
            yield own, partition.own_qos if partition else ""

    def payers(self) -> Iterator[Payer]:
        """All that may be, by the associations of users and the QOS that they allow."""
        own_qos = sorted({each.own_qos for each in self.partitions.values()} or {""})
        for (account, user, partition), holder in self.associations.items():
            if user:
                allowed = words(holder.row.get("QOS")) or [*self.qos, ""]
                for qos in allowed:
                    for of_partition in own_qos:
                        yield Payer(account, user, partition, qos, of_partition)

    def of(self, payer: Payer) -> Iterator[Limit]:
        """All limits that a job counts for, in force or not."""
        taken: set[tuple[LimitKind, str]] = set()
        for limits in self._levels(payer):
            for limit in limits:
                _, kind, tres = limit.id
                if (kind, tres) not in taken:
                    yield limit
                elif kind in TOGETHER:
                    yield Limit(limit.id, limit.most, limit.column, in_force=False)
            taken.update(limit.id[1:] for limit in limits)

    def _levels(self, payer: Payer) -> Iterator[tuple[Limit, ...]]:
        """Limits of the QOS that comes first, of the other, and of the association with what is above it."""
        names = [payer.partition_qos, payer.qos]
        flags = self.qos[payer.qos].row.get("Flags", "").upper() if payer.qos in self.qos else ""
        if "OVERPARTQOS" in flags or "OVERRIDE_PARTITION_QOS" in flags:
            names.reverse()
        for name in dict.fromkeys(names):
            if name in self.qos:
                yield self._of_qos(name, payer.user, payer.account)
        if payer.account:
            yield self._of_association(*payer[:3])

    def _of_qos(self, name: str, user: str, account: str) -> tuple[Limit, ...]:
        if (key := (name, user, account)) not in self._by_qos:
            scopes = {
                LimitKind.USER: ("qos", name, "user", user),
                LimitKind.ACCOUNT: ("qos", name, "account", account),
            }
            self._by_qos[key] = tuple(
                limit
                for column, amounts in self.qos[name].amounts.items()
                for limit in _limits(scopes.get(_COLUMNS[column], ("qos", name)), column, amounts)
            )
        return self._by_qos[key]

    def _of_association(self, account: str, user: str, partition: str) -> tuple[Limit, ...]:
        if (key := (account, user, partition)) not in self._by_association:
            own = ("user", account, user, *([partition] if partition else []))
            above = list(self._upwards(key, own))
            self._by_association[key] = (*_of_groups(above), *_of_user(own, [each for _, each in above]))
        return self._by_association[key]

    def _upwards(
        self, key: tuple[str, str, str], own: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Holder]]:
        """The association of a job and the accounts above it, lowest first."""
        if key in self.associations:
            yield own, self.associations[key]
        above, seen = key[0], set[str]()
        while above not in seen and (holder := self.associations.get((above, "", ""))):
            seen.add(above)
            yield ("account", above), holder
            above = holder.row.get("ParentName", "")


def _of_groups(above: list[tuple[tuple[str, ...], Holder]]) -> Iterator[Limit]:
    """Limits on what all jobs of an association and those below it have together."""
    for scope, holder in above:
        for column in _GROUP:
            yield from _limits(scope, column, holder.amounts.get(column, {}))


def _of_user(own: tuple[str, ...], above: list[Holder]) -> Iterator[Limit]:
    """Limits of each user, which the nearest account with one sets."""
    for column in _OF_USER:
        nearest: dict[str, int] = {}
        for holder in above:
            nearest = {**holder.amounts.get(column, {}), **nearest}
        yield from _limits(own, column, nearest)


def _limits(scope: tuple[str, ...], column: str, amounts: Mapping[str, int]) -> Iterator[Limit]:
    for tres, most in amounts.items():
        yield Limit(LimitId(scope, _COLUMNS[column], tres), most, column)


def limits_of(
    associations: str,
    qos: str,
    partitions: Mapping[str, SlurmPartition],
    settings: Mapping[str, str],
    cluster: str,
    note: Callable[[str, str], None],
) -> AccountLimits:
    """
    The limits that Slurm keeps, from `sacctmgr --parsable2 show associations` and `show qos`.

    With settings that say that it keeps none, there are none.
    """
    if not keeps_limits(settings):
        return AccountLimits()
    if not associations and "AccountingStorageEnforce" in settings:
        note("accounts", "Slurm keeps limits, and they were not read (association.txt, qos.txt): no quotas")
    rows = list(association_rows(associations))
    if len({row.get("Cluster") for row in rows}) > 1:
        rows = [row for row in rows if name_of(row.get("Cluster", "")) == cluster]
    found = {(row["Account"], row.get("User", ""), row.get("Partition", "")): row for row in rows}
    by_name = {row["Name"]: row for row in qos_rows(qos)}
    for (account, user, _), row in found.items():
        _note_totals(f"user {account}/{user}" if user else f"account {account}", row, note)
    for name, row in by_name.items():
        _note_totals(f"QOS {name}", row, note)
    return AccountLimits(
        {key: Holder.of(row) for key, row in found.items()},
        {name: Holder.of(row) for name, row in by_name.items()},
        partitions,
    )


def keeps_limits(settings: Mapping[str, str]) -> bool:
    """True unless the settings of a cluster say that it does not enforce limits."""
    said = settings.get("AccountingStorageEnforce")
    return said is None or not _ENFORCED.isdisjoint(words(said.lower()))


def _note_totals(subject: str, row: Row, note: Callable[[str, str], None]) -> None:
    if found := [f"{column}={row[column]}" for column in TOTALS if column in row]:
        note(subject, f"its limits {', '.join(found)} are not planned: jobs that wait for them are held")


def taken_by(record: Record, *, running: bool) -> dict[str, int]:
    """What a job, or each task of an array, takes of the limits, by TRES; memory in MiB."""
    text = (record.get("tres_alloc_str") if running else None) or record.get("tres_req_str")
    return {**tres_of(text), JOBS: 1}


def objections(limits: tuple[Limit, ...], record: Record, nodes: int) -> Iterator[str]:
    """What keeps a job from a start as long as neither it nor its limits are changed."""
    amounts, minutes = taken_by(record, running=False), number(record.get("time_limit"))
    for limit in limits:
        amount, most = amounts.get(limit.id.tres, 0), limit.most
        match limit.id.kind:
            case LimitKind.JOB:
                beyond = amount > most
            case LimitKind.NODE:
                beyond = -(-amount // nodes) > most
            case LimitKind.MINUTES:
                beyond = amount > 0 and (minutes is None or amount * minutes > most)
            case LimitKind.WALL:
                beyond = minutes is None or minutes > most
            case LimitKind.LEAST:
                beyond = amount < most
            case _:
                beyond = amount > most and limit.in_force
        if beyond:
            yield f"the limit {limit.text} does not allow it"


def is_refused(reason: str, limits: tuple[Limit, ...]) -> bool:
    """True if Slurm does not start a job for this reason, and a plan cannot tell when it does."""
    if _OF_LIMIT.match(reason):
        return not any(limit.is_meant_by(reason) for limit in limits)
    return reason in _OTHERS
