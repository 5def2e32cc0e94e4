"""Read a Slurm cluster: by its commands, which every user may run, or from files with their output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuplan.models.cluster import Cluster
from gpuplan.models.errors import BadInputError, InputProblem, PlannerError
from gpuplan.models.job import HIGHEST_PRIORITY
from gpuplan.models.plan.action_kinds import CHANGING_KINDS, ActionKind
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.slurm.job_names import targets_by_id
from gpuplan.planner.sources.slurm.jobs import (
    JOB_FIELDS,
    Around,
    allocation_of,
    holds_places,
    jobs_of,
)
from gpuplan.planner.sources.slurm.managed import ManagedJobs
from gpuplan.planner.sources.slurm.nodes import NODE_FIELDS, node_of, racks_of, without_reservation
from gpuplan.planner.sources.slurm.use import held_once, in_use
from gpuplan.planner.sources.slurm.values import name_of, number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from gpuplan.planner.sources.slurm.managed import Notice
    from gpuplan.planner.sources.slurm.values import Record

_Read = TypeVar("_Read")

_FEWEST_FIELDS: Final = 3
"""Fields that records of jobs, nodes and allocations at least have; cores have fewer."""

SLURM_CAN: Final = tuple(
    kind
    for kind in CHANGING_KINDS
    if kind not in (ActionKind.GROW, ActionKind.SHRINK, ActionKind.REPARTITION)
)
"""
Kinds of action that Slurm carries out by its commands. A running job keeps its size, since its steps would
have to be started anew; MIG instances are of `gres.conf` and of the driver.
"""

_TIMEOUT: Final = 60
"""Seconds that one command of Slurm may take; a busy controller with 50,000 jobs answers in a few."""


@dataclass(frozen=True, slots=True)
class SlurmTexts:
    """Output of Slurm's commands."""

    nodes: bytes
    """JSON with the node records."""
    jobs: bytes
    """JSON of `squeue --json`."""
    partitions: str
    """Text of `scontrol --all --oneliner show partition`."""
    topology: str
    """Text of `scontrol --oneliner show topology`."""
    taken_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SlurmReading:
    """A snapshot, and what of the cluster is not expressed in it."""

    snapshot: Snapshot
    notes: tuple[str, ...]
    """One line for each job or node of which something is not understood."""
    managed: Mapping[str, Notice | None] = field(default_factory=dict)
    """The jobs that are handed to gpuplan, if asked for, with the signal that they get before a stop."""


FILES: Final = {
    "nodes": ("nodes.json", "scontrol --all show nodes --json  (Slurm 22.05: sinfo --all --json)"),
    "jobs": ("jobs.json", "SLURM_BITSTR_LEN=0 squeue --all --json"),
    "partitions": ("partition.txt", "scontrol --all --oneliner show partition"),
    "topology": ("topology.txt", "scontrol --oneliner show topology"),
}
"""Files of a folder, with the command that writes each of them."""


def read_slurm_files(folder: Path, *, managed: bool = False) -> SlurmReading:
    """
    Read a folder with the output of Slurm's commands (`FILES`); the two text files may be absent.

    Raises
    ------
    BadInputError
        A file is missing, or is not what the command prints.
    """
    problems = []
    found = dict.fromkeys(FILES, b"")
    for key, (name, command) in FILES.items():
        path = folder / name
        if path.is_file():
            try:
                found[key] = path.read_bytes()
            except OSError as error:
                problems.append(InputProblem(str(path), f"cannot be read: {error.strerror}."))
        elif name.endswith(".json"):
            problems.append(InputProblem(str(path), f"no such file; expected the output of `{command}`."))
    if problems:
        raise BadInputError(tuple(problems))
    partitions, topology = (found[key].decode(errors="replace") for key in ("partitions", "topology"))
    texts = SlurmTexts(found["nodes"], found["jobs"], partitions, topology)
    return read_slurm(texts, where=lambda key: str(folder / FILES[key][0]), managed=managed)


