"""
Rows of associations and QOS, of `sacctmgr --parsable2` or slurmrestd, with sacctmgr's names of columns.

Paths of slurmrestd: its schemas v0.0.38 (Slurm 22.05) to v0.0.46 (26.05). Limits on submission are left out:
jobs in the queue have passed them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.planner.sources.slurm.values import minutes_of, number, tres_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.planner.sources.slurm.values import Record

Row: TypeAlias = "dict[str, str]"

JOBS: Final = "jobs"
"""What limits on numbers of jobs count; others count a TRES."""
WALL: Final = "minutes"
"""What limits on the time limit of a job count."""

TOTALS: Final = ("GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA")
"""Limits on what has been used, or is promised to running jobs, over time: they are not planned."""

_TEXTS: Final = {
    "cluster": "Cluster",
    "account": "Account",
    "user": "User",
    "partition": "Partition",
    "parent_account": "ParentName",
    "name": "Name",
    "flags": "Flags",
    "qos": "QOS",
}
"""Columns that are no limits, by the fields of slurmrestd."""
_OF_ASSOCIATION: Final = {
    "tres.total": "GrpTRES",
    "tres.group.minutes": "GrpTRESMins",
    "tres.group.active": "GrpTRESRunMins",
    "jobs.per.count": "GrpJobs",
    "per.account.wall_clock": "GrpWall",
    "tres.per.job": "MaxTRES",
    "tres.per.node": "MaxTRESPerNode",
    "tres.minutes.per.job": "MaxTRESMins",
    "jobs.active": "MaxJobs",
    "jobs.per.wall_clock": "MaxWall",
}
_OF_QOS: Final = {
    "tres.total": "GrpTRES",
    "tres.minutes.total": "GrpTRESMins",
    "tres.minutes.per.qos": "GrpTRESRunMins",
    "tres.minutes.per.user": "MaxTRESRunMinsPU",
    "tres.minutes.per.account": "MaxTRESRunMinsPA",
    "active_jobs.count": "GrpJobs",
    "wall_clock.per.qos": "GrpWall",
    "tres.per.job": "MaxTRES",
    "tres.per.node": "MaxTRESPerNode",
    "tres.minutes.per.job": "MaxTRESMins",
    "wall_clock.per.job": "MaxWall",
    "tres.per.user": "MaxTRESPU",
    "tres.per.account": "MaxTRESPA",
    "jobs.active_jobs.per.user": "MaxJobsPU",
    "jobs.active_jobs.per.account": "MaxJobsPA",
}
_OF_QOS_22_05: Final = {"jobs.per.user": "MaxJobsPU", "jobs.per.account": "MaxJobsPA"}
"""Where v0.0.38 writes them; later versions have limits on submission there. Tried on 22.05."""


def association_rows(text: str) -> Iterator[Row]:
    """The associations: of accounts, and of their users."""
    if not _is_json(text):
        yield from _table(text)
        return
    for record in json.loads(text).get("associations") or []:
        yield _texts_of(record) | _limits_of(record, _OF_ASSOCIATION)


def qos_rows(text: str) -> Iterator[Row]:
    """The QOS."""
    if not _is_json(text):
        yield from _table(text)
        return
    document = json.loads(text)
    old = "QOS" in document
    for record in document.get("QOS" if old else "qos") or []:
        yield _texts_of(record) | _limits_of(
            record.get("limits") or {}, _OF_QOS | (_OF_QOS_22_05 if old else {})
        )


def amounts_of(row: Mapping[str, str], column: str) -> dict[str, int]:
    """What a limit allows, by TRES, or under `JOBS` or `WALL`; empty without a limit."""
    text = row.get(column, "")
    if column == "MaxWall":
        return {} if (minutes := minutes_of(text)) is None else {WALL: minutes}
    if column.startswith(("GrpJobs", "MaxJobs")):
        return {JOBS: int(text)} if text else {}
    return dict(tres_of(text))


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _table(text: str) -> Iterator[Row]:
    """Lines with `|` between columns, the first with their names; values that are not set are left out."""
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    for cells in lines[1:]:
        yield {name: cell for name, cell in zip(lines[0], cells, strict=False) if cell}


def _texts_of(record: Record) -> Row:
    found = {column: ",".join(words(record.get(key))) for key, column in _TEXTS.items()}
    return {column: text for column, text in found.items() if text}


def _limits_of(record: Record, columns: Mapping[str, str]) -> Row:
    """The limits of a record that are set, with sacctmgr's names of columns."""
    found = {columns[path]: text for path, text in _leaves(record.get("max")) if path in columns}
    least = dict(_leaves((record.get("min") or {}).get("tres"))).get("per.job")
    return found | ({"MinTRES": least} if least else {})


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Numbers and lists of TRES that are set, with their paths."""
    if isinstance(value, list):
        names = ("/".join(each[key] for key in ("type", "name") if each.get(key)) for each in value)
        counts = (number(each.get("count")) for each in value)
        if value:
            yield path, ",".join(f"{name}={count}" for name, count in zip(names, counts, strict=True))
    elif isinstance(value, dict) and "number" not in value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}".lstrip("."))
    elif (count := number(value)) is not None:
        yield path, str(count)
