"""A private Slurm, and jobs that are handed to gpuplan; the truth is what scontrol and the jobs say."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.faults.checker import DOUBLED, Finding, Held, Submitted, TrueJob, Truth
from benchmarks.faults.world import World
from tests.support.harness.private_slurm import NODES, missing_slurm, private_slurm

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

_JOB: Final = """
exec {lock}>"LEDGER/job-$SLURM_JOB_ID.lock"
flock --nonblock $lock || echo "doubled $SLURM_JOB_ID $$" >> "LEDGER/ledger"
echo "begin $SLURM_JOB_ID $SLURM_RESTART_COUNT" >> "LEDGER/ledger"
exec sleep 1000
"""
_NOTICES: Final = ("gpuplan", "gpuplan", "gpuplan signal=CONT@1")
_STATES: Final = {"PENDING": "waits", "RUNNING": "runs", "COMPLETING": "runs", "CONFIGURING": "runs"}
_FENCE: Final = "ReservationName=gpuplan-"
_LONGEST: Final = 60.0


@contextmanager
def slurm_for_faults(root: Path) -> Iterator[Any]:
    """A cluster that all runs share one after another; None if Slurm is not installed."""
    if missing_slurm():
        yield None
        return
    with private_slurm(root) as cluster:
        yield cluster


class SlurmWorld(World):
    """Some jobs on the private Slurm."""

    executor = "slurm"
    exactly = False

    def __init__(self, folder: Path, draw: random.Random, slurm: Any) -> None:
        if slurm is None:
            raise AssertionError(f"no Slurm: {missing_slurm()}")
        super().__init__(folder, draw)
        self._slurm = slurm
        self._ledger = folder / "ledger"
        self._ledger.mkdir()
        self._gangs: dict[str, tuple[int, int]] = {}
        self._down: list[str] = []
        self._lost_any = False
        self.environment = {"SLURM_CONF": slurm.environment["SLURM_CONF"]}

    def populate(self) -> str:
        """Small jobs run; then larger and more important ones come."""
        self.disk.mkdir(exist_ok=True)
        self.write_policy(disruption={"migrate": True})
        for _ in range(self.draw.randint(2, 4)):
            self._submit(1, self.draw.choice((4, 8)))
        self.snapshot()
        self.surely(*self.apply_words(self.plan(), resume=False))
        for _ in range(self.draw.randint(1, 2)):
            self._submit(self.draw.choice((1, 2, 3)), 8, "-p", "high")
        self._submit(1, self.draw.choice((1, 2)), "-p", "high")
        self.snapshot()
        return self.plan()

    def _submit(self, nodes: int, gpus: int, *options: str) -> None:
        words = (f"-N{nodes}", "--ntasks-per-node=1", f"--gpus-per-node=h100:{gpus}", *options)
        script = _JOB.replace("LEDGER", str(self._ledger)).strip()
        file = self.folder / "job.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        job = self._slurm.command(
            *("sbatch", "--parsable", "--hold", "--requeue", "--output=/dev/null", "--time=60", "--mem=1G"),
            *(f"--comment={self.draw.choice(_NOTICES)}", *words, str(file)),
        )
        self._gangs[job] = (nodes, nodes)

    def submitted(self) -> Submitted:
        """Each job with its nodes."""
        return Submitted(dict(self._gangs))

    def edges(self, changes: int) -> tuple[int, int]:
        """By counting; how long a job takes to start and to stop varies."""
        return 10 + 25 * changes, 8 + 9 * changes

    def lose_node(self) -> None:
        """The daemon of a node is killed with all jobs there."""
        name = self.draw.choice(NODES)
        daemon = next(words for words in self._slurm.daemons if words[-1] == name)
        self._slurm.kill_node(name)
        self._slurm.daemons[daemon].wait()
        for pid in self._jobs_on(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._down.append(name)
        self._lost_any = True

    def _jobs_on(self, node: str) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                own = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode() in variables
                if own and f"SLURMD_NODENAME={node}".encode() in variables:
                    found.append(int(entry.name))
        return found

    def settle(self) -> None:
        """Nodes come back, and what ends has ended."""
        for name in self._down:
            daemon = next(words for words in self._slurm.daemons if words[-1] == name)
            del self._slurm.daemons[daemon]
            self._slurm.start_daemon(*daemon)
            self._slurm.command("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        self._down.clear()
        self._wait(
            lambda: not any(state in ("COMPLETING", "CONFIGURING") for state in self._states().values())
        )
        self._wait(lambda: all("down" not in self._slurm.node_states()[name] for name in NODES))

    def _wait(self, holds: Any) -> None:
        end = time.monotonic() + _LONGEST
        while not holds() and time.monotonic() < end:
            time.sleep(0.2)

    def _states(self) -> dict[str, str]:
        return {job: state for job, (state, _) in self._slurm.states().items() if job in self._gangs}

    # --- truth ---------------------------------------------------------------------------------------------

    def truth(self) -> Truth:
        """What scontrol shows, and what the jobs wrote."""
        jobs, performed, left = {}, set(), []
        running = [job for job, state in self._states().items() if state == "RUNNING"]
        self._wait(lambda: set(running) <= self._begun().keys())
        for job in self._gangs:
            text = self._slurm.command("scontrol", "--details", "show", "job", job, check=False)
            if not text:
                continue
            fields = dict(re.findall(r"(?<!\S)(\w+)=(\S*)", text))
            state = _STATES.get(fields["JobState"], "ended")
            jobs[job] = TrueJob(state, _held(text) if state == "runs" else ())
            marks = _marks(text)
            performed |= {mark["key"] for mark in marks if mark["step"] == "landed"}
            left += [f"job {job}: {mark}" for mark in marks if mark["step"] not in ("landed", "failed")]
            # After a node failure Slurm itself requeues its jobs, and they are not held then.
            if state == "waits" and not self._lost_any:
                left += [
                    f"job {job} waits with {name}={fields[name]}"
                    for name in ("ReqNodeList", "Reservation")
                    if fields.get(name, "(null)") not in ("(null)", "")
                ]
                if fields["Priority"] != "0":
                    left.append(f"job {job} waits and is not held")
        fences = re.findall(rf"{_FENCE}\S+", self._slurm.command("scontrol", "show", "reservation"))
        ledger = self._lines()
        return Truth(
            jobs=jobs,
            performed=frozenset(performed),
            begins=self._begun(),
            conflicts=tuple(Finding(DOUBLED, " ".join(line)) for line in ledger if line[0] == "doubled"),
            left=(*left, *fences),
            unplanned=frozenset(self._gangs) if self._lost_any else frozenset(),
        )

    def _lines(self) -> list[list[str]]:
        path = self._ledger / "ledger"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def _begun(self) -> Counter[str]:
        return Counter(line[1] for line in self._lines() if line[0] == "begin")

    def close(self) -> None:
        """Leave the cluster empty."""
        self.settle()
        self._slurm.command("scancel", *self._gangs, check=False)
        self._wait(lambda: not self._states())
        for fence in re.findall(rf"{_FENCE}\S+", self._slurm.command("scontrol", "show", "reservation")):
            self._slurm.command("scontrol", "delete", fence, check=False)
        super().close()


def _held(text: str) -> tuple[Held, ...]:
    """Nodes and GPUs of a job, from `scontrol --details show job`."""
    found = []
    for nodes, indices in re.findall(r"Nodes=(\S+) .*?GRES=\S*?\(IDX:([\d,-]+)\)", text):
        gpus = tuple((str(index), 1000) for index in _numbers(indices))
        found += [Held(node, gpus) for node in _hosts(nodes)]
    return tuple(found)


def _hosts(text: str) -> list[str]:
    """`gpu[01-02,04]` as names."""
    match = re.fullmatch(r"(\w+?)\[([\d,-]+)\]", text)
    if match is None:
        return text.split(",")
    width = len(re.split(r"[,-]", match[2])[0])
    return [f"{match[1]}{number:0{width}d}" for number in _numbers(match[2])]


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _marks(text: str) -> list[dict[str, Any]]:
    """What gpuplan wrote into the AdminComment."""
    match = re.search(r"AdminComment=gpuplan:(\{.*\})", text)
    return list(json.loads(match[1]).get("marks", ())) if match else []
