"""
The simulated cluster: durable, with its own clock that moves only on request.

It does not trust a plan. It gives a job only places where the job may run and all its resources are free. It
changes nodes only if no running job is affected. Several processes may use one cluster at the same time.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import ACTIONS, NodeAction, info_of
from gpuplan.models.units import LONGEST_SECONDS
from gpuplan.planner.analysis.effects import apply_action
from gpuplan.planner.analysis.node_actions import rules_of
from gpuplan.planner.apply.promises import SUBJECT
from gpuplan.planner.executors import simulated_events as events
from gpuplan.planner.executors.interface import LANDED, NOT_BEGUN, RESERVED, ExecutionError, Pin
from gpuplan.planner.executors.simulated_file import create_file, open_file, transaction, translate_errors
from gpuplan.planner.executors.simulated_jobs import (
    abort_start,
    change_job,
    drop_reservations_of_others,
    reserve_start,
)
from gpuplan.planner.executors.simulated_tables import Tables
from gpuplan.planner.io.file_lock import exclusive_lock
from gpuplan.planner.text_format import action_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime
    from typing import Self

    from gpuplan.models.placement import Promise
    from gpuplan.models.plan.actions import ActionKind, Change, JobChangeAction, ScaleUp, Start
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.executors.interface import ActionProgress


class _World(Tables):
    """The tables of a cluster, as the world in which actions are carried out."""

    def ready_at(self, action: ScaleUp) -> datetime | None:
        """The end of provisioning: a node accepts jobs at once, and they run from then on."""
        pool = self.pool(action.pool)
        return self.clock() + timedelta(seconds=pool.provisioning) if pool and pool.provisioning else None

    def change_job(self, action: JobChangeAction) -> None:
        """See `World`."""
        change_job(self, action)


_P = ParamSpec("_P")
_Found = TypeVar("_Found")


def _event(
    cause: Callable[Concatenate[Tables, _P], _Found],
) -> Callable[Concatenate[SimulatedCluster, _P], _Found]:
    """The method that causes an event in a transaction of its own."""

    @wraps(cause)
    def method(cluster: SimulatedCluster, /, *args: _P.args, **kwargs: _P.kwargs) -> _Found:
        with cluster.changing() as tables:
            return cause(tables, *args, **kwargs)

    return method


class SimulatedCluster:
    """A cluster in a file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._db = open_file(self.path)
        self._tables = _World(self._db, self.path)
        with translate_errors(self.path):
            self._identity = self._tables.fact("identity")

    @classmethod
    def create(cls, path: str | Path, snapshot: Snapshot) -> SimulatedCluster:
        """Create a cluster in the state of the snapshot; an existing one is never overwritten."""
        create_file(Path(path), snapshot)
        return cls(path)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def identity(self) -> str:
        """Random id, set when the cluster was created."""
        return self._identity

    def exclusively(self) -> AbstractContextManager[None]:
        """Lock the cluster against other applies; reading and moving the clock stay possible."""
        return exclusive_lock(self.path, subject=f"simulated cluster {self.path}")

    def looking(self) -> AbstractContextManager[None]:
        """See `ClusterWriter`: the same lock."""
        return self.exclusively()

    @contextmanager
    def changing(self) -> Iterator[_World]:
        """The tables, in one transaction: all that is changed in them is, or nothing."""
        with transaction(self._db, self.path, write=True):
            yield self._tables

    def snapshot(self) -> Snapshot:
        """Snapshot at the cluster's present time, canonical."""
        with transaction(self._db, self.path, write=False):
            return self._tables.snapshot()

    @property
    def can(self) -> frozenset[ActionKind]:
        """Everything."""
        return frozenset(ACTIONS)

    @property
    def pins(self) -> frozenset[Pin]:
        """Everything."""
        return frozenset(Pin)

    def observe(self, keys: Collection[str]) -> dict[str, ActionProgress]:
        """Every action lands when it begins, so each has landed, or is reserved, or was not begun."""
        with transaction(self._db, self.path, write=False):
            return {key: self._progress(key) for key in keys}

    def _progress(self, key: str) -> ActionProgress:
        if self._tables.performed(key):
            return LANDED
        return NOT_BEGUN if self._tables.reserved_start(key) is None else RESERVED

    def undo(self, key: str) -> None:
        """Do nothing: no action is under way."""

    def begin(self, action: Change, key: str) -> ActionProgress:
        """Carry out the action at the cluster's present time, all or nothing; once for each key."""
        with self.changing() as tables:
            if tables.performed(key):
                return LANDED
            drop_reservations_of_others(tables, key)
            if isinstance(action, NodeAction) and (why := rules_of(action).refusal(tables, action)):
                raise ExecutionError(f"node {action.node} cannot {info_of(action).passive}: {why}.")
            apply_action(tables, action)
            tables.enter_operation(key, action_subject(action), tables.clock())
        return LANDED

    def reserve(self, action: Start, key: str) -> ActionProgress:
        """See `ClusterWriter`: the places of the start count as held from now on."""
        with self.changing() as tables:
            found = self._progress(key)
            if found is NOT_BEGUN:
                reserve_start(tables, action, key)
            return RESERVED if found is NOT_BEGUN else found

    def abort(self, key: str, reason: str) -> None:  # noqa: ARG002 - it takes no time, and leaves no trace
        """See `ClusterWriter`."""
        with self.changing() as tables:
            abort_start(tables, key)

    def keep_promises(self, promises: Mapping[str, Promise], key: str) -> None:
        """Set these promises on pending jobs and clear all others; once for each key."""
        with self.changing() as tables:
            if tables.performed(key):
                return
            tables.put_promises(promises)
            tables.enter_operation(key, SUBJECT, tables.clock())

    def advance(self, seconds: int) -> datetime:
        """
        Move the clock forward and return its new time.

        Jobs that end by then are finished and removed, and nodes that are provisioned by then are ready. A
        job ends at its expected end, but not before the old time, as it still ran then. A job with a kill
        time before its expected end has failed.
        """
        if not 0 <= seconds <= LONGEST_SECONDS:
            raise PlannerError(
                f"a cluster's clock moves forward only: expected 0 to {LONGEST_SECONDS} seconds, "
                f"found {seconds}."
            )
        with self.changing() as tables:
            return events.advance_clock(tables, seconds)

    submit = _event(events.submit)
    end_job = _event(events.end_job)
    announce = _event(events.announce)
    fail_node = _event(events.fail_node)
    return_node = _event(events.return_node)
    fail_gpu = _event(events.fail_gpu)
    repair_gpu = _event(events.repair_gpu)

    def finished(self) -> tuple[tuple[str, datetime], ...]:
        """Finished jobs with their end times, by time and name."""
        with transaction(self._db, self.path, write=False):
            return self._tables.finished()

    def operations(self) -> tuple[tuple[str, str], ...]:
        """Key and subject of all performed operations, in order."""
        with transaction(self._db, self.path, write=False):
            return self._tables.operations()
