"""
The simulated cluster: durable, with its own clock that moves only on request.

It does not trust a plan. It gives a job only places where the job may run and all its resources are free. It
changes nodes only if no running job is affected. Several processes may use one cluster at the same time.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from gpuplan.models.dependency import FinishedJob, JobOutcome, RetryWhen
from gpuplan.models.errors import PlannerError, listed
from gpuplan.models.plan.actions import ACTIONS, NodeAction, info_of
from gpuplan.models.timing.progress import running_speed_milli, working_since
from gpuplan.models.units import LONGEST_SECONDS, MILLI
from gpuplan.models.validation.base import gpu_indices
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.analysis.effects import apply_action
from gpuplan.planner.analysis.node_actions import rules_of
from gpuplan.planner.apply.promises import SUBJECT
from gpuplan.planner.executors.interface import LANDED, NOT_BEGUN, RESERVED, ExecutionError, Pin
from gpuplan.planner.executors.simulated_file import create_file, open_file, transaction, translate_errors
from gpuplan.planner.executors.simulated_jobs import (
    abort_start,
    change_job,
    drop_reservations_of_others,
    interrupt,
    reserve_start,
)
from gpuplan.planner.executors.simulated_tables import Tables
from gpuplan.planner.io.file_lock import exclusive_lock
from gpuplan.planner.text_format import action_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from gpuplan.models.calendar import Reservation
    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Promise
    from gpuplan.models.plan.actions import ActionKind, Change, JobChangeAction, ScaleUp, Start
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.executors.interface import ActionProgress


# Events: time passes, jobs are submitted, nodes fail and come back. No plan does these, so they are not
# operations with a key. A failure or return of a node takes a second. Otherwise the cluster could have the
# same state twice at the same time: its plan would have the same id, and all its actions would count as done.

_MOMENT: Final = 1
"""Seconds that a failure or return of a node takes."""


def _advance_clock(tables: Tables, seconds: int) -> datetime:
    """Advance the clock: finish jobs that end by then, and make nodes provisioned by then ready."""
    old = tables.clock()
    new = old + timedelta(seconds=seconds)
    for job, end, killed in tables.ending_by(new):
        at = max(old, datetime.fromtimestamp(end, tz=UTC))
        outcome = JobOutcome.FAILED if killed else JobOutcome.SUCCEEDED
        # A job that is killed so that another one can start is not tried again.
        if killed or not _requeue(tables, job, outcome, at):
            tables.finish(_over(job, at=at, outcome=outcome, pace=_pace(tables, job)))
    for node in tables.nodes_ready_by(new):
        tables.put_node(node.model_copy(update={"ready_at": None}))
    tables.set_clock(new)
    return new


def _end_job(tables: Tables, name: str, outcome: JobOutcome) -> bool:
    """End a running job, which takes a second; True if it waits again, as its retry rule says."""
    _advance_clock(tables, _MOMENT)
    job = tables.job(name)
    if job is None or job.running is None:
        found = "no such job" if job is None else "it waiting"
        raise PlannerError(
            f"expected job {name} to run, found {found}.\n`gpuplan snapshot --from simulated` lists the jobs."
        )
    if _requeue(tables, job, outcome, tables.clock()):
        return True
    tables.finish(_over(job, at=tables.clock(), outcome=outcome, pace=_pace(tables, job)))
    return False


def _requeue(tables: Tables, job: Job, outcome: JobOutcome, at: datetime) -> bool:
    """
    Let a job that has ended wait again, if its retry rule says so; False if it does not.

    After a failure it keeps what its last checkpoint saved, after a success it begins anew.
    """
    if job.retry is None:
        return False
    if outcome is JobOutcome.SUCCEEDED:
        if job.retry.when is not RetryWhen.ALWAYS:
            return False
        anew = {"progress": None, "failures": 0, "failed_at": None, "submitted_at": at}
        tables.put_running(job.model_copy(update=anew), None, ends_at=None)
        return True
    failures = job.failures + 1
    if job.retry.is_used_up(failures):
        return False
    interrupt(tables, job.model_copy(update={"failures": failures, "failed_at": at}))
    return True


def _submit(tables: Tables, jobs: Sequence[Job]) -> None:
    """
    Add pending jobs, all or none.

    Raises
    ------
    PlannerError
        Lists all problems: a job that is running, a name that is taken, a queue that is unknown.
    """
    live = tables.snapshot()
    problems = [f"job {job.name} runs; expected jobs that wait." for job in jobs if job.running is not None]
    waiting = tuple(job for job in jobs if job.running is None)
    # The new jobs are last, so that a problem's location tells whether it concerns one of them.
    whole = live.model_copy(update={"jobs": (*live.jobs, *waiting)})
    problems += [
        problem.message
        for problem in inconsistencies(whole)
        if problem.location[0] == "jobs" and int(problem.location[1]) >= len(live.jobs)
    ]
    if problems:
        raise PlannerError(
            f"the cluster takes none of these jobs:{listed(problems)}\n"
            "Correct them and submit all of them again."
        )
    for job in jobs:
        tables.add_job(job)


def _announce(tables: Tables, window: Reservation, *, drains: bool) -> None:
    """Add a reservation window, in place of one of its name; its nodes are to be drained if `drains`."""
    _advance_clock(tables, _MOMENT)
    tables.put_reservation(window)
    for name in window.nodes if drains else ():
        tables.put_node(_node(tables, name).model_copy(update={"drain": True}))


def _fail_node(tables: Tables, name: str) -> tuple[str, ...]:
    """Take a node down; its jobs are pending again with their saved progress. Returns their names."""
    _advance_clock(tables, _MOMENT)
    node = _node(tables, name)
    if not node.ready:
        raise PlannerError(
            f"expected a node that is up, found {name} down already.\n"
            f"`gpuplan simulated return {name}` brings it back."
        )
    # A job that only has places reserved there waits on.
    stopped = [job for job in filter(None, map(tables.job, tables.jobs_on(name))) if job.running]
    for job in stopped:
        interrupt(tables, job)
    tables.put_node(node.model_copy(update={"ready": False}))
    return tuple(job.name for job in stopped)


def _fail_gpu(tables: Tables, name: str, index: int) -> tuple[str, ...]:
    """Make a GPU unhealthy; returns the jobs that hold it, which run on until a plan releases them."""
    node = _with_health(tables, name, index, healthy=False)
    tables.put_node(node)
    return tuple(
        job.name
        for job in filter(None, map(tables.job, tables.jobs_on(name)))
        if job.running
        and any(
            replica.node == name and any(held.index == index for held in replica.gpus)
            for replica in job.running.replicas
        )
    )


def _repair_gpu(tables: Tables, name: str, index: int) -> None:
    """Make an unhealthy GPU healthy again."""
    tables.put_node(_with_health(tables, name, index, healthy=True))


def _with_health(tables: Tables, name: str, index: int, *, healthy: bool) -> Node:
    """The node with one GPU set to healthy or unhealthy; advances the clock by a second."""
    _advance_clock(tables, _MOMENT)
    node = _node(tables, name)
    gpu = node.gpus.by_index.get(index) if node.gpus else None
    if node.gpus is None or gpu is None:
        raise PlannerError(f"node {name} has no GPU {index}; expected {gpu_indices(node.gpu_count)}.")
    if gpu.healthy is healthy:
        state = "healthy" if healthy else "unhealthy"
        raise PlannerError(f"GPU {index} of node {name} is {state} already; there is nothing to change.")
    others = (other for other in node.gpus.details if other.index != index)
    details = sorted(
        (*others, gpu.model_copy(update={"healthy": healthy, "fault": ""})), key=lambda each: each.index
    )
    return node.model_copy(update={"gpus": node.gpus.model_copy(update={"details": tuple(details)})})


def _return_node(tables: Tables, name: str) -> None:
    """Bring a node that is down back up."""
    _advance_clock(tables, _MOMENT)
    node = _node(tables, name)
    if node.ready:
        raise PlannerError(f"expected a node that is down, found {name} up.\nThere is nothing to bring back.")
    tables.put_node(node.model_copy(update={"ready": True}))


def _over(job: Job, *, at: datetime, outcome: JobOutcome, pace: int) -> FinishedJob:
    """The finished job; its times give the duration of the whole job at the places where it ran last."""
    started_at = min(at, working_since(job.running)) if job.running else at
    if outcome is JobOutcome.SUCCEEDED and job.expected_duration is not None:
        whole = -(-job.expected_duration * MILLI // pace)
        started_at = min(started_at, at - timedelta(seconds=whole))
    return FinishedJob(
        name=job.name,
        queue=job.queue,
        user=job.user,
        outcome=outcome,
        started_at=started_at,
        ended_at=at,
    )


def _pace(tables: Tables, job: Job) -> int:
    return running_speed_milli(job, tables.nodes_of(job.running_replicas))


def _node(tables: Tables, name: str) -> Node:
    node = tables.node(name)
    if node is None:
        raise PlannerError(
            f"expected a node of the cluster, found none named {name!r}.\n"
            "`gpuplan snapshot --from simulated` lists them."
        )
    return node


# The cluster itself.


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
            return _advance_clock(tables, seconds)

    submit = _event(_submit)
    end_job = _event(_end_job)
    announce = _event(_announce)
    fail_node = _event(_fail_node)
    return_node = _event(_return_node)
    fail_gpu = _event(_fail_gpu)
    repair_gpu = _event(_repair_gpu)

    def finished(self) -> tuple[tuple[str, datetime], ...]:
        """Finished jobs with their end times, by time and name."""
        with transaction(self._db, self.path, write=False):
            return self._tables.finished()

    def operations(self) -> tuple[tuple[str, str], ...]:
        """Key and subject of all performed operations, in order."""
        with transaction(self._db, self.path, write=False):
            return self._tables.operations()
