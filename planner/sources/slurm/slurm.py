"""Read a Slurm cluster: by its commands, which every user may run, or from files with their output."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuplan.models.cluster import Cluster
from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.slurm.accounts.limits import limits_of
from gpuplan.planner.sources.slurm.accounts.quotas import QuotaTree, admitted, without_limit
from gpuplan.planner.sources.slurm.cluster.nodes import (
    FEATURES_LABEL,
    NODE_FIELDS,
    PARTITIONS_LABEL,
    all_of,
    node_of,
    racks_of,
)
from gpuplan.planner.sources.slurm.cluster.partitions import (
    partitions_of,
    power_saving_of,
    settings_of,
    weights_of,
    with_pools,
)
from gpuplan.planner.sources.slurm.cluster.reservations import (
    Reserved,
    active_nodes,
    calendar_of,
    lost_nodes,
    reservations_of,
)
from gpuplan.planner.sources.slurm.job_names import targets_of, with_exclusive
from gpuplan.planner.sources.slurm.job_request import JOB_FIELDS
from gpuplan.planner.sources.slurm.jobs import (
    Around,
    allocation_of,
    holds_places,
    jobs_of,
    rank_of,
)
from gpuplan.planner.sources.slurm.managed import ManagedJobs
from gpuplan.planner.sources.slurm.texts import COMMANDS, texts_of_commands, texts_of_folder, told
from gpuplan.planner.sources.slurm.use import held_once, in_use, with_some_gpus
from gpuplan.planner.sources.slurm.values import hosts, name_of, number, words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuplan.models.calendar import Reservation
    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.planner.action_marks import JobSignal
    from gpuplan.planner.sources.slurm.cluster.reservations import SlurmReservation
    from gpuplan.planner.sources.slurm.texts import SlurmTexts
    from gpuplan.planner.sources.slurm.values import Record

_Read = TypeVar("_Read")

_FEWEST_FIELDS: Final = 3
"""Fields that records of jobs, nodes and allocations at least have; cores have fewer."""

NODE_STATES: Final = {
    ActionKind.CORDON: "DRAIN",
    ActionKind.UNCORDON: "RESUME",
    ActionKind.DRAIN: "",
    ActionKind.SCALE_UP: "POWER_UP",
    ActionKind.SCALE_DOWN: "POWER_DOWN",
}
"""State that Slurm is asked for by each kind of action about nodes; empty if a node is only looked at."""

_CAN_WITH_JOBS: Final = (ActionKind.RELEASE, ActionKind.START, ActionKind.MIGRATE, ActionKind.PREEMPT)

SLURM_CAN: Final = tuple(kind for kind in ActionKind if kind in _CAN_WITH_JOBS or kind in NODE_STATES)
"""
Kinds of action that Slurm carries out by its commands. A running job keeps its size, since its steps would
have to be started anew; MIG instances are of `gres.conf` and of the driver.
"""


@dataclass(frozen=True, slots=True)
class SlurmReading:
    """A snapshot, and what of the cluster is not expressed in it."""

    snapshot: Snapshot
    notes: tuple[str, ...]
    """One line for each job or node of which something is not understood."""
    managed: Mapping[str, JobSignal | None] = field(default_factory=dict)
    """The jobs that are handed to gpuplan, if asked for, with the signal that they get before a stop."""
    fences: tuple[SlurmReservation, ...] = ()
    """Reservations that plans have made; they are no part of the snapshot."""


def read_slurm_files(folder: Path, *, managed: bool = False) -> SlurmReading:
    """
    Read a folder with the output of Slurm's commands (`COMMANDS`).

    Raises
    ------
    BadInputError
        A file is missing, or is not what the command prints.
    """
    texts = texts_of_folder(folder)
    return read_slurm(texts, where=lambda key: str(folder / COMMANDS[key][0]), managed=managed)


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
    return read_slurm(
        texts_of_commands(), where=lambda key: f"output of {told(key)}", managed=managed, fenced=fenced
    )


def read_slurm(
    texts: SlurmTexts, *, where: Callable[[str], str], managed: bool = False, fenced: Collection[str] = ()
) -> SlurmReading:
    """A snapshot of what Slurm's commands print; `where` names the origin of a text in errors."""
    nodes, meta = _records(texts.nodes, "nodes", where("nodes"))
    jobs, _ = _records(texts.jobs, "jobs", where("jobs"))
    jobs = with_exclusive(jobs, texts.exclusive)
    notes: set[str] = set()

    def note(subject: str, what: str) -> None:
        notes.add(f"{subject}: {what}")

    targets, now = _survey(jobs, where("jobs"))
    # The clocks of the controller and of this machine may differ.
    now = max(now, texts.taken_at or now)
    settings = _text(lambda: settings_of(texts.config), where("config"))
    cluster = name_of(settings.get("ClusterName") or _name(meta, jobs))
    partitions = _text(lambda: partitions_of(texts.partitions, note), where("partitions"))
    reservations = _text(lambda: reservations_of(texts.reservations), where("reservations"))
    reserved = Reserved({each.name: each for each in reservations}, now)
    found_nodes = list(
        _nodes(
            nodes, texts.topology, active_nodes(reservations, now) | frozenset(fenced), where("nodes"), note
        )
    )
    label_sets = {
        FEATURES_LABEL: _sets(nodes, "active_features"),
        PARTITIONS_LABEL: _sets(nodes, "partitions"),
    }
    limits = _text(
        lambda: limits_of(texts.associations, texts.qos, partitions, settings, cluster, note),
        where("associations"),
    )
    quotas = QuotaTree(limits, map(limits.payer, jobs))
    around = Around(
        partitions=partitions,
        reserved=reserved,
        limits=limits,
        quotas=quotas,
        # Jobs that are handed over are held, so Slurm has no order of them. And the weight of a job depends
        # on the others, which may come and go between a plan and its apply.
        weights={} if managed else weights_of(rank_of(record, partitions) for record in jobs),
        label_sets=label_sets,
        targets=targets,
        largest=_largest(found_nodes),
        resources=frozenset(name for node in found_nodes for name in node.resources),
        started=Counter(number(each.get("array_job_id")) or 0 for each in jobs if holds_places(each)),
    )
    handed = ManagedJobs()
    read_jobs = handed.jobs_of if managed else jobs_of
    found_jobs = admitted(list(_jobs(jobs, read_jobs, around, where("jobs"), note)), limits, quotas, note)
    found_jobs = held_once(with_some_gpus(found_jobs, found_nodes), note)
    lost = lost_nodes(reservations, now)
    found_nodes = [
        node.model_copy(update={"drain": True}) if node.name in lost else node for node in found_nodes
    ]
    calendar = calendar_of(reservations, {node.name for node in found_nodes}, now, note)
    found_nodes = in_use(found_nodes, found_jobs, jobs, note)
    saving = _text(lambda: power_saving_of(texts.config, note), where("config"))
    found_nodes, pools = with_pools(
        found_nodes, nodes, saving, _named(jobs, reserved), _reserved(calendar), partitions, now
    )
    snapshot = Snapshot(
        taken_at=now,
        cluster=Cluster(
            name=cluster, nodes=tuple(found_nodes), pools=pools, reservations=calendar, can=SLURM_CAN
        ),
        queues=_queues(around, jobs, found_jobs),
        jobs=tuple(found_jobs),
    )
    fences = tuple(each for each in reservations if each.is_fence)
    return SlurmReading(snapshot.canonical(), tuple(sorted(notes)), handed.notices, fences)


