"""A cluster in a folder of its own, and the commands that plan it and carry plans out."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import yaml

from benchmarks.faults.child import Ended, run_command

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.faults.checker import Submitted, Truth
    from benchmarks.faults.kinds import Fault

_DISK: Final = 8 * 2**20
"""Bytes of the disk that gets full; a world takes less than one MiB."""


class World(ABC):
    """One cluster, of one run."""

    executor: str
    exactly = True
    """True if gpuplan decides which GPUs of a node a job gets."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder, self.draw = folder, draw
        self.environment: dict[str, str] = {}
        self.outputs: list[Ended] = []
        """How each command ended that was to go on whatever happens."""
        self._plans = 0

    # --- what differs --------------------------------------------------------------------------------------

    @abstractmethod
    def populate(self) -> str:
        """Make the cluster with its jobs; returns the file of a plan to carry out."""

    @abstractmethod
    def submitted(self) -> Submitted:
        """What users asked for."""

    @abstractmethod
    def truth(self) -> Truth:
        """The cluster, as it says itself."""

    @abstractmethod
    def lose_node(self) -> None:
        """A node fails, as if its power was cut."""

    @abstractmethod
    def settle(self) -> None:
        """Let end what ends by itself, and bring lost nodes back."""

    @abstractmethod
    def edges(self, changes: int) -> tuple[int, int]:
        """About how many (edges, calls) an apply of so many changes has."""

    @property
    def state(self) -> str:
        """`--state` of the commands."""
        return ""

    @property
    def disk(self) -> Path:
        """Folder of the disk that gets full; the audit log is there."""
        return self.folder / "disk"

    # --- commands ------------------------------------------------------------------------------------------

    def gpuplan(
        self, *words: str, fault: Fault | None = None, meanwhile: Callable[[], None] | None = None
    ) -> Ended:
        """Run a command."""
        return run_command(words, self.folder, self.environment, fault=fault, meanwhile=meanwhile)

    def surely(self, *words: str) -> str:
        """Run a command that has no reason to fail; returns its output."""
        ended = self.gpuplan(*words)
        if ended.code != 0:
            raise AssertionError(f"gpuplan {' '.join(words)}: exit code {ended.code}: {ended.output}")
        return ended.output

    def write_policy(self, name: str = "policy.yaml", **rules: Any) -> None:
        """Draw how plans are carried out."""
        draw = self.draw
        apply = {
            "parallel": draw.choice((1, 3, 10)),
            "on_failure": draw.choice(("stop", "continue")),
            "attempts": draw.randint(1, 3),
            "backoff": "1s",
        }
        rules = {"apply": apply, "disruption": {"migrate": draw.random() < 0.5}} | rules
        (self.folder / name).write_text(yaml.safe_dump(rules))

    def snapshot(self) -> dict[str, Any]:
        """What gpuplan sees; also in now.json."""
        more = ("--managed",) if self.executor == "slurm" else ("--state", self.state)
        self.surely("snapshot", "--from", self.executor, *more, "-o", "now.json")
        found: dict[str, Any] = json.loads((self.folder / "now.json").read_text())
        return found

    def plan(self, policy: str = "policy.yaml") -> str:
        """Plan now.json; returns the file."""
        self._plans += 1
        file = f"plan-{self._plans}.json"
        words = ("plan", "now.json", "--policy", policy, "--solver", "greedy", "-o", file)
        self.surely(*words)
        return file

    def changes(self, file: str) -> int:
        """Actions of a plan that change something."""
        actions = json.loads((self.folder / file).read_text())["actions"]
        return sum(action["type"] not in ("keep", "wait") for action in actions)

    def options(self) -> tuple[str, ...]:
        """Options that name the cluster."""
        return ("--executor", self.executor, *(("--state", self.state) if self.state else ()))

    def apply_words(self, file: str, *, resume: bool) -> tuple[str, ...]:
        """The command that carries a plan out."""
        words = ("apply", file, *self.options(), "--auto-approve", "--audit", str(self.audit))
        return (*words, "--resume") if resume else words

    def run_words(self) -> tuple[str, ...]:
        """The command that goes on with an earlier run of it, then plans and carries out one epoch."""
        kept = ("--plans", "plans", "--history", "history.db", "--audit", str(self.audit))
        words = ("run", "now.json", *self.options(), "--apply", "--epochs", "1", "--every", "1s")
        return (*words, "--policy", "policy.yaml", "--solver", "greedy", *kept)

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.disk / "audit.jsonl"

    # --- the disk ------------------------------------------------------------------------------------------

    def mount(self) -> None:
        """Make the disk a small one of its own; CalledProcessError where that is not allowed."""
        self.disk.mkdir(exist_ok=True)
        words = ("mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=700", "faults", str(self.disk))
        subprocess.run(words, check=True, capture_output=True)

    def unmount(self) -> None:
        """Take the disk away, if it is one of its own."""
        subprocess.run(("umount", "--lazy", str(self.disk)), check=False, capture_output=True)

    def fill_disk(self) -> None:
        """Leave at most a few pages of the disk."""
        ballast = self.disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
            left = self.draw.choice((0, 0, 1, 2, 5))
            file.truncate(max(0, file.tell() - left * 4096))

    def empty_disk(self) -> None:
        """Make room again."""
        (self.disk / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """End what is left of the cluster."""
        self.unmount()


def mountable(folder: Path) -> bool:
    """True if a small disk can be made here, for which Linux asks for root."""
    words = ("mount", "-t", "tmpfs", "-o", "size=64k", "faults", str(folder))
    if subprocess.run(words, check=False, capture_output=True).returncode:
        return False
    subprocess.run(("umount", str(folder)), check=True)
    return True


def changed(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The actions of a plan that change something."""
    return [action for action in document["actions"] if action["type"] not in ("keep", "wait")]