def read_slurm_live(*, managed: bool = False, fenced: Collection[str] = ()) -> SlurmReading:
    """
    Read the cluster that the commands of this machine speak to.

    With `managed` only the jobs that are handed to gpuplan may start or be disturbed. Nodes that are `fenced`
    are reserved by gpuplan itself: they stay open.

    Raises
    ------
    PlannerError
        Slurm's commands are not there, or fail.
    """
    if shutil.which("scontrol") is None:
        raise PlannerError(
            "scontrol is not on the PATH; expected Slurm's commands.\n"
            "Run this on a login node, or save their output and read it with `--from slurm-files`."
        )
    nodes = _output("scontrol", "--all", "show", "nodes", "--json", may_fail=True) or _output(
        "sinfo", "--all", "--json"
    )
    return read_slurm(
        SlurmTexts(
            nodes=nodes,
            jobs=_output("squeue", "--all", "--json"),
            partitions=_output("scontrol", "--all", "--oneliner", "show", "partition").decode(
                errors="replace"
            ),
            topology=_output("scontrol", "--oneliner", "show", "topology", may_fail=True).decode(
                errors="replace"
            ),
            taken_at=datetime.now(UTC),
        ),
        where=lambda key: f"output of {FILES[key][1]}",
        managed=managed,
        fenced=fenced,
    )