def _survey(records: list[Record], where: str) -> tuple[dict[str, list[str]], datetime]:
    """
    The jobs that ids in dependencies stand for, and the latest time in the records.

    That time is close to the one at which saved records were written.
    """
    targets: dict[str, list[str]] = defaultdict(list)
    latest = datetime.fromtimestamp(0, tz=UTC)
    for index, record in enumerate(records):
        found, time = _understood(lambda each: (list(targets_of(each)), _time_in(each)), record, where, index)
        latest = max(latest, time)
        for key, names in found:
            targets[key] += names
    return dict(targets), latest


def _time_in(record: Record) -> datetime:
    times = [number(record.get(key)) or 0 for key in ("submit_time", "last_sched_evaluation")]
    times.append(number(record.get("start_time")) or 0 if holds_places(record) else 0)
    return datetime.fromtimestamp(max(times), tz=UTC)


def _nodes(
    records: list[Record],
    topology: str,
    reserved: frozenset[str],
    where: str,
    note: Callable[[str, str], None],
) -> Iterator[Node]:
    racks = racks_of(topology)
    for index, record in enumerate(records):
        yield _understood(lambda each: node_of(each, racks, reserved, note), record, where, index)


def _jobs(
    records: list[Record],
    read_jobs: Callable[[Record, Around, Callable[[str, str], None]], Iterator[Job]],
    around: Around,
    where: str,
    note: Callable[[str, str], None],
) -> Iterator[tuple[Job, Record]]:
    """The jobs, each with its record."""
    for index, record in enumerate(records):
        for job in _understood(lambda each: list(read_jobs(each, around, note)), record, where, index):
            yield job, record


