"""
Reservations of a Slurm cluster: nodes that are closed to all jobs but those that name the reservation.

In a snapshot the owners of a reservation are the jobs with its label: pending jobs that name it, and running
jobs that Slurm lets stay on its nodes. Flags: man page of scontrol, Slurm 22.05 to 26.05. That a job starts
only if it ends within its reservation was tried on 22.05.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.calendar import Recurring, Reservation, ReservationKind
from gpuplan.planner.sources.slurm.cluster.nodes import NODE_LABEL
from gpuplan.planner.sources.slurm.values import fields_of, flags, hosts, name_of, number, words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuplan.planner.sources.slurm.job_request import JobReading
    from gpuplan.planner.sources.slurm.values import Record

RESERVATION_LABEL: Final = "slurm/reservation."
FENCE_PREFIX: Final = "gpuplan"
"""Names of reservations that keep nodes for the jobs of a plan while it is carried out begin so."""
NOTICE_PREFIX: Final = "gpuplan_notice_"
"""Those of nodes that are lost or serviced (`gpuplan event slurm`) begin so."""

_WITHOUT_EFFECT: Final = frozenset(
    {
        *("MAINT", "IGNORE_JOBS", "OVERLAP", "SPEC_NODES", "ALL_NODES", "PURGE", "PURGE_COMP", "STATIC"),
        *("STATIC_ALLOC", "USER_DEL", "USER_DELETE", "NO_HOLD_JOBS", "NO_HOLD_JOBS_AFTER_END", "FIRST_CORES"),
        *("ANY_NODES", "FLEX", "MAGNETIC", "DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY", "SKIP"),
        *("FORCE_START",),
    }
)
"""Flags that are read, or that change nothing about which jobs may be where."""

_CRON: Final = {
    "HOURLY": "{minute} * * * *",
    "DAILY": "{minute} {hour} * * *",
    "WEEKLY": "{minute} {hour} * * {day}",
}
_LONGEST: Final = 100 * 365 * 24 * 3600
"""Seconds that a reservation may last in a snapshot."""
_OTHER_DAYS: Final = frozenset({"WEEKDAY", "WEEKEND"})


@dataclass(frozen=True)
class SlurmReservation:
    """A reservation as Slurm tells it."""

    name: str
    begins: int
    """Seconds since 1970, as is `ends`."""
    ends: int
    nodes: tuple[str, ...]
    flags: frozenset[str]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    in_part: bool = False
    """True if it is for some cores of its nodes, or for other things than whole nodes."""

    @property
    def is_fence(self) -> bool:
        """True if a plan made it."""
        return self.name.startswith(FENCE_PREFIX) and not self.is_notice

    @property
    def is_notice(self) -> bool:
        """True if it is for a notice: no job may be there."""
        return self.name.startswith(NOTICE_PREFIX)

    @property
    def label(self) -> str:
        """Label of the jobs that may use its nodes."""
        return f"{RESERVATION_LABEL}{name_of(self.name)}"

    @cached_property
    def members(self) -> frozenset[str]:
        """Its nodes, as a set."""
        return frozenset(self.nodes)

    def attracts(self, user: str, account: str) -> bool:
        """True if jobs of a user and account are in it without naming it."""
        return "MAGNETIC" in self.flags and all(
            not listed or mine in listed for listed, mine in ((self.users, user), (self.accounts, account))
        )


def reservations_of(text: str) -> list[SlurmReservation]:
    """
    All reservations, from `scontrol --oneliner show reservation` or JSON of slurmrestd.

    Times in the text are seconds since 1970 (`SLURM_TIME_FORMAT=%s`), or local ones of this machine.
    """
    if text.lstrip().startswith("{"):
        return [_from_json(each) for each in json.loads(text).get("reservations") or []]
    lines = (line for line in text.splitlines() if "ReservationName=" in line)
    return [_from_text(fields_of(line), "CoreIDs=" in line) for line in lines]


def _from_text(fields: Mapping[str, str], in_part: bool) -> SlurmReservation:
    return SlurmReservation(
        name=fields["ReservationName"],
        begins=_seconds(fields["StartTime"]),
        ends=_seconds(fields["EndTime"]),
        nodes=tuple(hosts(fields.get("Nodes"))),
        flags=flags(words(fields.get("Flags"))),
        users=tuple(words(fields.get("Users"))),
        accounts=tuple(words(fields.get("Accounts"))),
        in_part=in_part,
    )


def _from_json(record: Record) -> SlurmReservation:
    def count(key: str) -> int:
        value = record.get(key)
        return number(value) or 0

    return SlurmReservation(
        name=str(record["name"]),
        begins=count("start_time"),
        ends=count("end_time"),
        nodes=tuple(hosts(record.get("node_list"))),
        flags=flags(words(record.get("flags"))),
        users=tuple(words(record.get("users"))),
        accounts=tuple(words(record.get("accounts"))),
        in_part=any(each.get("core") for each in record.get("core_specializations") or []),
    )


def _seconds(text: str) -> int:
    return int(text) if text.isdigit() else int(datetime.fromisoformat(text).astimezone().timestamp())


def calendar_of(
    reservations: Iterable[SlurmReservation],
    known: Collection[str],
    now: datetime,
    note: Callable[[str, str], None],
) -> tuple[Reservation, ...]:
    """Reservations of a snapshot that has the `known` nodes, without fences and those that are over."""
    found = []
    for each in reservations:
        subject = f"reservation {each.name}"
        if each.is_fence or each.ends <= now.timestamp():
            continue
        nodes = [name_of(name) for name in each.nodes if name_of(name) in known]
        if len(nodes) < len(each.nodes):
            note(subject, f"{len(each.nodes) - len(nodes)} of its {len(each.nodes)} nodes are not visible")
        if not nodes:
            note(subject, "it names no nodes that are there, and closes none")
            continue
        if each.in_part:
            note(subject, "it is for some cores of its nodes: the whole nodes are closed to other jobs")
        if unread := sorted(each.flags - _WITHOUT_EFFECT):
            note(subject, f"its flags {', '.join(unread)} are not read")
        found.append(Reservation(nodes=tuple(nodes), **_purpose(each), **_times(each, now, note)))
    return tuple(found)


def _purpose(each: SlurmReservation) -> dict[str, Any]:
    if each.is_notice:
        name = name_of(each.name.removeprefix(NOTICE_PREFIX))
        return {"name": name, "kind": ReservationKind.MAINTENANCE}
    return {"name": name_of(each.name), "job_labels": {each.label: "true"}}


def lost_nodes(reservations: Iterable[SlurmReservation], now: datetime) -> frozenset[str]:
    """Nodes with a notice that they do not come back: their jobs should leave."""
    prefix = f"{NOTICE_PREFIX}spot-notice-"
    notices = (each for each in reservations if each.name.startswith(prefix) and each.ends > now.timestamp())
    return frozenset(name_of(node) for each in notices for node in each.nodes)


def _times(each: SlurmReservation, now: datetime, note: Callable[[str, str], None]) -> dict[str, Any]:
    begins = _instant(max(each.begins, each.ends - _LONGEST))
    duration = each.ends - int(begins.timestamp())
    once: dict[str, Any] = {"start": begins, "duration": duration}
    if each.flags & _OTHER_DAYS:
        note(f"reservation {each.name}", "it recurs: only its next time is read")
    for flag in sorted(each.flags & _CRON.keys()):
        cron = _CRON[flag].format(minute=begins.minute, hour=begins.hour, day=begins.isoweekday() % 7)
        # Lines of cron begin at whole minutes.
        late = begins.second
        found = {"cron": cron, "duration": duration + late}
        # The one before may end in the minute of `late` seconds.
        first = islice(Recurring(**found).spans(now, _LONGEST), 2)
        if any(abs((begins - now).total_seconds() - begin - late) < 60 for begin, _ in first):
            return found
        note(f"reservation {each.name}", "it recurs: only its next time is read")
    return once


def active_nodes(reservations: Iterable[SlurmReservation], now: datetime) -> frozenset[str]:
    """Nodes of reservations that have begun, fences too: their state RESERVED says nothing new."""
    begun = (each for each in reservations if each.begins <= now.timestamp() < each.ends)
    return frozenset(node for each in begun for node in each.nodes)


@dataclass(frozen=True)
class Reserved:
    """Reservations as jobs refer to them."""

    by_name: Mapping[str, SlurmReservation]
    now: datetime
    """The instant of the snapshot."""

    @cached_property
    def _by_node(self) -> dict[str, list[SlurmReservation]]:
        found: dict[str, list[SlurmReservation]] = {}
        for each in self.by_name.values():
            if not each.is_fence and not each.is_notice:
                for node in each.nodes:
                    found.setdefault(node, []).append(each)
        return found

    @cached_property
    def _magnetic(self) -> list[SlurmReservation]:
        return [each for each in self.by_name.values() if "MAGNETIC" in each.flags and not each.is_fence]

    def of_pending(self, reading: JobReading, document: dict[str, Any]) -> None:
        """Add to the document of a pending job what its reservations say."""
        user, account = reading.text("user_name"), reading.text("account")
        for each in self._magnetic:
            if each.attracts(user, account):
                document["labels"][each.label] = "true"
        # A plan that puts a job into its fence must not change what the job is.
        names = [each for each in words(reading.record.get("resv_name")) if not each.startswith(FENCE_PREFIX)]
        named = [self.by_name[name] for name in names if name in self.by_name]
        if absent := [name for name in names if name not in self.by_name]:
            reading.strange.append(f"it names reservation {', '.join(absent)}, which is not there")
        if not named:
            return
        document["labels"] |= {each.label: "true" for each in named}
        if all("FLEX" in each.flags for each in named):
            return
        nodes = sorted(frozenset[str]().union(*(each.members for each in named)))
        if not nodes:
            reading.strange.append(f"its reservation {', '.join(names)} has no nodes")
            return
        document["affinity"].append({"key": NODE_LABEL, "operator": "In", "values": nodes})
        # Of several reservations with different times, the time that all of them have.
        begins = _instant(max(each.begins for each in named))
        ends = _instant(min(each.ends for each in named))
        document["not_before"] = max(document["not_before"] or begins, begins)
        if document["not_before"] <= document["submitted_at"]:
            document["not_before"] = None
        own = document["deadline"]
        document["deadline"] = max(document["submitted_at"], min(own, ends) if own else ends)
        document["hard_deadline"] = True

    def of_running(self, reading: JobReading, document: dict[str, Any]) -> None:
        """Mark a running job with the reservations of its nodes in which it is or may stay."""
        names = words(reading.record.get("resv_name"))
        limit = document["expected_duration"]
        ends = reading.number("start_time") + limit if limit else inf
        if ends <= self.now.timestamp():
            ends = inf  # it is overdue: its end is not known
        on = {
            name: each
            for node in hosts(reading.text("nodes"))
            for each in self._by_node.get(node, ())
            for name in [each.name]
        }
        for name, each in on.items():
            if name not in names and ends <= each.begins:
                continue
            document["labels"][each.label] = "true"
            if name not in names and not each.attracts(reading.text("user_name"), reading.text("account")):
                reading.strange.append(f"it runs on nodes of reservation {name}, where Slurm lets it stay")


def _instant(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
