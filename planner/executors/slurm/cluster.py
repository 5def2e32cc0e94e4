"""A Slurm cluster as an executor: it places, stops and moves the jobs that are handed to gpuplan."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import NODE_KINDS, ActionKind, Migrate, NodeAction, ScaleUp, Start
from gpuplan.planner.action_marks import PROMISES, MarkStage, kind_of, subject_of
from gpuplan.planner.executors.interface import (
    GONE,
    LANDED,
    RESERVED,
    ActionPhase,
    ActionProgress,
    ExecutionError,
    Pin,
    UnreachableError,
)
from gpuplan.planner.executors.job_steps import Deed, failed
from gpuplan.planner.executors.slurm import steps
from gpuplan.planner.executors.slurm.cluster_lock import ClusterLock
from gpuplan.planner.executors.slurm.commands import (
    call,
    cluster_identity,
    hold,
    jobs_table,
    nodes_table,
    placement_now,
    update,
)
from gpuplan.planner.executors.slurm.fence import PREFIX, Fences, fenced_nodes
from gpuplan.planner.sources.slurm.managed import Mark, Marks
from gpuplan.planner.sources.slurm.slurm import SLURM_CAN, read_slurm_live
from gpuplan.planner.sources.slurm.values import hosts, name_of
from gpuplan.planner.text_format import action_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gpuplan.models.placement import Placement, Promise
    from gpuplan.models.plan.actions import Change, JobChangeAction
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.action_marks import JobSignal
    from gpuplan.planner.executors.slurm.commands import JobRow, NodeRow


_LOG: Final = logging.getLogger(__name__)

_BEGIN_IN: Final = 2
"""Seconds. A requeued job that may start in the second of its requeue loses its credential, and fails."""


class SlurmCluster:
    """The cluster that Slurm's commands on this machine speak to."""

    def __init__(self) -> None:
        """
        Ask Slurm for the identity of the cluster.

        Raises
        ------
        PlannerError
            Slurm's commands are not there, or the controller does not answer.
        """
        self._identity = cluster_identity()
        self._notices: Mapping[str, JobSignal | None] = {}
        """The jobs that are handed to gpuplan."""
        self._node_names: dict[str, str] = {}
        """Slurm's names of nodes with other names in snapshots."""
        self._fences = Fences()
        self._lock = ClusterLock(f"Slurm cluster {self._identity}")
        self._locked = False
        self._only_looking = False
        self._looked = False
        """True once a snapshot was taken under the present lock: what follows is no first look."""
        self._carried_out = False
        """True if this lock was for more than to find that a plan of which steps are left is refused."""
        self._job_count = 0
        """Jobs in the last snapshot; 0 before the first."""
        self._tried: defaultdict[str, frozenset[Deed]] = defaultdict(frozenset)
        """What this process did for each key since the last mark."""
        self._unlanded: set[str] = set()
        """Actions that the first look under the present lock found done, and not marked as done."""

    @property
    def identity(self) -> str:
        """Name of the cluster with the host and port of its controller."""
        return self._identity

    @property
    def can(self) -> frozenset[ActionKind]:
        """All but to change the size of a job and the MIG layout of a GPU."""
        return frozenset(SLURM_CAN)

    @property
    def pins(self) -> frozenset[Pin]:
        """Nodes: Slurm itself chooses the GPUs of a job on its nodes."""
        return frozenset({Pin.NODE})

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Lock the cluster against other applies, on all machines."""
        with self._lock.held():
            self._locked, self._looked, self._carried_out = True, False, False
            try:
                yield
            finally:
                self._land_what_has_landed()
                self._locked = False
                # If this one is refused, what a killed apply fenced stays for that apply to go on.
                self._fences.leave(removed=self._carried_out)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """See `ClusterWriter`: without a lock of its own, which only operators can make."""
        self._lock.require_free()
        self._only_looking = True
        try:
            yield
        finally:
            self._only_looking = False

    def snapshot(self) -> Snapshot:
        """The cluster now; jobs that are not handed to gpuplan are held, or stay where they are."""
        self._lock.keep()
        reading = read_slurm_live(managed=True, fenced=fenced_nodes())
        self._notices, self._job_count = reading.managed, len(reading.snapshot.jobs)
        self._looked = True
        return reading.snapshot

    # --- the protocol --------------------------------------------------------------------------------------

    def begin(self, action: Change, key: str) -> ActionProgress:
        """See `ClusterWriter`."""
        self._lock.keep()
        self._carried_out = True
        if ActionKind(action.type) not in SLURM_CAN:
            raise ExecutionError(f"{action_subject(action)}: a Slurm cluster cannot {action.type} it.")
        if isinstance(action, NodeAction):
            return self._begin_node(action, key)
        return self._begin_job(action, key)

    def observe(self, keys: Collection[str]) -> dict[str, ActionProgress]:
        """See `ClusterWriter`; steps that are due are done, but not by the first look under a lock."""
        self._lock.keep()
        self._fences.keep()
        kinds = {key: kind_of(key) for key in keys}
        jobs = _jobs_of(kinds, self._job_count)
        nodes = self._nodes() if any(kind in NODE_KINDS for kind in kinds.values()) else {}
        found = {}
        for key, kind in kinds.items():
            subject = subject_of(key)
            if kind == PROMISES:
                found[key] = LANDED if steps.has_promises(jobs, key) else GONE
            elif kind in NODE_KINDS:
                found[key] = steps.progress_of_node(_mark(nodes.get(subject), key), nodes.get(subject))
            else:
                found[key] = self._observe_job(key, jobs.get(subject))
        over = all(progress.phase is ActionPhase.LANDED for progress in found.values())
        self._carried_out |= over or self._looked
        return found

    def _land_what_has_landed(self) -> None:
        """Mark as done what the first look found done without a mark: nothing looks at it again."""
        keys = tuple(self._unlanded) if self._carried_out else ()
        self._unlanded.clear()
        try:
            for key in keys:
                row = jobs_table(subject_of(key)).get(subject_of(key))
                mark = _mark(row, key)
                # An action of this plan may have changed the job since.
                step = steps.next_step(mark, row, now=time.time(), tried=frozenset())
                if row is not None and mark is not None and step.deed is Deed.LAND:
                    self._land(row, mark)
        except PlannerError as error:
            _LOG.warning("phase=apply mark=left reason=%s", error)

    def _observe_job(self, key: str, row: JobRow | None) -> ActionProgress:
        if self._only_looking or (self._locked and not self._looked):
            # An apply asks first how far the plan went.
            step = steps.next_step(_mark(row, key), row, now=time.time(), tried=self._tried[key])
            if step.deed is Deed.LAND and not self._only_looking:
                self._unlanded.add(key)
            return step.progress
        if row is None and kind_of(key) in steps.STOPS and self._tried[key] & {Deed.NOTIFY, Deed.STOP}:
            # It ended before it was seen again, and Slurm has forgotten it (MinJobAge): it holds nothing.
            return LANDED
        try:
            return self._advance(key, row)
        except UnreachableError as error:
            return ActionProgress(ActionPhase.UNKNOWN, str(error))
        except ExecutionError as error:
            return self._give_up(key, str(error))

    def _give_up(self, key: str, reason: str) -> ActionProgress:
        """Mark an action as failed that Slurm refuses on the way."""
        subject = subject_of(key)
        row = jobs_table(subject).get(subject)
        if row is not None and (mark := _mark(row, key)) is not None:
            if mark.step is MarkStage.ABORTING:
                return ActionProgress(ActionPhase.UNDER_WAY, reason)
            self._fail(row, replace(mark, step=MarkStage.FAILED, reason=reason))
        return failed(reason)

    def undo(self, key: str) -> None:
        """See `ClusterWriter`: a job that does not run yet is held again, one that still runs goes on."""
        kind, subject = kind_of(key), subject_of(key)
        if kind in NODE_KINDS or kind == PROMISES:
            return
        row = jobs_table(subject).get(subject)
        mark = _mark(row, key)
        if row is None or mark is None or not mark.step.open or mark.step is MarkStage.STOPPING:
            return
        self._take_back(row, row.marks.without(key))

    def reserve(self, action: Start, key: str) -> ActionProgress:
        """
        See `ClusterWriter`: the nodes are named and fenced, and only the release of the job is left.

        A job that cannot be requeued is refused: it could not be stopped if another of its group fails.
        """
        self._lock.keep()
        self._carried_out = True
        row = self._row_of(action.job)
        mark = _mark(row, key)
        if mark is not None and mark.step not in (MarkStage.RESERVED, MarkStage.FAILED):
            progress = self._observe_job(key, row)
            aborting = mark.step is MarkStage.ABORTING
            return ActionProgress(ActionPhase.ASKED, progress.reason) if aborting else progress
        self._require_managed(row, pending=True)
        if not row.requeues:
            raise ExecutionError(f"job {row.id} has --no-requeue; expected one that can be stopped again.")
        nodes = self._nodes_of(action.after)
        if why := steps.unavailable(nodes_table(), hosts(nodes)):
            return ActionProgress(ActionPhase.ASKED, why)
        if not hold(row):
            raise ExecutionError(f"job {row.id} cannot start: Slurm has started it.")
        self._tried.pop(key, None)
        self._fences.of(key).enclose(hosts(nodes))
        self._name_nodes(row, Mark(key, MarkStage.RESERVED, nodes))
        return RESERVED

    def abort(self, key: str, reason: str) -> None:
        """See `ClusterWriter`: a job that runs is requeued and held; the reason stays in its mark."""
        self._lock.keep()
        row = jobs_table(subject_of(key)).get(subject_of(key))
        mark = _mark(row, key)
        if row is None or mark is None or mark.step is MarkStage.FAILED:
            return
        if mark.step is not MarkStage.ABORTING:
            self._tried.pop(key, None)
            row = self._write(row, replace(mark, step=MarkStage.ABORTING, reason=reason))
        self._advance(key, row)

    def keep_promises(self, promises: Mapping[str, Promise], key: str) -> None:
        """See `ClusterWriter`."""
        self._lock.keep()
        rows = {name: row for name, row in jobs_table().items() if row.pending and name in self._notices}
        steps.set_promises(rows, promises, key)

    # --- jobs ----------------------------------------------------------------------------------------------

    def _begin_job(self, action: JobChangeAction, key: str) -> ActionProgress:
        row = self._row_of(action.job)
        mark = _mark(row, key)
        if mark is not None and mark.step not in (MarkStage.RESERVED, MarkStage.FAILED):
            return self._observe_job(key, row)
        self._require_managed(row, pending=isinstance(action, Start))
        nodes = self._nodes_of(action.after) if isinstance(action, Start | Migrate) else ""
        self._tried.pop(key, None)
        row = self._write(row, Mark(key, MarkStage.ASKED, nodes))
        return self._observe_job(key, row)

    @staticmethod
    def _row_of(job: str) -> JobRow:
        """A job, with the time of its submission among its marks."""
        row = jobs_table(job).get(job)
        if row is None:
            raise ExecutionError(f"job {job} is not on the cluster any more.")
        if row.marks.submitted is None:
            row = replace(row, marks=replace(row.marks, submitted=row.submitted))
        return row

    def _require_managed(self, row: JobRow, *, pending: bool) -> None:
        if row.id not in self._notices:
            raise ExecutionError(
                f"job {row.id} stays as it is: expected it handed to gpuplan (sbatch --hold "
                "--comment=gpuplan), found it is not."
            )

        if pending and not row.pending:
            raise ExecutionError(f"job {row.id} cannot start: it is {row.state.lower()}.")

    def _advance(self, key: str, row: JobRow | None) -> ActionProgress:
        """Do the next step of an action if its time has come."""
        mark = _mark(row, key)
        notice = self._notices.get(subject_of(key))
        grace = math.inf if notice is None else notice.seconds
        step = steps.next_step(mark, row, now=time.time(), tried=self._tried[key], grace=grace)
        if row is None or mark is None or step.deed is Deed.NOTHING:
            return step.progress
        match step.deed:
            case Deed.NOTIFY:
                self._notify(row, mark)
            case Deed.STOP:
                self._stop(row, mark)
            case Deed.PLACE:
                self._place(row, mark)
            case Deed.LAND:
                self._land(row, mark)
            case Deed.FAIL:
                self._fail(row, replace(mark, step=MarkStage.FAILED, reason=step.progress.reason))
        self._tried[key] |= {step.deed}
        if step.deed is Deed.LAND and row.running:
            return replace(step.progress, placement=placement_now(row))
        return step.progress

    def _notify(self, row: JobRow, mark: Mark) -> None:
        """Send the signal that the job asked for; one that asked for none is stopped at once."""
        notice = self._notices.get(row.id)
        if notice is None:
            self._stop(row, mark)
            return
        call("scancel", f"--signal={notice.signal}", *(("--batch",) if notice.first_only else ()), row.id)
        self._write(row, replace(mark, step=MarkStage.NOTIFIED, until=int(time.time()) + notice.seconds))

    def _stop(self, row: JobRow, mark: Mark) -> None:
        """Requeue the job and hold it, behind a fence for the jobs that its nodes are for."""
        if mark.step not in (MarkStage.STOPPING, MarkStage.ABORTING):
            row = self._write(row, replace(mark, step=MarkStage.STOPPING))
        if row.pending:
            call("scontrol", "uhold", row.id)
            return
        # The fence first: Slurm's own scheduler would fill the nodes in the moment in which they are free.
        self._fences.of(mark.key).enclose(hosts(row.nodes))
        call("scontrol", "requeuehold", row.id)

    def _place(self, row: JobRow, mark: Mark) -> None:
        """
        Name the nodes of the job and release it.

        It is held meanwhile: to name the nodes of a job that has just started would shrink it to these.
        """
        if not hold(row):
            return
        moves = kind_of(mark.key) == ActionKind.MIGRATE
        self._name_nodes(row, replace(mark, step=MarkStage.PLACING if moves else MarkStage.ASKED))
        call("scontrol", "release", row.id)

    def _name_nodes(self, row: JobRow, mark: Mark) -> None:
        """Require the nodes of a mark for a held job, which gets the mark and a place behind the fence."""
        marks = row.marks.with_mark(mark)
        if marks.required is None:
            marks = replace(marks, required=row.required)
        fields = {"ReqNodeList": mark.nodes}
        own = row.reservation and not row.reservation.startswith(PREFIX)
        if not own and self._fences.of(mark.key).admit(row.user, hosts(mark.nodes)):
            fields["ReservationName"] = self._fences.of(mark.key).name
        elif not own and row.reservation:
            fields["ReservationName"] = ""
        if mark.step is MarkStage.PLACING or "requeued" in row.reason.lower():
            marks = replace(marks, begin=int(time.time()) + _BEGIN_IN)
            fields["StartTime"] = f"uts{marks.begin}"
        update("JobId", row.id, **fields, AdminComment=str(marks))

    def _land(self, row: JobRow, mark: Mark) -> None:
        """Mark the action as done, and take back what only the way there needed."""
        marks = row.marks.with_mark(replace(mark, step=MarkStage.LANDED))
        fields = {"ReservationName": ""} if row.reservation == self._fences.of(mark.key).name else {}
        if row.pending:
            # It may start anywhere again, and at any time.
            marks = replace(marks, required=None, begin=int(time.time()))
            fields |= {"StartTime": f"uts{marks.begin}", "ReqNodeList": row.marks.required or ""}
        if row.pending or row.running:
            update("JobId", row.id, **fields, AdminComment=str(marks))

    def _fail(self, row: JobRow, mark: Mark) -> None:
        """Mark an action as failed; a job that does not run waits again as before."""
        self._take_back(row, row.marks.with_mark(mark))

    def _take_back(self, row: JobRow, marks: Marks) -> None:
        """Hold a job again that does not run, and take back what an action changed; it gets these marks."""
        fields = {"ReservationName": ""} if row.reservation.startswith(PREFIX) else {}
        if row.pending and not hold(row):
            return
        if row.pending and marks.required is not None:
            fields["ReqNodeList"] = marks.required
            marks = replace(marks, required=None)
        update("JobId", row.id, **fields, AdminComment=str(marks))

    def _write(self, row: JobRow, mark: Mark) -> JobRow:
        """The job with a mark, which it has when this returns."""
        marks = row.marks.with_mark(mark)
        update("JobId", row.id, AdminComment=str(marks))
        return replace(row, marks=marks)

    def _nodes_of(self, placement: Placement) -> str:
        """Slurm's names of the nodes of a placement."""
        names = sorted(placement.nodes)
        if any(name not in self._node_names for name in names):
            self._nodes()
        return ",".join(self._node_names.get(name, name) for name in names)

    # --- nodes ---------------------------------------------------------------------------------------------

    def _nodes(self) -> dict[str, NodeRow]:
        """Nodes by their names in snapshots."""
        rows = {name_of(name): row for name, row in nodes_table().items()}
        self._node_names = {name: row.name for name, row in rows.items()}
        return rows

    def _begin_node(self, action: NodeAction, key: str) -> ActionProgress:
        row = self._nodes().get(action.node)
        if row is None:
            what = (
                "no node of this name; nodes are made by Slurm's operators"
                if isinstance(action, ScaleUp)
                else "none"
            )
            raise ExecutionError(f"node {action.node}: expected it on the cluster, found {what}.")
        mark = _mark(row, key)
        if mark is None:
            mark = Mark(key, MarkStage.ASKED)
            steps.request_node(row, mark)
            return ActionProgress(ActionPhase.ASKED)
        return steps.progress_of_node(mark, row)


def _jobs_of(kinds: Mapping[str, str], of: int) -> dict[str, JobRow]:
    """The jobs of the actions of these kinds, by key, `of` so many; all jobs if promises are among them."""
    if PROMISES in kinds.values():
        return jobs_table()
    subjects = [subject_of(key) for key, kind in kinds.items() if kind not in NODE_KINDS]
    return jobs_table(*subjects, of=of) if subjects else {}


def _mark(row: JobRow | NodeRow | None, key: str) -> Mark | None:
    return None if row is None else row.marks.of(key)
