"""Names of jobs: tasks of arrays, parts of heterogeneous jobs, and the jobs that dependencies name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.dependency import DependencyKind
from gpuplan.planner.sources.slurm.values import flags, indices, number, split_outside_brackets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuplan.planner.sources.slurm.values import Record

HOLDS_PLACES: Final = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"}
)
"""States of jobs that hold nodes."""

_CONDITION: Final = {
    "after": DependencyKind.STARTED,
    "afterok": DependencyKind.SUCCEEDED,
    "afterany": DependencyKind.COMPLETED,
}
_MOST_TASKS: Final = 10_000
"""Pending tasks of one job array that become jobs of their own."""


def targets_of(record: Record) -> Iterator[tuple[str, list[str]]]:
    """
    Ids in a dependency that stand for jobs of a record, each with the names of these jobs.

    An array stands for all its tasks, the first part of a heterogeneous job for all parts. Jobs that are over
    are not there.
    """
    state = flags(record.get("job_state"))
    if not (record.get("nodes") if state & HOLDS_PLACES else "PENDING" in state):
        return
    names = tasks_of(record).names
    groups = {str(number(record.get(key)) or 0) for key in ("job_id", "array_job_id", "het_job_id")}
    for group in groups - {"0"}:
        yield group, names
    for name in names:
        if name not in groups:
            yield name, [name]


def with_exclusive(records: list[Record], text: str) -> list[Record]:
    """
    The records with what a list of ids and values of `--exclusive` tells of them.

    The JSON of Slurm 26.05 has it in no field; earlier versions have it in `shared`, and no such list.
    """
    lines = (line.split() for line in text.splitlines())
    alone = {words[0]: words[1] for words in lines if len(words) == 2 and words[1] not in ("NO", "N/A")}
    if not alone:
        return records
    names = {"NODE": "NONE"}
    return [
        record | {"shared": names.get(value, value)}
        if (value := alone.get(str(number(record.get("job_id")))))
        else record
        for record in records
    ]


def job_name(record: Record) -> str:
    """Name of a job: its id, or `ARRAY_TASK` for a task of a job array, as users see it in squeue."""
    array, task = number(record.get("array_job_id")), number(record.get("array_task_id"))
    if array and record.get("array_task_string"):
        return str(array)
    return str(number(record.get("job_id")) or 0) if not array or task is None else f"{array}_{task}"


@dataclass(frozen=True, slots=True)
class Tasks:
    """The jobs that a record stands for."""

    names: list[str]
    remarks: tuple[str, ...] = ()
    most: int | None = None
    """Tasks of the array that may run at a time."""
    cut_off: bool = False
    """True if the list in the record is not complete."""


def tasks_of(record: Record) -> Tasks:
    """The job of a record, or the pending tasks of a job array."""
    own = job_name(record)
    text = str(record.get("array_task_string") or "").strip("[]")
    if not text:
        return Tasks([own])
    remarks = []
    tasks, _, most = text.partition("%")
    if cut_off := text.endswith("..."):
        tasks = tasks.rstrip(".").rpartition(",")[0]  # the last number may be cut too
    found = [f"{own}_{task}" for each in tasks.split(",") if each for task in _stepped(each)]
    if len(found) > _MOST_TASKS:
        remarks.append(f"of its {len(found):,} tasks the first {_MOST_TASKS:,} are planned")
    limit = number(most) or number(record.get("array_max_tasks")) or None
    return Tasks(found[:_MOST_TASKS] or [own], tuple(remarks), limit, cut_off)


def _stepped(text: str) -> range | tuple[int, ...]:
    """Numbers of a range with a step, such as `0-15:4`."""
    bounds, _, step = text.partition(":")
    first, _, last = bounds.partition("-")
    return range(int(first), int(last) + 1, int(step or 1)) if last else indices(first)


def dependencies(text: str, targets: Mapping[str, Sequence[str]], strange: list[str]) -> dict[str, Any]:
    """
    Dependencies on jobs that are still there; those that are met are not in Slurm's text.

    What of them cannot be expressed is added to `strange`.
    """
    if not text:
        return {}
    any_of = "?" in text
    found: dict[str, DependencyKind] = {}
    for part in split_outside_brackets(text.replace("?", ",")):
        kind, _, jobs = re.sub(r"\(.*\)$", "", part).partition(":")
        if kind not in _CONDITION:
            strange.append(f"its dependency {part} has no counterpart")
            continue
        for each in jobs.split(":"):
            job, _, delay = each.partition("+")
            if delay.strip("0"):
                strange.append(f"its dependency {part} has a delay")
            names = targets.get(job.removesuffix("_*"), ())
            if not names:
                strange.append(f"it depends on job {job}, which is not in the queue")
            if any_of and len(names) > 1:
                strange.append(f"one of its dependencies is {job}, which is several jobs")
            if any(found.get(name, _CONDITION[kind]) != _CONDITION[kind] for name in names):
                strange.append(f"it depends on job {job} in two ways")
            found |= dict.fromkeys(names, _CONDITION[kind])
    listed = [{"job": name, "kind": kind} for name, kind in found.items()]
    return {"depends_on": listed, "depends_on_at_least": 1 if any_of and listed else None}
