"""What Slurm's commands print: taken from files of a folder, or by calling the commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError, InputProblem, PlannerError
from gpuplan.planner.sources.slurm.accounts.limits import keeps_limits
from gpuplan.planner.sources.slurm.cluster.partitions import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OPTIONS: Final = ("SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_", "SLURM_TIME_FORMAT", "SLURM_JSON")
"""
Beginnings of the names of variables that stand for options. `SQUEUE_USERS` hides the jobs of other users, and
`SCANCEL_INTERACTIVE` waits for an answer: man pages of squeue, sinfo, scontrol and scancel, ENVIRONMENT
VARIABLES.
"""
_TIMEOUT: Final = 60
"""Seconds that one command of Slurm may take; a busy controller with 50,000 jobs answers in a few."""


@dataclass(frozen=True, slots=True)
class SlurmTexts:
    """Output of Slurm's commands; a text that is empty was not to be had."""

    nodes: bytes
    """JSON with the node records."""
    jobs: bytes
    """JSON of `squeue --json`."""
    partitions: str = ""
    """`scontrol show partition`, or JSON of slurmrestd."""
    topology: str = ""
    """`scontrol show topology`."""
    reservations: str = ""
    """`scontrol show reservation`, or JSON of slurmrestd."""
    config: str = ""
    """`scontrol show config`."""
    associations: str = ""
    """`sacctmgr show associations`."""
    qos: str = ""
    """`sacctmgr show qos`."""
    exclusive: str = ""
    """Ids of jobs and their `--exclusive`, which the JSON of Slurm 26.05 does not have."""
    taken_at: datetime | None = None


ASSOCIATION_COLUMNS: Final = (
    "Cluster,Account,User,Partition,ParentName,QOS,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpWall,"
    "MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxJobs,MaxWall"
)
QOS_COLUMNS: Final = (
    "Name,Flags,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,"
    "MaxTRESPU,MaxJobsPU,MaxTRESPA,MaxJobsPA,MinTRES,MaxTRESRunMinsPU,MaxTRESRunMinsPA"
)

COMMANDS: Final = {
    "nodes": ("nodes.json", ("scontrol", "--all", "show", "nodes", "--json")),
    "jobs": ("jobs.json", ("squeue", "--all", "--json")),
    "partitions": ("partition.txt", ("scontrol", "--all", "--oneliner", "show", "partition")),
    "topology": ("topology.txt", ("scontrol", "--oneliner", "show", "topology")),
    "reservations": ("reservation.txt", ("scontrol", "--all", "--oneliner", "show", "reservation")),
    "config": ("config.txt", ("scontrol", "show", "config")),
    "associations": (
        "association.txt",
        ("sacctmgr", "--parsable2", "show", "associations", f"format={ASSOCIATION_COLUMNS}"),
    ),
    "exclusive": ("exclusive.txt", ("squeue", "--all", "--noheader", "--Format=JobID:20,Exclusive:10")),
    "qos": ("qos.txt", ("sacctmgr", "--parsable2", "show", "qos", f"format={QOS_COLUMNS}")),
}
"""File of each text in a folder, with the command that writes it."""

_NODES_OF_22_05: Final = ("sinfo", "--all", "--json")
_NO_JSON: Final = re.compile(r"unrecognized option|invalid option")

_ABSENT: Final = {
    "nodes": _NO_JSON,
    "topology": re.compile(r"No topology information available"),
    "exclusive": re.compile(r"Invalid job format specification: Exclusive"),
}
"""
What a command says on standard error where a cluster or version does not have the thing. All else that goes
wrong is an error: a lost reservation would open its nodes, a lost limit would have Slurm refuse a plan. Tried
on 22.05 and 24.11, of which the second says nothing without a topology.
"""
_LOST: Final = re.compile(r"slurm_load_\w+ error")
"""On standard error, that a command has no answer; `scontrol show topology` exits with 0 nevertheless."""
_ALWAYS_SAYS: Final = frozenset({"partitions", "reservations", "config"})
"""Texts that are never empty: without any of its things, Slurm says so."""
_ACCOUNTING: Final = frozenset({"associations", "qos"})