def _largest(nodes: list[Node]) -> tuple[int, int, int]:
    return (
        max((node.gpu_count for node in nodes), default=0),
        max((node.cpu_milli // MILLI for node in nodes), default=0),
        max((node.memory_mib for node in nodes), default=0),
    )


def _sets(records: Iterable[Record], key: str) -> dict[str, frozenset[str]]:
    """What the values of a label for several names stand for."""
    sets = {frozenset(words(record.get(key))) for record in records}
    return {all_of(names): names for names in sets}


def _queues(around: Around, records: Iterable[Record], jobs: Iterable[Job]) -> tuple[Queue, ...]:
    """The queues of the jobs, and those above them that have limits."""
    used, limits = {job.queue for job in jobs}, around.limits
    payers = {payer for payer in map(limits.payer, records) if name_of(around.quotas.queue_of(payer)) in used}
    running = [record for record in records if holds_places(record)]
    found = around.quotas.queues(sorted(payers), without_limit(running, limits))
    return (*found, *(Queue(name=name) for name in sorted(used - {queue.name for queue in found})))


def _named(records: Iterable[Record], reserved: Reserved) -> frozenset[str]:
    """Nodes that pending jobs name, by themselves or by a reservation."""
    found: set[str] = set()
    for record in records:
        if not holds_places(record):
            for key in ("required_nodes", "excluded_nodes"):
                value = record.get(key)
                found.update(hosts(",".join(map(str, value)) if isinstance(value, list) else value))
            for name in words(record.get("resv_name")):
                if name in reserved.by_name:
                    found.update(reserved.by_name[name].nodes)
    return frozenset(found)


def _reserved(calendar: Iterable[Reservation]) -> dict[str, tuple[str, ...]]:
    """Names of the reservations of each node that has any."""
    found: dict[str, tuple[str, ...]] = {}
    for each in calendar:
        for node in each.nodes:
            found[node] = (*found.get(node, ()), each.name)
    return found


def _text(read: Callable[[], _Read], where: str) -> _Read:
    """What is read from a text; one that Slurm would not write is bad input."""
    try:
        return read()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInputError((InputProblem(where, f"is not what Slurm writes: {error}."),)) from None


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


def _name(meta: dict[str, Any], jobs: Iterable[dict[str, Any]]) -> str:
    named = (meta.get("slurm") or {}).get("cluster") or next((job.get("cluster") for job in jobs), "")
    return str(named or "slurm")
