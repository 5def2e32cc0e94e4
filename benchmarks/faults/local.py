"""
The queue of a host with GPUs that are not there, and jobs that are real processes.

Each job locks its GPUs and its name while it runs, and writes into a ledger when it begins and what it finds
locked: so it is seen at any time, and not only at the end, whether something was given twice.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.faults.checker import DOUBLED, TWICE, Finding, Held, Submitted, TrueJob, Truth
from benchmarks.faults.child import CHILDREN
from benchmarks.faults.simulated import left_in
from benchmarks.faults.world import World
from tests.support.nvml.standin import STATE, library

if TYPE_CHECKING:
    import random

GPUS: Final = 4
_JOB: Final = """
for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do
  exec {lock}>"$LEDGER/gpu-$gpu.lock"
  flock --nonblock $lock || echo "taken NAME $gpu" >> "$LEDGER/ledger"
done
exec {lock}>"$LEDGER/job-NAME.lock"
flock --nonblock $lock || echo "doubled NAME $$" >> "$LEDGER/ledger"
echo "begin NAME $$" >> "$LEDGER/ledger"
trap '' USR1
exec sleep SECONDS
"""
"""A job; the locks are held until its last process has ended."""
_TOKEN: Final = "GPUPLAN_RUN"
_PROC: Final = Path("/proc")
_LONGEST_SETTLE: Final = 20.0


class LocalWorld(World):
    """One host."""

    executor = "local"

    def __init__(self, folder: Path, draw: random.Random) -> None:
        super().__init__(folder, draw)
        self._ledger = folder / "ledger"
        self._ledger.mkdir()
        self._cut = False
        self._jobs: list[str] = []
        built = str(library())
        self.environment = {
            STATE: str(folder / "machine"),
            "GPUPLAN_FAULTS_NVML": built,
            "LD_LIBRARY_PATH": str(Path(built).parent),
            "LEDGER": str(self._ledger),
        }
        maker = CHILDREN.Process(target=_make_machine, args=(self.environment,))
        maker.start()
        maker.join()

    @property
    def state(self) -> str:
        """The folder of the queue."""
        return str(self.disk / "host")

    def populate(self) -> str:
        """Small jobs run; then larger and more important ones come."""
        self.disk.mkdir(exist_ok=True)
        self.write_policy(disruption={"migrate": True, "minimum_runtime": "0s"})
        for number in range(self.draw.randint(1, 3)):
            self._submit(f"small-{number}", self.draw.choice((1, 2)), 0, "1000")
        self.snapshot()
        self.surely(*self.apply_words(self.plan(), resume=False))
        for number in range(self.draw.randint(1, 3)):
            seconds = self.draw.choice(("1000", "1000", "1000", "0.3"))
            self._submit(f"large-{number}", self.draw.choice((1, 2, 4)), self.draw.choice((0, 5, 9)), seconds)
        self.snapshot()
        return self.plan()

    def _submit(self, name: str, gpus: int, priority: int, seconds: str) -> None:
        script = _JOB.replace("NAME", name).replace("SECONDS", seconds)
        notice = ("--signal", "USR1@1") if self.draw.random() < 0.3 else ()
        words = ("local", "submit", "--name", name, "--gpus", str(gpus), "--priority", str(priority))
        self.surely(*words, *notice, "--state", self.state, "--", "/bin/bash", "-c", script)
        self._jobs.append(name)

    def submitted(self) -> Submitted:
        """A job of a host has one replica."""
        return Submitted(dict.fromkeys(self._jobs, (1, 1)))

    def edges(self, changes: int) -> tuple[int, int]:
        """By counting."""
        return 5 + 25 * changes, 3 + 6 * changes

    def lose_node(self) -> None:
        """The power of the host is cut: all processes are gone at once, and it is booted anew."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.environment["GPUPLAN_FAULTS_BOOT"] = "boot-2"
        self._cut = True

    def settle(self) -> None:
        """Wait until what was stopped has ended."""
        end = time.monotonic() + _LONGEST_SETTLE
        while time.monotonic() < end and any(
            record["stage"] == "leaving" for record in self._records().values()
        ):
            time.sleep(0.1)

    # --- truth ---------------------------------------------------------------------------------------------

    @cached_property
    def _indices(self) -> dict[str, str]:
        """Indices of GPUs by UUID."""
        (node,) = json.loads((self.folder / "now.json").read_text())["cluster"]["nodes"]
        return {each["uuid"]: str(each["index"]) for each in node["gpus"]["details"]}

    @cached_property
    def _node(self) -> str:
        (node,) = json.loads((self.folder / "now.json").read_text())["cluster"]["nodes"]
        return str(node["name"])

    def _folders(self) -> list[Path]:
        return sorted(each for part in ("jobs", "ended") for each in (Path(self.state) / part).iterdir())

    def _records(self) -> dict[str, dict[str, Any]]:
        """What is known of each job, by its files and processes."""
        tokens = self._tokens()
        found = {}
        for folder in self._folders():
            with suppress(FileNotFoundError):
                record = json.loads((folder / "record.json").read_text())
                attempts = [json.loads(file.read_text()) for file in folder.glob("attempt-*.json")]
                alive = [each for each in attempts if each["token"] in tokens]
                found[record["job"]["name"]] = {
                    "record": record,
                    "alive": alive,
                    "stage": "leaving" if alive and not record.get("attempt") else "",
                }
        return found

    def _tokens(self) -> dict[str, list[int]]:
        """Processes by the attempt that they are of."""
        found: dict[str, list[int]] = {}
        for entry in _PROC.iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"LEDGER={self._ledger}".encode() not in variables:
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                    continue
                for each in variables:
                    name, _, value = each.decode(errors="replace").partition("=")
                    if name == _TOKEN:
                        found.setdefault(value, []).append(int(entry.name))
        return found

    def _processes(self) -> list[int]:
        """All processes of the jobs, and their supervisors."""
        found = {pid for pids in self._tokens().values() for pid in pids}
        for folder in self._folders():
            for file in folder.glob("run-*.json"):
                watcher = json.loads(file.read_text())["supervisor"]
                if watcher and b"supervisor" in _command_of(watcher["pid"]):
                    found.add(watcher["pid"])
        return sorted(found)

    def truth(self) -> Truth:
        """Processes that are there, and what they wrote."""
        records, jobs, performed = self._records(), {}, set()
        for name, each in records.items():
            record = each["record"]
            held = []
            for attempt in each["alive"]:
                gpus = tuple((self._indices[device], 1000) for device in attempt["devices"])
                held.append(Held(self._node, gpus))
            state = "runs" if held else "ended" if "ended" in record else "waits"
            jobs[name] = TrueJob(state, tuple(held))
            performed |= {mark["key"] for mark in record.get("marks", ()) if mark["step"] == "landed"}
        ledger = self._ledger / "ledger"
        lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
        noted = {"taken": TWICE, "doubled": DOUBLED}
        conflicts = tuple(Finding(noted[line[0]], " ".join(line)) for line in lines if line[0] in noted)
        return Truth(
            jobs=jobs,
            performed=frozenset(performed),
            begins=Counter(line[1] for line in lines if line[0] == "begin"),
            conflicts=conflicts,
            left=tuple(name for name in left_in(self.disk) if not _is_draft_of_job(name)),
            # What ran when the power was cut waits again, and its action is as done as it was.
            unplanned=frozenset(self._jobs) if self._cut else frozenset(),
        )

    def close(self) -> None:
        """Kill what is left."""
        for _ in range(2):
            for pid in self._processes() if Path(self.state).exists() else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        super().close()


def _is_draft_of_job(name: str) -> bool:
    """A half-written file of a job that has not ended, which goes with the job."""
    return name.endswith(".tmp") and not name.startswith(".host.json")


def _command_of(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def _make_machine(environment: dict[str, str]) -> None:
    import ctypes

    os.environ.update(environment)
    code = ctypes.CDLL(environment["GPUPLAN_FAULTS_NVML"]).standin_create(GPUS, 0)
    assert code == 0
