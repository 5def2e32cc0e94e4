"""Attempts of a job: begun under a supervisor, looked at, notified, stopped, withdrawn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from gpuplan.planner.executors.local import supervisor
from gpuplan.planner.executors.local.private_files import create_private, read_json, write_private
from gpuplan.planner.io.processes import ProcessId, boot_id, descendants, processes_with, signal_process

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LONGEST_SPAWN = 30
"""Seconds in which a supervisor has started its job."""


class RunPhase(Enum):
    """How far an attempt is."""

    ABSENT = auto()
    """No supervisor has begun it, and one may still do so."""
    STARTING = auto()
    """A supervisor begins it."""
    RUNNING = auto()
    """It runs, or processes of it are left."""
    ENDED = auto()
    """Nothing of it is left, and its end is recorded."""
    LOST = auto()
    """Nothing of it is left; its supervisor was killed, so its end is not known."""
    NEVER = auto()
    """It was withdrawn, or its supervisor was killed before it began, or the host was started anew."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the files and processes of an attempt say."""

    phase: RunPhase
    began: float | None = None
    """Start in seconds since 1970; None if it has not started."""
    ended: float | None = None
    """End in seconds since 1970, if it is recorded."""
    code: int | None = None
    """Exit code of the command, negative for a signal."""
    stopped: bool = False
    """True: it was asked to end before it had ended."""
    timed_out: bool = False
    """True: it was stopped since its time was over."""


def run_of(folder: Path, number: int) -> Run:
    """How far an attempt is."""
    # The end is read first: what is not there then is judged by processes that are alive after that.
    end = read_json(folder / f"exit-{number}.json")
    started = read_json(folder / f"started-{number}.json")
    began = started["at"] if started else None
    if end is not None:
        how = {name: end[name] for name in ("code", "stopped", "timed_out")}
        return Run(RunPhase.ENDED, began, end["at"], **how)
    run = read_json(folder / f"run-{number}.json")
    if run is None:
        return Run(RunPhase.ABSENT)
    if run["supervisor"] is None:
        return Run(RunPhase.NEVER)
    watcher = ProcessId(**run["supervisor"])
    if watcher.alive:
        return Run(RunPhase.RUNNING if started else RunPhase.STARTING, began)
    if (folder / f"exit-{number}.json").exists():
        return run_of(folder, number)
    if not (folder / f"started-{number}.json").exists():
        return Run(RunPhase.NEVER)
    if watcher.boot != boot_id():
        return Run(RunPhase.NEVER, began)
    if _left_behind(folder, number):
        return Run(RunPhase.RUNNING, began)
    return Run(RunPhase.NEVER) if (folder / f"unbegun-{number}.json").exists() else Run(RunPhase.LOST, began)


def start(folder: Path, number: int, wanted: dict[str, Any]) -> None:
    """Have a supervisor begin an attempt; if it did not by the time of the return, none does so later."""
    write_private(folder / f"attempt-{number}.json", wanted)
    words = [sys.executable, "-P", "-m", supervisor.__name__, str(folder), str(number)]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            timeout=_LONGEST_SPAWN,
            check=False,
        )
    withdraw(folder, number)


def withdraw(folder: Path, number: int) -> bool:
    """Let no supervisor begin an attempt any more; False if one has begun."""
    return create_private(folder / f"run-{number}.json", {"supervisor": None})


def notify(folder: Path, number: int, sent: int, *, first_only: bool) -> None:
    """Send a signal to the processes of a job, or only to its first one."""
    started = read_json(folder / f"started-{number}.json")
    first = ProcessId(**started["process"]) if started and started["process"] else None
    if first is None:
        return
    _send([first] if first_only else [first, *descendants(first.pid)], sent)


def stop(folder: Path, number: int) -> None:
    """Ask the supervisor to end an attempt; without one, kill what is left. Harmless if done again."""
    run = read_json(folder / f"run-{number}.json")
    if run is None or run["supervisor"] is None:
        return
    watcher = ProcessId(**run["supervisor"])
    if watcher.alive:
        signal_process(watcher, signal.SIGTERM)
    else:
        _send(_left_behind(folder, number), signal.SIGKILL)


def _send(processes: Iterable[ProcessId], number: int) -> None:
    for each in processes:
        try:
            signal_process(each, number)
        except PermissionError:
            continue


def _left_behind(folder: Path, number: int) -> list[ProcessId]:
    """Processes of an attempt without a supervisor, but for this one."""
    attempt = read_json(folder / f"attempt-{number}.json")
    started = read_json(folder / f"started-{number}.json")
    found = set(processes_with(f"{supervisor.TOKEN}={attempt['token']}")) if attempt else set()
    if started and started["process"] and (first := ProcessId(**started["process"])).alive:
        found.add(first)
    return sorted((each for each in found if each.pid != os.getpid()), key=lambda each: each.pid)
