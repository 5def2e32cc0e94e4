"""
Job actions of the simulated cluster: start, release, preempt, shrink, grow, migrate.

Stopping takes no time. A job that is preempted, migrated or resized loses its work since its last checkpoint.
When it runs again, it first restores the checkpoint for the time that the plan states, and then does the rest
of its work. The kill time of a migrated job is delayed only by the provisioning time of its new nodes.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from gpuplan.models.placement import Running, holding, node_names
from gpuplan.models.plan.actions import Grow, Migrate, Preempt, Release, Shrink, Start, info_of
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.timing.progress import job_after_stop, running_speed_milli
from gpuplan.models.units import print_timestamp
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.executors.admission import placement_refusal
from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.simulated_file import end_time

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import NoReturn

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Holding, Replica
    from gpuplan.models.plan.actions import JobChangeAction
    from gpuplan.planner.executors.simulated_tables import Tables


def change_job(tables: Tables, action: JobChangeAction) -> None:
    """
    Change where a job runs.

    Raises
    ------
    ExecutionError
        The cluster does not allow it; nothing was changed.
    """
    match action:
        case Start():
            _start(tables, action)
        case Release():
            _release(tables, action)
        case Preempt():
            _preempt(tables, action)
        case Shrink():
            _shrink(tables, action)
        case Grow():
            _grow(tables, action)
        case Migrate():
            _migrate(tables, action)
        case _:
            assert_never(action)


def _start(tables: Tables, action: Start) -> None:
    """Run a pending job from now on, or from the time when the last of its nodes is ready."""
    job, running = _startable(tables, action)
    _run(tables, job, running)


def _startable(tables: Tables, action: Start) -> tuple[Job, Running]:
    """A pending job, and how it would run; ExecutionError if it cannot start."""
    replicas = action.after.replicas
    job = tables.job(action.job)
    if job is None:
        _refuse(action, "expected a waiting job, found no such job")
    if job.running is not None:
        places = ", ".join(sorted(node_names(job.running.replicas)))
        _refuse(action, f"expected it waiting, found it running on {places}")
    if job.held:
        _refuse(action, "expected it free to start, found it held")
    if job.retries_used_up:
        _refuse(action, f"expected it to be tried again, found {job.failures} failures")
    if job.retry_at is not None and job.retry_at > tables.clock():
        _refuse(action, f"expected it after its back-off, which ends at {print_timestamp(job.retry_at)}")
    _require_size(action, job, len(replicas))
    _require_places(tables, action, job, replicas)
    begins = _begins(tables, replicas)
    if action.kill_at is not None and action.kill_at <= begins:
        times = f"a kill time after {print_timestamp(begins)}, found {print_timestamp(action.kill_at)}"
        _refuse(action, f"expected {times}")
    running = Running(
        started_at=begins,
        resumed_at=_resumes(begins, action),
        kill_at=action.kill_at,
        replicas=replicas,
    )
    return job, running


def reserve_start(tables: Tables, action: Start, key: str) -> None:
    """
    Keep the places of a start for it until it begins, is aborted, or another plan is applied.

    Raises
    ------
    ExecutionError
        The job cannot start there; nothing was changed.
    """
    drop_reservations_of_others(tables, key)
    job, running = _startable(tables, action)
    tables.put_reservation_of_start(key, job, running)


def abort_start(tables: Tables, key: str) -> None:
    """Give the places of a start back; a job that it started waits as before it, with no trace of the run."""
    before = tables.reserved_start(key)
    if before is None:
        return
    job = tables.job(before.name)
    if job is not None and (job.running is None or tables.performed(key)):
        tables.put_waiting(before if job.running else job)
    tables.drop_reservation_of_start(key)
    tables.delete_operation(key)


def drop_reservations_of_others(tables: Tables, key: str) -> None:
    """Give back what an apply of another plan has reserved; of all applies, one at a time uses a cluster."""
    plan = key.partition(":")[0]
    for other in tables.reserved_starts():
        if other.partition(":")[0] != plan:
            job = tables.reserved_start(other)
            now = None if job is None else tables.job(job.name)
            if now is not None and now.running is None:
                tables.put_waiting(now)
            tables.drop_reservation_of_start(other)


def _preempt(tables: Tables, action: Preempt) -> None:
    """Stop a running job; it is pending with its saved progress, and its preemption count is raised."""
    job, _ = _disturbed(tables, action)
    interrupt(tables, job.model_copy(update={"preemptions": job.preemptions + 1}))


def interrupt(tables: Tables, job: Job) -> None:
    """Stop a running job; it is pending again with its saved progress."""
    tables.put_running(_stopped(tables, job), None, ends_at=None)


def _release(tables: Tables, action: Release) -> None:
    """
    Release a job's lost places; it is pending again, or continues with the replicas that are left.

    This is no preemption, so it also applies to jobs that are not preemptible. If the job has already
    released the places, nothing changes.
    """
    waits = tables.job(action.job)
    if waits is not None and waits.running is None and action.after is None:
        return
    job, running = _running(tables, action)
    if action.after is not None and _held_by(running.replicas) == _held_by(action.after.replicas):
        return
    if _held_by(running.replicas) != _held_by(action.before.replicas):
        _refuse(action, "expected it where the plan found it, found it elsewhere")
    if not _has_lost_places(tables, job):
        _refuse(action, "expected it to have lost places, found that all of them hold")
    if action.after is None:
        interrupt(tables, job)
        return
    _require_size(action, job, len(action.after.replicas))
    if not _held_by(action.after.replicas) < _held_by(running.replicas):
        _refuse(action, "expected fewer of the replicas that run, found others")
    _resize(tables, job, running, action.after.replicas, interruption=None)


def _shrink(tables: Tables, action: Shrink) -> None:
    """Remove replicas of a running job; it continues with the others from its last checkpoint."""
    job, running = _disturbed(tables, action)
    _require_size(action, job, len(action.after.replicas))
    if not _held_by(action.after.replicas) < _held_by(running.replicas):
        _refuse(action, "expected fewer of the replicas that run, found others")
    _resize(tables, job, running, action.after.replicas, interruption=action.interruption)


def _grow(tables: Tables, action: Grow) -> None:
    """Add replicas to a running job; it continues with all of them from its last checkpoint."""
    job, running = _running(tables, action)
    _require_size(action, job, len(action.after.replicas))
    missing = _held_by(running.replicas)
    if not missing < _held_by(action.after.replicas):
        _refuse(action, "expected all replicas that run and more, found others")
    added = []
    for replica in action.after.replicas:
        if missing[holding(replica)]:
            missing[holding(replica)] -= 1
        else:
            added.append(replica)
    _require_places(tables, action, job, added, beside_its_own=True)
    _resize(tables, job, running, action.after.replicas, interruption=action.interruption)


def _migrate(tables: Tables, action: Migrate) -> None:
    """Move a running job to other places in one step; it continues there from its last checkpoint."""
    job, running = _disturbed(tables, action)
    replicas = action.after.replicas
    if len(replicas) != len(running.replicas):
        _refuse(action, f"expected {len(running.replicas)} replicas as it runs, found {len(replicas)}")
    _require_places(tables, action, job, replicas)
    begins = _begins(tables, replicas)
    waits = begins - max(tables.clock(), running.started_at)
    kill_at = None if running.kill_at is None else running.kill_at + waits
    moved = Running(
        started_at=begins,
        resumed_at=_resumes(begins, action),
        kill_at=kill_at,
        resized_at=running.resized_at,
        replicas=replicas,
    )
    _run(tables, _stopped(tables, job), moved)


def _stopped(tables: Tables, job: Job) -> Job:
    """A running job as it is pending after a stop."""
    nodes = tables.nodes_of(job.running_replicas)
    return job_after_stop(job, running_speed_milli(job, nodes), tables.clock())


def _resumes(begins: datetime, action: Start | Migrate) -> datetime | None:
    """Time when a job works again after its recovery; None if that is at once."""
    return begins + timedelta(seconds=action.recovery) if action.recovery else None


def _run(tables: Tables, job: Job, running: Running) -> None:
    """Let a job run until the rest of its work is done."""
    runs = job.model_copy(update={"running": running})
    nodes = tables.nodes_of(running.replicas)
    tables.put_running(job, running, ends_at=end_time(runs, nodes))


def _has_lost_places(tables: Tables, job: Job) -> bool:
    nodes = tables.nodes_of(job.running_replicas)
    cluster = tables.cluster().model_copy(update={"nodes": tuple(nodes.values())})
    jobs = (job, *(each for each in tables.group_of(job) if each.name != job.name))
    found = Snapshot(taken_at=tables.clock(), cluster=cluster, queues=(), jobs=jobs)
    return job.name in survey_damage(found).losses


def _disturbed(tables: Tables, action: Preempt | Shrink | Migrate) -> tuple[Job, Running]:
    """The running job; ExecutionError if it may not be preempted, shrunk or migrated."""
    job, running = _running(tables, action)
    if not job.preemptible:
        _refuse(action, "expected a preemptible job, found it not preemptible")
    return job, running


def _running(tables: Tables, action: Release | Preempt | Shrink | Grow | Migrate) -> tuple[Job, Running]:
    job = tables.job(action.job)
    if job is None:
        _refuse(action, "expected a running job, found no such job")
    if job.running is None:
        _refuse(action, "expected it running, found it waiting")
    return job, job.running


def _resize(
    tables: Tables, job: Job, running: Running, replicas: tuple[Replica, ...], *, interruption: int | None
) -> None:
    """Continue the job with these replicas; with `interruption` None its work is not interrupted."""
    now = tables.clock()
    update: dict[str, object] = {"replicas": replicas}
    if interruption is not None:
        update["resized_at"] = now
    if running.started_at > now:
        # Its nodes are still being provisioned, so it has no work to lose; the new nodes may be ready later.
        begins = _begins(tables, replicas)
        waits = begins - running.started_at
        later = {"resumed_at": running.resumed_at, "kill_at": running.kill_at}
        update |= {"started_at": begins, **{key: at and at + waits for key, at in later.items()}}
    elif interruption is not None:
        job = _stopped(tables, job)
        update["resumed_at"] = now + timedelta(seconds=interruption)
    _run(tables, job, running.model_copy(update=update))


def _require_size(action: Release | Start | Shrink | Grow, job: Job, replicas: int) -> None:
    gang = job.gang
    if not gang.minimum <= replicas <= gang.maximum:
        _refuse(action, f"expected {gang.minimum} to {gang.maximum} replicas, found {replicas}")


def _require_places(
    tables: Tables,
    action: Start | Grow | Migrate,
    job: Job,
    replicas: Iterable[Replica],
    *,
    beside_its_own: bool = False,
) -> None:
    """Refuse places that do not suit the job or are not free; its own count as free unless it keeps them."""
    replicas = tuple(replicas)
    used = node_names(replicas)
    why = placement_refusal(
        job,
        replicas,
        nodes=tables.nodes(used),
        held=tables.held(used, but="" if beside_its_own else job.name),
        cluster=tables.cluster(),
    )
    if why is not None:
        _refuse(action, why)


def _begins(tables: Tables, replicas: Iterable[Replica]) -> datetime:
    """Present time, or the time when the last of the nodes is ready."""
    nodes = tables.nodes_of(replicas).values()
    return max([tables.clock(), *(node.ready_at for node in nodes if node.ready_at)])


def _held_by(replicas: Iterable[Replica]) -> Counter[Holding]:
    return Counter(map(holding, replicas))


def _refuse(action: JobChangeAction, why: str) -> NoReturn:
    raise ExecutionError(f"job {action.job} cannot {info_of(action).passive}: {why}.")
