"""
Slurm's commands as an executor uses them: changes with scontrol and scancel, tables with squeue and sinfo.

No shell is involved. The tables have no field that users write, since a text with separators in it would be
read as other fields; from 22.05 to 26.05 they are the same.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.units import MILLI
from gpuplan.planner.executors.interface import ExecutionError, UnreachableError
from gpuplan.planner.sources.slurm.managed import Marks
from gpuplan.planner.sources.slurm.texts import slurm_environment
from gpuplan.planner.sources.slurm.values import gpus_of, hosts, indices, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIMEOUT: Final = 30
"""Seconds for one command; a busy controller may take ten."""

_NO_RIGHTS: Final = re.compile(r"permission denied|creating the reservation: Invalid user id", re.IGNORECASE)
"""What Slurm says to a user without rights; tried on 22.05 and 24.11."""
_NO_ANSWER: Final = re.compile(
    r"unable to contact|timed out|connection (refused|reset)|communication|zero bytes|unexpected message",
    re.IGNORECASE,
)
"""Messages of commands that did not reach the controller, or got no answer from it."""
_NO_CONTROLLER: Final = re.compile(r"configuration source|failed to fetch config", re.IGNORECASE)
"""Messages of commands that know no controller: Slurm is not set up on this host."""
_MOST_TOLD: Final = 120
"""Characters of a command in a message."""
_DOCTOR: Final = "Run `gpuplan doctor`: it checks Slurm step by step."

_NO_JOB: Final = "invalid job id"
"""In the message of a command about a job that is not there."""

_MOST_BY_ONE: Final = 20
"""
Jobs that are asked for one by one. With one id squeue gets one record; with several the controller sends all
that it has, and with 50,000 jobs holds its locks for a second.
"""
_AS_CHEAP: Final = 1_000
"""Jobs of which one list of all costs as much as to ask for one job alone: mostly the start of a process."""

_HELD: Final = re.compile(r"^\s+Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+)(?: GRES=(\S*))?", re.MULTILINE)
"""What a job holds on some of its nodes, all of them alike; Mem is in MiB."""

_FIELD, _ROW = "\x1f", "\x1e"
_JOB_FIELDS: Final = (
    *("JobID", "ArrayJobID", "ArrayTaskID", "State", "Reason", "NodeList", "ReqNodes", "UserName"),
    *("Reservation", "PriorityLong", "SubmitTime", "Requeue", "admin_comment"),
)
_NODE_FIELDS: Final = ("NodeList", "StateComplete", "Reason", "Comment")

_PENDING: Final = frozenset({"PENDING"})
_RUNNING: Final = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
_LEAVING: Final = frozenset(
    {"COMPLETING", "STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
)
_CONFIGURING: Final = frozenset({"CONFIGURING"})


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as squeue shows it, finished ones included for a while."""

    id: str
    """Id that scontrol understands: the number, or `ARRAY_TASK`."""
    state: str
    reason: str
    """Why it is pending, in words or as one word."""
    nodes: str
    """Nodes that it runs or ran on; empty if it never did."""
    required: str
    """Nodes that it must run on; empty if it may run anywhere."""
    user: str
    reservation: str
    priority: int
    """0 while it is held; the reason of a job that was just released may still say so."""
    submitted: int
    """Time of its submission or of its last requeue, in seconds since 1970."""
    marks: Marks
    requeues: bool = True
    """False: it was submitted with --no-requeue, so that Slurm cannot stop it for a while."""

    @property
    def pending(self) -> bool:
        """True while it waits."""
        return self.state in _PENDING

    @property
    def held(self) -> bool:
        """True while it waits for its release by a user, an operator, or gpuplan."""
        return self.pending and self.priority == 0

    @property
    def launch_failed(self) -> bool:
        """True if Slurm gave up to launch it and holds it."""
        return self.held and "launch failed" in self.reason.lower().replace("_", " ")

    @property
    def running(self) -> bool:
        """True while it has its nodes and works on them."""
        return self.state in _RUNNING

    @property
    def leaving(self) -> bool:
        """True while it ends."""
        return self.state in _LEAVING

    @property
    def configuring(self) -> bool:
        """True while its nodes boot."""
        return self.state in _CONFIGURING


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as sinfo shows it."""

    name: str
    states: frozenset[str]
    """In upper case."""
    reason: str
    """Why it is drained or down; empty if Slurm gives none."""
    marks: Marks


def call(*command: str) -> str:
    """
    Output of a command of Slurm.

    Raises
    ------
    UnreachableError
        There was no answer: a change may have been made or not.
    ExecutionError
        Slurm refuses it.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
            env=slurm_environment(),
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"`{command[0]}` gave no answer within {_TIMEOUT} s.") from None
    except OSError as error:
        raise PlannerError(
            f"`{command[0]}` cannot be run: {error}.\nExpected Slurm's commands on the PATH."
        ) from None
    told = shlex.join(command)
    told = told if len(told) <= _MOST_TOLD else f"{told[:_MOST_TOLD]}…"
    if done.returncode == 0:
        return done.stdout.decode(errors="replace")
    said = " ".join(done.stderr.decode(errors="replace").split()) or f"exit code {done.returncode}"
    if _NO_ANSWER.search(said):
        raise UnreachableError(f"`{told}` reached no controller: {said}.\n{_DOCTOR}")
    if _NO_CONTROLLER.search(said):
        # It asked no controller, so nothing was changed.
        raise ExecutionError(f"`{told}` failed: {said}.\n{_DOCTOR}")
    if _NO_RIGHTS.search(said):
        raise ExecutionError(f"`{told}` was refused: {said}. Expected an operator of Slurm.")
    raise ExecutionError(f"`{told}` failed: {said}.")


