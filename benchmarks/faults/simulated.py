"""Random simulated clusters; the truth is in the tables of their files."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from benchmarks.faults.checker import Held, Submitted, TrueJob, Truth
from benchmarks.faults.world import World
from tests.support.builders.build import cluster, job, replica, snapshot
from tests.support.samples import all_actions

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from gpuplan.models.snapshot import Snapshot

_BEGINS, _STOPS = ("start",), ("preempt", "release")
_GPUS = 8


class SimulatedWorld(World):
    """A simulated cluster."""

    executor = "simulated"

    def __init__(self, folder: Path, draw: random.Random) -> None:
        super().__init__(folder, draw)
        self._first: Snapshot | None = None
        self._stopped: Counter[str] = Counter()
        """Stops by what happened to nodes."""
        self._down: list[str] = []

    @property
    def state(self) -> str:
        """The file."""
        return str(self.disk / "cluster.db")

    def populate(self) -> str:
        """Some have use for changes of every kind, the others are drawn."""
        self.disk.mkdir(exist_ok=True)
        self.write_policy()
        if self.draw.random() < 0.4:
            self._first = all_actions.WORLD
            self.write_policy(disruption={"migrate": True})
        else:
            self._first = random_cluster(self.draw)
        (self.folder / "first.json").write_text(json.dumps(self._first.document()))
        self.surely("simulated", "create", "first.json", "--state", self.state)
        self.snapshot()
        return self.plan()

    def submitted(self) -> Submitted:
        """All jobs of the first snapshot."""
        assert self._first is not None
        return Submitted({each.name: (each.gang.minimum, each.gang.maximum) for each in self._first.jobs})

    def lose_node(self) -> None:
        """A node that jobs run on, or that the plan uses."""
        nodes = [name for name in self._nodes() if name not in self._down]
        name = self.draw.choice(nodes)
        found = json.loads(self.surely("simulated", "fail", name, "--state", self.state, "--json"))
        self._stopped.update(found["waiting_again"])
        self._down.append(name)

    def pass_time(self, seconds: int) -> None:
        """The clock of the cluster moves while a plan is carried out."""
        self.surely("simulated", "advance", f"{seconds}s", "--state", self.state)

    def settle(self) -> None:
        """Nodes come back."""
        for name in self._down:
            if name in self._nodes():
                self.surely("simulated", "return", name, "--state", self.state)
        self._down.clear()

    def edges(self, changes: int) -> tuple[int, int]:
        """By counting; a kill also strikes at each SQL statement."""
        return 30 + 18 * changes, 2 + changes

    def _nodes(self) -> list[str]:
        return [name for (name,) in self._rows("SELECT name FROM nodes ORDER BY name")]

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.state}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    def truth(self) -> Truth:
        """The tables as they are."""
        documents = {name: json.loads(text) for name, text in self._rows("SELECT name, document FROM jobs")}
        jobs = {
            name: TrueJob("runs" if "running" in document else "waits", self._held(name))
            for name, document in documents.items()
        }
        finished = Counter(name for (name,) in self._rows("SELECT name FROM finished"))
        jobs |= {name: TrueJob("ended") for name in finished if name not in jobs}
        keys = [key for (key,) in self._rows("SELECT key FROM operations ORDER BY rowid")]
        parts = [key.partition(":")[2].partition("/") for key in keys]
        begins = Counter(name for kind, _, name in parts if kind in _BEGINS)
        stops = Counter(name for kind, _, name in parts if kind in _STOPS) + self._stopped + finished
        assert self._first is not None
        return Truth(
            jobs=jobs,
            performed=frozenset(keys),
            begins=begins,
            stops=stops,
            ran_at_first=frozenset(each.name for each in self._first.jobs if each.running),
            left=tuple(left_in(self.disk, "cluster.db")),
        )

    def _held(self, name: str) -> tuple[Held, ...]:
        found = []
        for node, text in self._rows("SELECT node, replica FROM held WHERE job = '" + name + "'"):
            parts = json.loads(text).get("gpus", ())
            gpus = tuple((str(part["index"]), part["milli"]) for part in parts if "milli" in part)
            slices = tuple(
                (str(part["index"]), f"{part['profile']}@{part['start']}")
                for part in parts
                if "profile" in part
            )
            found.append(Held(node, gpus, slices))
        return tuple(found)


def left_in(folder: Path, *expected: str) -> list[str]:
    """Drafts and held locks in a folder that commands have left."""
    found = [
        str(path.name) for path in folder.rglob("*") if path.name.endswith((".tmp", ".draft", "-journal"))
    ]
    for path in folder.rglob("*.lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"{path.name} is held")
    return found + [f"{name} is gone" for name in expected if not (folder / name).exists()]


def random_cluster(draw: random.Random) -> Snapshot:
    """Two to four nodes: some GPUs in use by jobs of low priority, and more work than fits."""
    count = draw.randint(2, 4)
    free = {(f"n{node}", gpu) for node in range(count) for gpu in range(_GPUS)}
    jobs = []
    for number in range(draw.randint(2, 6)):
        node, size = f"n{draw.randrange(count)}", draw.choice((1, 2, 4, 8))
        there = sorted(gpu for name, gpu in free if name == node)[:size]
        if len(there) < size:
            continue
        free -= {(node, gpu) for gpu in there}
        more = {"expected_duration": draw.choice((2, 5, 24)) * 3600}
        if size == 1 and draw.random() < 0.5:
            jobs += [
                job(f"share-{number}-{part}", milli=400, at=[replica(node, gpus=there, milli=400)], **more)
                for part in range(2)
            ]
            continue
        jobs.append(job(f"runs-{number}", gpus=size, at=[replica(node, gpus=there)], **more))
    for number in range(draw.randint(3, 8)):
        more = {"priority": draw.choice((0, 1, 5, 9)), "expected_duration": draw.choice((1, 3, 24)) * 3600}
        shape = draw.choice(("one", "gang", "elastic", "share"))
        if shape == "share":
            jobs.append(job(f"waits-{number}", milli=draw.choice((200, 500, 700)), **more))
            continue
        replicas: Any = {"one": 1, "gang": draw.randint(2, 3), "elastic": (1, 3)}[shape]
        jobs.append(job(f"waits-{number}", gpus=draw.choice((1, 2, 4, 8)), replicas=replicas, **more))
    return snapshot(nodes=cluster(count), jobs=jobs)
