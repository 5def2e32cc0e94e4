"""
One campaign: worlds and faults at random, the recovery from each, and what is wrong afterwards.

A run makes a world and a plan, and carries the plan out by `gpuplan apply` or `gpuplan run` while a fault
strikes. Then it does what operators do: the same command again with `--resume`, another plan if that one is
stale, and plans until nothing is left to change. The checker judges right after the fault and at the end.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.faults import checker, kinds
from benchmarks.faults.checker import Finding
from benchmarks.faults.kinds import Fault
from benchmarks.faults.local import LocalWorld
from benchmarks.faults.simulated import SimulatedWorld
from benchmarks.faults.slurm import SlurmWorld, slurm_for_faults
from benchmarks.faults.world import mountable
from benchmarks.markdown import seconds, table
from benchmarks.records import append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.faults.world import World
    from benchmarks.records import Record

NAME: Final = "faults"
EXECUTORS: Final = ("simulated", "local", "slurm")
SHARES: Final = {"simulated": 0.8, "local": 0.15, "slurm": 0.05}
"""Parts of the runs; those on real processes and a real Slurm take longer."""
MOST_TRIES: Final = 8
_AT_REST: Final = 4
"""Plans until nothing is left to change."""
_STALE, _DONE = 21, 0


@dataclass(slots=True)
class Run:
    """What came of one run."""

    executor: str
    kind: str
    seed: int
    command: str = "apply"
    struck: int = 0
    tries: int = 0
    """Commands until it was recovered; 0 if the one that was struck came to its end."""
    recovery: float = 0.0
    """Seconds of these commands."""
    findings: list[Finding] = field(default_factory=list)

    def record(self) -> Record:
        """As a line of a log."""
        return {
            "case": f"{self.executor}, {self.kind}",
            "executor": self.executor,
            "kind": self.kind,
            "seed": self.seed,
            "command": self.command,
            "struck": self.struck,
            "tries": self.tries,
            "recovery": round(self.recovery, 3),
            "bad": checker.by_kind(self.findings),
        }


def one_run(world: World, run: Run, draw: random.Random, sabotage: str = "") -> None:
    """Let a fault strike in a world, recover from it, and judge."""
    if run.kind == kinds.FULL:
        world.mount()
    plan = world.populate()
    submitted = world.submitted()
    fault = _drawn(world, run, draw, plan, sabotage)
    rival = _rival(world, draw) if run.kind == kinds.SECOND else plan
    words = world.apply_words(plan, resume=False)
    if run.command == "run":
        words = world.run_words()
    struck = world.gpuplan(*words, fault=fault, meanwhile=_meanwhile(world, run, rival))
    run.struck = fault.struck
    world.empty_disk()
    run.findings += checker.told(struck.code, struck.output)
    run.findings += checker.structure(submitted, world.truth())
    if run.kind == kinds.SECOND:
        told = world.gpuplan(*world.apply_words(rival, resume=False))
        run.findings += checker.told(told.code, told.output)
    began = time.monotonic()
    if struck.code != _DONE:
        recover(world, run, plan)
    run.recovery = time.monotonic() - began
    world.settle()
    _come_to_rest(world, run)
    truth = world.truth()
    run.findings += checker.structure(submitted, truth)
    run.findings += checker.audited(world.audit, truth)
    run.findings += checker.seen(world.snapshot(), truth, exactly=world.exactly)
    run.findings += [Finding(checker.LEFT, text) for text in truth.left]
    run.findings = list(dict.fromkeys(run.findings))


def _drawn(world: World, run: Run, draw: random.Random, plan: str, sabotage: str) -> Fault:
    edges, calls = world.edges(world.changes(plan))
    if run.command == "run":
        edges, calls = edges + 60, calls + 2
    among = edges if run.kind == kinds.KILLED else calls
    if run.kind == kinds.SECOND and run.executor == "local":
        among = 3
    count = draw.randint(1, 4) if run.kind in (kinds.FAILS, kinds.TIMEOUT, kinds.UNANSWERED) else 1
    folder = world.folder / "fault"
    folder.mkdir()
    whens = ("before", "after", "half")
    if run.kind == kinds.KILLED and run.executor == "local":
        whens = (*whens, kinds.SUPERVISOR)
    return Fault(
        kind=run.kind,
        executor=run.executor,
        edges=frozenset(draw.randrange(among) for _ in range(count)),
        when=draw.choice(whens),
        jump=draw.choice((-1, 1)) * draw.choice((60, 3600, 86_400, 30 * 86_400)),
        folder=str(folder),
        sabotage=sabotage,
    )


def _rival(world: World, draw: random.Random) -> str:
    """A plan for the same snapshot with other rules."""
    goal = draw.choice(({"goal": "value"}, {"goal": "completion"}))
    world.write_policy("rival.yaml", objective=goal, disruption={"preempt": draw.random() < 0.5})
    return world.plan("rival.yaml")


def _meanwhile(world: World, run: Run, rival: str) -> Callable[[], None] | None:
    """What happens outside while the command waits."""

    def second() -> None:
        told = world.gpuplan(*world.apply_words(rival, resume=False))
        run.findings += checker.told(told.code, told.output)

    def full() -> None:
        world.fill_disk()
        # An apply that can wait for room does so until the action lasts too long.
        room = threading.Timer(world.draw.choice((1, 3, 6)), world.empty_disk)
        room.daemon = True
        room.start()

    happens: dict[str, Callable[[], None]] = {
        kinds.NODE_LOST: world.lose_node,
        kinds.SECOND: second,
        kinds.FULL: full,
    }
    return happens.get(run.kind)


def recover(world: World, run: Run, plan: str) -> None:
    """Do what an operator does until a command comes to its end; counts the tries."""
    resume = True
    for number in range(1, MOST_TRIES + 1):
        run.tries = number
        words = world.run_words() if run.command == "run" else world.apply_words(plan, resume=resume)
        ended = world.gpuplan(*words)
        run.findings += checker.told(ended.code, ended.output)
        if ended.code == _DONE:
            return
        if run.command == "apply" and ended.code == _STALE:
            world.snapshot()
            plan, resume = world.plan(), False
        else:
            resume = True
    run.findings.append(Finding(checker.UNDONE, ended.output[-300:]))


def _come_to_rest(world: World, run: Run) -> None:
    """Plan and apply until nothing is left to change."""
    ended = None
    for _ in range(_AT_REST):
        world.snapshot()
        plan = world.plan()
        if not world.changes(plan):
            # The promises of the plan, if it has any.
            world.gpuplan(*world.apply_words(plan, resume=False))
            return
        ended = world.gpuplan(*world.apply_words(plan, resume=False))
        run.findings += checker.told(ended.code, ended.output)
    run.findings.append(Finding(checker.UNDONE, f"never at rest: {ended.output[-200:] if ended else ''}"))


# Many runs, several at a time.


def runs_of(count: int, executors: Iterable[str], seed: int) -> list[Run]:
    """The runs of a campaign: each kind of fault as often as the others, on each executor."""
    chosen = tuple(executors)
    whole = sum(SHARES[name] for name in chosen)
    found = []
    for name in chosen:
        for number in range(max(1, round(count * SHARES[name] / whole))):
            draw = random.Random(f"faults {seed} {name} {number}")
            command = "run" if draw.random() < 0.25 else "apply"
            found.append(Run(name, kinds.KINDS[number % len(kinds.KINDS)], seed + number, command))
    return found


def measure(runs: Sequence[Run], *, log: Path | None = None, at_a_time: int = 2) -> Iterator[Run]:
    """Make the runs, several at a time; each is given once it is judged."""
    with tempfile.TemporaryDirectory(prefix="gpf-") as folder, ExitStack() as stack:
        if not mountable(Path(folder)):
            runs = [run for run in runs if run.kind != kinds.FULL]
        pools = []
        for name in EXECUTORS:
            own = [run for run in runs if run.executor == name]
            if not own:
                continue
            # Runs on Slurm wait most of the time, and share one cluster.
            threads = 1 if name == "slurm" else at_a_time
            slurm = stack.enter_context(slurm_for_faults(Path(folder) / "s")) if name == "slurm" else None
            pool = ThreadPoolExecutor(threads)
            stack.callback(pool.shutdown, cancel_futures=True)
            pools += [pool.submit(_measured, run, Path(folder), slurm) for run in own]
        for future in pools:
            run = future.result()
            append(log, NAME, run.record())
            yield run


def _measured(run: Run, folder: Path, slurm: Any) -> Run:
    draw = random.Random(f"faults {run.executor} {run.seed}")
    with tempfile.TemporaryDirectory(dir=folder) as own:
        world = _world(run.executor, Path(own), draw, slurm)
        try:
            one_run(world, run, draw)
        except Exception as error:  # noqa: BLE001 - one run that cannot be made must not end the others
            run.findings.append(Finding(checker.DEFECT, f"the run broke: {type(error).__name__}: {error}"))
        finally:
            world.close()
    return run


def _world(executor: str, folder: Path, draw: random.Random, slurm: Any) -> World:
    if executor == "simulated":
        return SimulatedWorld(folder, draw)
    return LocalWorld(folder, draw) if executor == "local" else SlurmWorld(folder, draw, slurm)


# The table.

_HEAD: Final = (
    *("executor", "fault", "runs", "struck", "bad ends", "came to its end"),
    *("after 1 try", "after 2", "after more", "recovery, median", "worst"),
)


def tables(records: Iterable[Record]) -> str:
    """A row for each executor and kind of fault, then each bad end with the seed of its run."""
    records = list(records)
    rows = []
    for executor in EXECUTORS:
        for kind in kinds.KINDS:
            own = [each for each in records if (each["executor"], each["kind"]) == (executor, kind)]
            if own:
                rows.append(_row(executor, kind, own))
    if len(rows) > 1:
        rows.append(_row("all", "", records))
    bad = [each for each in records if each["bad"]]
    listed = "".join(
        f"- {each['case']}, seed {each['seed']}, {each['command']}: {kind}: {'; '.join(texts)}\n"
        for each in bad
        for kind, texts in each["bad"].items()
    )
    return table(_HEAD, rows) + (f"\n{listed}" if listed else "")


def _row(executor: str, kind: str, own: list[Record]) -> tuple[str, ...]:
    # What never struck says nothing about a recovery.
    hit = [each for each in own if each["struck"]]
    tries = [each["tries"] for each in hit]
    times = [each["recovery"] for each in hit if each["tries"]]
    return (
        executor,
        kind,
        f"{len(own):,}",
        f"{len(hit):,}",
        str(sum(bool(each["bad"]) for each in own)),
        str(tries.count(0)),
        str(tries.count(1)),
        str(tries.count(2)),
        str(sum(each > 2 for each in tries)),
        seconds(statistics.median(times) if times else None),
        seconds(max(times, default=None)),
    )
