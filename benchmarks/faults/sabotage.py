"""Defects planted into a command, which the checker has to find: this is how it can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _starts_twice() -> None:
    """An executor that carries a start out a second time, under another key."""
    from gpuplan.planner.executors.simulated import SimulatedCluster

    begin = SimulatedCluster.begin

    def twice(self: SimulatedCluster, action: Any, key: str) -> Any:
        found = begin(self, action, key)
        if action.type == "start":
            self._db.execute(
                "INSERT INTO operations VALUES (?, 'again', 'now')",
                (key.replace(":", "x:", 1),),
            )
        return found

    SimulatedCluster.begin = twice  # type: ignore[method-assign]


def _after_start(statement: str) -> Callable[[], None]:
    """An executor that damages its tables once a job has started."""

    def plant() -> None:
        from gpuplan.planner.executors.simulated import SimulatedCluster

        begin = SimulatedCluster.begin

        def damaging(self: SimulatedCluster, action: Any, key: str) -> Any:
            found = begin(self, action, key)
            if action.type == "start":
                self._db.execute(statement, {"job": action.job})
            return found

        SimulatedCluster.begin = damaging  # type: ignore[method-assign]

    return plant


def _says_done() -> None:
    """A cluster that answers `landed` and has done nothing."""
    from gpuplan.planner.executors.interface import LANDED
    from gpuplan.planner.executors.simulated import SimulatedCluster

    def idle(*_: Any) -> Any:
        return LANDED

    SimulatedCluster.begin = idle  # type: ignore[method-assign]


def _says_nothing() -> None:
    """A journal that leaves the outcomes of starts out."""
    from gpuplan.planner.apply.journal import ApplyJournal

    done = ApplyJournal.done

    def quiet(self: ApplyJournal, action: Any, **how: Any) -> None:
        if action.type != "start":
            done(self, action, **how)

    ApplyJournal.done = quiet  # type: ignore[method-assign]


def _leaves_a_draft() -> None:
    """A command that leaves a half-written file behind."""
    from gpuplan.planner.executors.simulated import SimulatedCluster

    begin = SimulatedCluster.begin

    def messy(self: SimulatedCluster, action: Any, key: str) -> Any:
        self.path.with_name("half.draft").touch()
        return begin(self, action, key)

    SimulatedCluster.begin = messy  # type: ignore[method-assign]


def _breaks() -> None:
    """An executor with a defect."""
    from gpuplan.planner.executors.simulated import SimulatedCluster

    def broken(*_: Any) -> Any:
        raise AssertionError

    SimulatedCluster.begin = broken  # type: ignore[method-assign]


def _supervises_twice() -> None:
    """A host that begins an attempt under two supervisors."""
    from gpuplan.planner.executors.local import runs

    start = runs.start

    def twice(folder: Any, number: int, wanted: dict[str, Any]) -> None:
        start(folder, number, wanted)
        runs.write_private(folder / "attempt-99.json", wanted)
        start(folder, 99, wanted)

    runs.start = twice


_LOSES: Final = "DELETE FROM jobs WHERE name = :job"
_PART: Final = "DELETE FROM held WHERE rowid = (SELECT max(rowid) FROM held WHERE job = :job)"
_TWICE: Final = "INSERT INTO held SELECT job, node, replica FROM held WHERE job = :job"

SABOTAGES: Final[Mapping[str, Callable[[], None]]] = {
    "starts twice": _starts_twice,
    "loses a job": _after_start(_LOSES),
    "drops a replica": _after_start(_PART),
    "gives GPUs twice": _after_start(_TWICE),
    "says done": _says_done,
    "says nothing": _says_nothing,
    "leaves a draft": _leaves_a_draft,
    "breaks": _breaks,
    "supervises twice": _supervises_twice,
}
"""What each does, by name."""