def update(thing: str, name: str, **fields: str) -> None:
    """Change fields of a job, node or reservation, all of them or none (`scontrol update`)."""
    call("scontrol", "update", f"{thing}={name}", *(f"{field}={value}" for field, value in fields.items()))


def jobs_table(*only: str, of: int = 0) -> dict[str, JobRow]:
    """
    All jobs, or at least some, by the names that snapshots give them; each pending task of an array is one.

    A job that is not there is left out. Where there are few jobs, `of` about so many (0 if unknown), one
    command lists all of them.
    """
    alone = len(only) == 1 or not of or len(only) * _AS_CHEAP < of
    if 0 < len(only) <= _MOST_BY_ONE and alone:
        return {name: row for job in only for name, row in _one_job(job).items() if name == job}
    return _jobs()


def _one_job(job: str) -> dict[str, JobRow]:
    """One job; one of an array with its other tasks."""
    try:
        return _jobs(f"--jobs={job}")
    except ExecutionError as error:
        if _NO_JOB in str(error).lower():
            return {}
        raise


def _jobs(*options: str) -> dict[str, JobRow]:
    form = f"--Format={_format(_JOB_FIELDS)}"
    text = call("squeue", "--all", "--noheader", "--array", "--states=all", *options, form)
    found = {}
    for *texts, priority, submitted, requeues, comment in _rows(text, len(_JOB_FIELDS)):
        id_, array, task, state, reason, nodes, required, user, reservation = texts
        name = f"{array}_{task}" if task.isdigit() else id_
        found[name] = JobRow(
            name,
            state,
            reason,
            nodes,
            required,
            user,
            reservation,
            int(priority or 0),
            int(submitted or 0),
            Marks.read(comment),
            requeues != "0",
        )
    return found


def hold(row: JobRow) -> bool:
    """Hold a pending job; False if it has started meanwhile, since it must not be held once requeued."""
    if row.held:
        return True
    call("scontrol", "uhold", row.id)
    now = jobs_table(row.id).get(row.id)
    if now is not None and now.pending:
        return True
    call("scontrol", "release", row.id)
    return False


def cluster_identity() -> str:
    """Name of the cluster with the host and port of its controller."""
    config = call("scontrol", "show", "config")
    fields = dict(re.findall(r"^(\S+)\s*= (\S+)", config, flags=re.MULTILINE))
    host = fields.get("SlurmctldHost[0]", "").partition("(")[0]
    return f"slurm/{fields.get('ClusterName', 'slurm')}@{host}:{fields.get('SlurmctldPort', '')}"


def placement_now(row: JobRow) -> Placement | None:
    """Where a running job really is, with the indices of its GPUs; None if Slurm does not tell it."""
    held = {}
    try:
        text = call("scontrol", "--details", "show", "job", row.id)
    except (UnreachableError, ExecutionError):
        # It runs, whatever becomes of it now.
        return None
    for nodes, cpus, memory, gres in _HELD.findall(text):
        gpus = [index for each in gpus_of(gres) for index in each.indices]
        for node in hosts(nodes):
            held[node] = Replica(
                node=name_of(node),
                gpus=tuple(GpuShare(index=index, milli=MILLI) for index in gpus),
                cpu_milli=len(indices(cpus)),
                memory_mib=int(memory),
            )
    # A comment of its user may look like a line of this kind.
    there = hosts(row.nodes)
    if held.keys() != set(there) or not there:
        return None
    return Placement(job=row.id, replicas=tuple(held[node] for node in there))


def nodes_table() -> dict[str, NodeRow]:
    """All nodes by name."""
    text = call("sinfo", "--all", "--noheader", "--Node", f"--Format={_format(_NODE_FIELDS)}")
    return {
        name: NodeRow(
            name,
            frozenset(state.upper().split("+")),
            "" if reason == "none" else reason,
            Marks.read(comment),
        )
        for name, state, reason, comment in _rows(text, len(_NODE_FIELDS))
    }


def reservations_table() -> dict[str, dict[str, str]]:
    """Fields of the reservations that there are, by name."""
    found = {}
    for line in call("scontrol", "--oneliner", "show", "reservation").splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if name := fields.get("ReservationName", ""):
            found[name] = fields
    return found


def _format(fields: Iterable[str]) -> str:
    names = tuple(fields)
    return ",".join(f"{name}:{_FIELD}" for name in names[:-1]) + f",{names[-1]}:{_ROW}"


def _rows(text: str, width: int) -> Iterable[list[str]]:
    for row in text.split(_ROW):
        fields = [_value(field) for field in row.removeprefix("\n").split(_FIELD)]
        if len(fields) == width:
            yield fields


def _value(field: str) -> str:
    return "" if field in ("(null)", "N/A", "n/a") else field