def told(key: str) -> str:
    """The command that prints a text, as users type it."""
    command = " ".join(COMMANDS[key][1])
    if key == "nodes":
        return f"{command}  (Slurm 22.05: {' '.join(_NODES_OF_22_05)})"
    setting = {"jobs": "SLURM_BITSTR_LEN=0 ", "reservations": "SLURM_TIME_FORMAT=%s "}
    return setting.get(key, "") + command


def texts_of_folder(folder: Path) -> SlurmTexts:
    """
    The files of a folder (`COMMANDS`); only those with the nodes and the jobs have to be there.

    Raises
    ------
    BadInputError
        A file is missing, or cannot be read.
    """
    problems = []
    found: dict[str, bytes] = {}
    for key, (name, _) in COMMANDS.items():
        path = folder / name
        if path.is_file():
            try:
                found[key] = path.read_bytes()
            except OSError as error:
                problems.append(InputProblem(str(path), f"cannot be read: {error.strerror}."))
        elif name.endswith(".json"):
            problems.append(InputProblem(str(path), f"no such file; expected the output of `{told(key)}`."))
    problems += [
        InputProblem(str(folder / COMMANDS[key][0]), f"is empty; expected the output of `{told(key)}`.")
        for key in sorted(_needed(found) & found.keys())
        if not found[key].strip()
    ]
    if problems:
        raise BadInputError(tuple(problems))
    return _texts(found, None)


def _needed(found: Mapping[str, bytes]) -> frozenset[str]:
    """Texts that an answer of Slurm has; accounts only where limits are kept."""
    settings = settings_of(found.get("config", b"").decode(errors="replace"))
    return _ALWAYS_SAYS | (_ACCOUNTING if keeps_limits(settings) else frozenset())


def texts_of_commands() -> SlurmTexts:
    """
    Output of the commands of this machine.

    Raises
    ------
    PlannerError
        Slurm's commands are not there, or one fails: its standard error is in the message.
    """
    if shutil.which("scontrol") is None:
        raise PlannerError(
            "scontrol is not on the PATH; expected Slurm's commands.\n"
            "Run this on a login node, or save their output and read it with `--from slurm-files`."
        )
    found = {"config": _output("config")}
    asked = COMMANDS.keys() if _needed(found) >= _ACCOUNTING else COMMANDS.keys() - _ACCOUNTING
    found |= {key: _output(key) for key in COMMANDS if key in asked and key not in found}
    found["nodes"] = found["nodes"] or _output("nodes", _NODES_OF_22_05)
    if empty := [told(key) for key in sorted(_needed(found)) if not found[key].strip()]:
        raise PlannerError(f"`{empty[0]}` prints nothing; expected what Slurm has.\nTry it by hand.")
    return _texts(found, datetime.now(UTC))


def _texts(found: dict[str, bytes], taken_at: datetime | None) -> SlurmTexts:
    known = {field.name for field in fields(SlurmTexts)} - {"nodes", "jobs", "taken_at"}
    others = {key: found[key].decode(errors="replace") for key in known & found.keys()}
    return SlurmTexts(nodes=found["nodes"], jobs=found["jobs"], taken_at=taken_at, **others)


def _output(key: str, command: tuple[str, ...] = ()) -> bytes:
    """Standard output of the command for a text; empty if the cluster does not have the thing."""
    command = command or COMMANDS[key][1]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_TIMEOUT, check=False, env=slurm_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlannerError(f"`{' '.join(command)}` failed: {error}.\nTry it by hand.") from None
    said = done.stderr.decode(errors="replace").strip()
    if (absent := _ABSENT.get(key)) and absent.search(said):
        return b""
    if done.returncode == 0 and not _LOST.search(said):
        return done.stdout
    said = said or f"exit code {done.returncode}"
    raise PlannerError(f"`{' '.join(command)}` failed: {said}\nTry it by hand, or run `gpuplan doctor`.")


def slurm_environment() -> dict[str, str]:
    """The variables for a command of Slurm: lists of array tasks in full, times in seconds since 1970."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OPTIONS)}
    return kept | {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"}
