"""
What it takes to undo each action of a plan that was carried out, and why some cannot be undone.

An action is undone only while the cluster is as the action left it: what was changed again since is not the
plan's any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuplan.models.placement import node_names, same_holdings
from gpuplan.models.plan.actions import NodeAction, Preempt, Release, Repartition, Start, changes_of
from gpuplan.models.plan.rollback import StayingChange, StaysCode
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR
from gpuplan.planner.analysis.node_actions import rules_of
from gpuplan.planner.analysis.target_cluster import Changed
from gpuplan.planner.apply.promises import SUBJECT, steps_of
from gpuplan.planner.text_format import action_subject, format_gpu_hours, join_first_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.actions import Change, JobChangeAction
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Reversal:
    """What undoes one action, and perhaps others that it cannot do without."""

    action: str
    """Id of the action."""
    subject: str
    change: Changed


@dataclass(slots=True)
class Reversals:
    """What undoes each action of a plan; of an action that is in none of these nothing is left to undo."""

    jobs: dict[str, Reversal] = field(default_factory=dict)
    """Jobs that go back to where they ran, or to their size, by name."""
    started: dict[str, Reversal] = field(default_factory=dict)
    """Jobs that the plan started and that still run there, by name."""
    nodes: list[Reversal] = field(default_factory=list)
    """Nodes that come back, or take jobs again."""
    new_nodes: list[Reversal] = field(default_factory=list)
    """Nodes that the plan added."""
    layouts: list[Reversal] = field(default_factory=list)
    stays: list[StayingChange] = field(default_factory=list)
    """What cannot be undone."""


def reversals_of(plan: Plan, done: Collection[str], live: Snapshot) -> Reversals:
    """What undoes the `done` actions of a plan in a cluster without lost places."""
    found = _Finder(plan, live)
    layouts: dict[tuple[str, int], list[Repartition]] = {}
    for action in changes_of(plan.actions):
        if action.id not in done:
            continue
        found.lost_work(action)
        if isinstance(action, Repartition):
            layouts.setdefault((action.node, action.gpu), []).append(action)
        elif isinstance(action, NodeAction):
            found.node(action)
        else:
            found.job(action)
    for steps in layouts.values():
        found.layout(steps)
    if any(step.id in done and step.type == "promise" for step in steps_of(plan)):
        found.found.stays.append(
            StayingChange(
                action="promises",
                subject=SUBJECT,
                code=StaysCode.INCAPABLE,
                text="the promised starts stay; the next plan keeps, moves or withdraws them",
            )
        )
    return found.found


def staying(reversal: Reversal, code: StaysCode, text: str) -> StayingChange:
    """The change that a reversal does not undo."""
    return StayingChange(action=reversal.action, subject=reversal.subject, code=code, text=text)


class _Finder:
    def __init__(self, plan: Plan, live: Snapshot) -> None:
        self.found = Reversals()
        self._plan, self._live = plan, live
        self._base = plan.snapshot.cluster.node_by_name
        self._nodes = live.cluster.node_by_name
        self._ended = {each.name: each for each in live.finished}

    def lost_work(self, action: Change) -> None:
        """Note the work that an action lost."""
        if hours := float(action.reason.numbers.get("lost_gpu_hours", 0)):
            lost = format_gpu_hours(round(hours * MILLI * SECONDS_PER_HOUR))
            self._stays(action, StaysCode.WORK_LOST, f"{lost} of work since its last checkpoint stay lost")

    def job(self, action: JobChangeAction) -> None:
        """Undo what an action did to a job."""
        if isinstance(action, Release):
            self._stays(action, StaysCode.LOST, "places that were lost do not come back")
            return
        job = self._live.job_by_name.get(action.job)
        if job is None:
            self._stays(action, StaysCode.FINISHED, self._end_of(action.job))
        elif _holds(job, action.before):
            return
        elif not _holds(job, action.after):
            self._stays(action, StaysCode.CHANGED, _since(job))
        elif isinstance(action, Preempt) and job.withheld:
            self._stays(action, StaysCode.CHANGED, "it is held since; release it, and roll back again")
        else:
            where = self.found.started if isinstance(action, Start) else self.found.jobs
            change = Changed(places={job.name: action.before})
            where[job.name] = self._reversal(action, change)

    def node(self, action: NodeAction) -> None:
        """Undo what an action did to a node."""
        now, base = self._nodes.get(action.node), self._base.get(action.node)
        change = rules_of(action).reversal(action, now, base, self._live.cluster)
        if isinstance(change, str):
            self._stays(action, StaysCode.INCAPABLE, change)
        elif change is not None:
            where = self.found.new_nodes if change.removed else self.found.nodes
            where.append(self._reversal(action, change))

    def layout(self, steps: list[Repartition]) -> None:
        """Undo all changes of the MIG layout of one GPU."""
        first, last = steps[0], steps[-1]
        node = self._nodes.get(last.node)
        gpu = node.gpus.by_index.get(last.gpu) if node and node.gpus else None
        if gpu is None or gpu.mig is None:
            self._stays(last, StaysCode.CHANGED, "the GPU is gone, or not in MIG mode any more")
        elif first.before is None:
            self._stays(last, StaysCode.INCAPABLE, "MIG mode was off, and no plan switches it off")
        elif set(gpu.mig) == set(first.before):
            return
        elif set(gpu.mig) != set(last.after):
            self._stays(last, StaysCode.CHANGED, "it has another MIG layout since")
        else:
            change = Changed(layouts={(last.node, last.gpu): first.before})
            self.found.layouts.append(self._reversal(last, change))

    def _end_of(self, name: str) -> str:
        ended = self._ended.get(name)
        return f"it has {ended.outcome}" if ended else "it has ended, or was cancelled"

    def _reversal(self, action: Change, change: Changed) -> Reversal:
        return Reversal(action.id, action_subject(action), change)

    def _stays(self, action: Change, code: StaysCode, text: str) -> None:
        self.found.stays.append(staying(self._reversal(action, Changed()), code, text))


def with_places(reversal: Reversal, places: Mapping[str, Placement | None]) -> Reversal:
    """The reversal with other places of jobs."""
    return replace(reversal, change=replace(reversal.change, places=places))


def _holds(job: Job, placed: Placement | None) -> bool:
    """True if a job runs just there; with None if it waits."""
    if placed is None or job.running is None:
        return placed is None and job.running is None
    return same_holdings(job.running.replicas, placed.replicas)


def _since(job: Job) -> str:
    if job.running is None:
        return "it was stopped since, and waits"
    nodes = sorted(node_names(job.running.replicas))
    return f"it runs on {join_first_names(nodes)} since, in another way than the plan left it"