def read_slurm(
    texts: SlurmTexts, *, where: Callable[[str], str], managed: bool = False, fenced: Collection[str] = ()
) -> SlurmReading:
    """A snapshot of what Slurm's commands print; `where` names the origin of a text in errors."""
    nodes, meta = _records(texts.nodes, "nodes", where("nodes"))
    jobs, _ = _records(texts.jobs, "jobs", where("jobs"))
    notes: set[str] = set()

    def note(subject: str, what: str) -> None:
        notes.add(f"{subject}: {what}")

    racks = racks_of(texts.topology)
    nodes = [without_reservation(each) if each.get("name") in fenced else each for each in nodes]
    found_nodes = [
        node
        for index, record in enumerate(nodes)
        for node in _understood(lambda each: [node_of(each, racks, note)], record, where("nodes"), index)
    ]
    priorities, closed = _partitions(texts.partitions, note)
    largest = (
        max((node.gpu_count for node in found_nodes), default=0),
        max((node.cpu_milli // MILLI for node in found_nodes), default=0),
        max((node.memory_mib for node in found_nodes), default=0),
    )
    for index, record in enumerate(jobs):
        _understood(lambda each: (targets_by_id([each]), _latest([each])), record, where("jobs"), index)
    resources = frozenset(name for node in found_nodes for name in node.resources)
    started = Counter(number(each.get("array_job_id")) or 0 for each in jobs if holds_places(each))
    around = Around(priorities, closed, targets_by_id(jobs), largest, resources, started)
    handed = ManagedJobs()
    read_jobs = handed.jobs_of if managed else jobs_of
    found_jobs = [
        job
        for index, record in enumerate(jobs)
        for job in _understood(lambda each: list(read_jobs(each, around, note)), record, where("jobs"), index)
    ]
    found_jobs = held_once(found_jobs, note)
    found_nodes = in_use(found_nodes, found_jobs, jobs, note)
    latest = _latest(jobs)
    queues = tuple(Queue(name=name) for name in sorted({job.queue for job in found_jobs}))
    snapshot = Snapshot(
        # The clocks of the controller and of this machine may differ.
        taken_at=max(latest, texts.taken_at or latest),
        cluster=Cluster(name=name_of(_name(meta, jobs)), nodes=tuple(found_nodes), can=SLURM_CAN),
        queues=queues,
        jobs=tuple(found_jobs),
    )
    return SlurmReading(snapshot.canonical(), tuple(sorted(notes)), handed.notices)


def _understood(read: Callable[[Record], _Read], record: Record, where: str, index: int) -> _Read:
    """What is read from a record; a value of another type or size than Slurm writes is bad input."""
    try:
        return read(record)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        subject = record.get("name") if "job_id" not in record else f"job {record['job_id']}"
        message = f"record {index} ({subject}) is not what Slurm writes: {error}."
        raise BadInputError((InputProblem(where, message),)) from None


def _records(text: bytes, key: str, where: str) -> tuple[list[Record], Record]:
    """The records under a key of Slurm's JSON, and its `meta`."""
    try:
        # Slurm writes the bytes of a job's name as they are.
        document = json.loads(text.decode(errors="replace"), object_hook=_read_fields)
    except ValueError as error:
        raise BadInputError((InputProblem(where, f"expected Slurm's JSON, found {error}."),)) from None
    records = document.get(key) if isinstance(document, dict) else None
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        found = ", ".join(document) if isinstance(document, dict) else type(document).__name__
        problem = InputProblem(where, f"expected a list of records under `{key}`, found {found}.")
        raise BadInputError((problem,))
    failed = [str(each.get("description") or each.get("error") or each) for each in _errors(document)]
    if failed:
        problem = InputProblem(where, f"Slurm reports errors: {'; '.join(failed)}.")
        raise BadInputError((problem,))
    identity = {"nodes": "name", "jobs": "job_id"}[key]
    if strange := [index for index, each in enumerate(records) if not each.get(identity)]:
        problem = InputProblem(
            where, f"expected `{identity}` in each record, found none in {key}[{strange[0]}]."
        )
        raise BadInputError((problem,))
    return records, document.get("meta") or {}


def _errors(document: Record) -> list[Record]:
    return [each for each in document.get("errors") or [] if isinstance(each, dict)]


def _read_fields(found: Record) -> Record | int | None:
    """
    An object of the JSON: a number as such, a record of a job or node reduced to the fields that are read.

    A record of a job may have thousands of objects, one a core, and need ten times the memory of its text.
    """
    if "set" in found and "number" in found:
        # As `number` does, without a call for each of millions.
        return int(found["number"]) if found["set"] and not found.get("infinite") else None
    if len(found) < _FEWEST_FIELDS:
        return found
    if "job_state" in found:
        return {field: found[field] for field in JOB_FIELDS if field in found}
    if "real_memory" in found:
        return {field: found[field] for field in NODE_FIELDS if field in found}
    return allocation_of(found) or found


def _partitions(partitions: str, note: Callable[[str, str], None]) -> tuple[dict[str, int], dict[str, str]]:
    """Priority of each partition, which is its tier; and the state of those that start no jobs."""
    tiers, closed = {}, {}
    for line in partitions.splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        name = fields.get("PartitionName")
        if name is None:
            continue
        if fields.get("PriorityTier", "").isdigit():
            tiers[name] = int(fields["PriorityTier"])
        if (state := fields.get("State", "UP")) in ("DOWN", "INACTIVE"):
            closed[name] = state
    if max(tiers.values(), default=0) > HIGHEST_PRIORITY:
        note("partitions", f"tiers above {HIGHEST_PRIORITY:,}: priorities are their ranks")
        ranks = {tier: rank for rank, tier in enumerate(sorted(set(tiers.values())))}
        tiers = {name: ranks[tier] for name, tier in tiers.items()}
    return tiers, closed


def _name(meta: dict[str, Any], jobs: Iterable[dict[str, Any]]) -> str:
    named = (meta.get("slurm") or {}).get("cluster") or next((job.get("cluster") for job in jobs), "")
    return str(named or "slurm")


def _latest(jobs: Iterable[dict[str, Any]]) -> datetime:
    """The latest time in saved job records, which is close to that of the saving."""
    times = [number(job.get(key)) or 0 for job in jobs for key in ("submit_time", "last_sched_evaluation")]
    times += [number(job.get("start_time")) or 0 for job in jobs if holds_places(job)]
    return datetime.fromtimestamp(max(times, default=0), tz=UTC)


def _output(*command: str, may_fail: bool = False) -> bytes:
    """Standard output of a command of Slurm."""
    environment = os.environ | {"SLURM_BITSTR_LEN": "0"}  # lists of array tasks in full
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlannerError(f"`{' '.join(command)}` failed: {error}.\nTry it by hand.") from None
    if done.returncode == 0:
        return done.stdout
    if may_fail:
        return b""
    said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
    raise PlannerError(f"`{' '.join(command)}` failed: {said}\nTry it by hand.")
