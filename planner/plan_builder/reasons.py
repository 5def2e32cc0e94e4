"""The reason of each step with its objective points, as text for the reviewer and as numbers for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.cluster import rack_of
from gpuplan.models.placement import Placement
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.timing.progress import unsaved_seconds
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import disruption_points, lost_seconds, resize_points
from gpuplan.models.value.start_value import StartValue
from gpuplan.models.verifier.verify import term_points
from gpuplan.planner.analysis.node_actions import NODE_RULES
from gpuplan.planner.analysis.node_rules import NodeCase
from gpuplan.planner.plan_builder.step_order import JobStep, LayoutStep, NodeStep
from gpuplan.planner.text_format import (
    format_count,
    format_duration,
    format_gpu_hours,
    format_points,
    format_time,
    join_first_names,
    join_jobs,
)
from gpuplan.planner.waiting.time_messages import window_name

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.plan.solution import LaterStart
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges
    from gpuplan.planner.plan_builder.beneficiaries import Beneficiaries, ReleasedResources
    from gpuplan.planner.plan_builder.later_starts import PlanPromises
    from gpuplan.planner.plan_builder.step_order import Step


# Objective points of each change of a job; the reasons and the order of starts use them.


@dataclass(frozen=True)
class ActionValue:
    """Objective points of the changes of one plan."""

    changes: PlanChanges
    policy: Policy
    _points: dict[str, int] = field(default_factory=dict)
    _of_plain: dict[object, int] = field(default_factory=dict)

    def points(self, change: JobChange) -> int:
        """Points that the change adds to the objective: work gained or lost, less the price of the change."""
        name = change.job.name
        if name not in self._points:
            self._points[name] = self._count_once(change)
        return self._points[name]

    def start_key(self, change: JobChange) -> object:
        """Key of the starts of plain jobs that have equal points; None for all other changes."""
        job, placement = change.job, change.after
        if change.kind is not ActionKind.START or placement is None or (plain := job.plain_key) is None:
            return None
        return plain, self.gpu_model(job, placement), len(placement.replicas)

    def _count_once(self, change: JobChange) -> int:
        if (key := self.start_key(change)) is None:
            return self._count(change)
        if key not in self._of_plain:
            self._of_plain[key] = self._count(change)
        return self._of_plain[key]

    def _count(self, change: JobChange) -> int:
        job = change.job
        gained = self.value(job, change.after, change) - self.value(job, change.before, change)
        match change.kind:
            case ActionKind.START:
                return gained + self._once(change, seconds=self._seconds(change, change.after))
            case ActionKind.PREEMPT:
                lost = self._earnings.saved_lateness(job, start=0, seconds=self._remaining(job))
                return gained - lost + self._again(job) + self.disruption(change)
            case _:
                return gained + self.disruption(change)

    def disruption(self, change: JobChange) -> int:
        """Points of the change in the term `preemption`, `migration` or `resize`; never positive."""
        job, now = change.job, self.changes.snapshot.taken_at
        match change.kind:
            case ActionKind.PREEMPT:
                return -self._earnings.stop_points(job)
            case ActionKind.MIGRATE:
                return -disruption_points(self.policy, job, now) - self.policy.prices.migration
            case ActionKind.SHRINK | ActionKind.GROW:
                return -resize_points(self.policy, job, now)
            case _:
                return 0

    def larger_blocks(self, change: JobChange) -> int:
        """Fragmentation points that a migration gains, all other jobs placed as planned."""
        names = {*change.nodes_left, *change.nodes_taken}
        there = [
            each for name in sorted(names) for each in self.changes.allocations_after.there.get(name, ())
        ]
        others = [
            Placement(job=job.name, replicas=(each,)) for job, each in there if job.name != change.job.name
        ]
        nodes = tuple(node for node in self.changes.cluster.nodes if node.name in names)
        cluster = self.changes.cluster.model_copy(update={"nodes": nodes})
        world = self.changes.snapshot.model_copy(update={"cluster": cluster, "jobs": ()})
        stays, moves = (
            term_points("fragmentation", world, self.policy, (*others, *([mine] if mine else ())))
            for mine in (change.before, change.after)
        )
        return moves - stays

    def value(self, job: Job, placement: Placement | None, change: JobChange) -> int:
        """Completion points of the job at a placement, from now on; 0 without a placement."""
        if placement is None:
            return 0
        model = self.gpu_model(job, placement)
        return self._earnings.completion(
            job, model, len(placement.replicas), seconds=self._seconds(change, placement)
        )

    def _once(self, change: JobChange, *, seconds: int) -> int:
        """Points of the lateness that a start avoids, less the tariff of its GPU-hours."""
        job, placement = change.job, change.after
        if placement is None:
            return 0
        tariff = self._earnings.tariff_points(
            job, self.gpu_model(job, placement), len(placement.replicas), start=0, seconds=seconds
        )
        return self._earnings.saved_lateness(job, start=0, seconds=seconds) - tariff

    def _again(self, job: Job) -> int:
        """Points of a preempted job's later restart; 0 if the plan has no start time for it."""
        planned = next((each for each in self.changes.target.planned if each.job == job.name), None)
        if planned is None:
            return 0
        model, count = self.gpu_model(job, planned), len(planned.replicas)
        start = self._earnings.slots.edges[planned.slot]
        seconds = self._earnings.durations.again(job, model)
        return (
            self._earnings.completion(job, model, count, start=start, seconds=seconds)
            + self._earnings.saved_lateness(job, start=start, seconds=seconds)
            - self._earnings.tariff_points(job, model, count, start=start, seconds=seconds)
        )

    def _seconds(self, change: JobChange, placement: Placement | None) -> int:
        """Seconds that the job runs there: the whole duration if it starts, the rest if it is running."""
        job = change.job
        model = None if placement is None else self.gpu_model(job, placement)
        if job.running is None or change.before is None:
            return self._earnings.durations.seconds(job, model)
        if change.kind is not ActionKind.MIGRATE or placement is not change.after:
            return self._remaining(job)
        return self._earnings.durations.restart_seconds_now(job, model)

    def _remaining(self, job: Job) -> int:
        return self._earnings.durations.remaining(job)

    @cached_property
    def _earnings(self) -> StartValue:
        return StartValue(self.changes.snapshot, self.policy)

    def gpu_model(self, job: Job, placement: Placement | LaterStart) -> str | None:
        """GPU model of a placement; None for a job without GPUs."""
        node = self.changes.nodes[placement.replicas[0].node]
        return node.gpu_model if job.request.needs_gpu else None


# The reason of each step, as text for the reviewer and as numbers for programs.


UNCHANGED: Final = Reason(code=ReasonCode.UNCHANGED, text="runs on as it is")

_SECONDS_PER_HOUR: Final = 3600

_Numbers: TypeAlias = dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Reasons:
    """Builds the reason of each step of a plan."""

    changes: PlanChanges
    beneficiaries: Beneficiaries
    worth: ActionValue
    promises: PlanPromises
    released_resources: ReleasedResources
    _of_plain: dict[object, Reason] = field(default_factory=dict)

    def reason(self, step: Step) -> Reason:
        """Reason of a step."""
        match step:
            case JobStep(change=change):
                match change.kind:
                    case ActionKind.START:
                        return self._started(step)
                    case ActionKind.GROW:
                        return self._grown(step)
                    case ActionKind.MIGRATE:
                        return self._moved(step)
                    case _:
                        return self._cut(step)
            case LayoutStep():
                return self._laid_out(step)
            case NodeStep():
                leaving = self.beneficiaries.leaving(step.node)
                arriving = self.beneficiaries.arriving(step.node)
                return NODE_RULES[step.kind].reason(NodeCase(step.node, self.changes, leaving, arriving))

    def makes_room_for(self, step: JobStep) -> tuple[str, ...]:
        """Jobs that take the places, quota or power that a job releases; sorted."""
        if followers := self.beneficiaries.jobs_taking_over(step):
            return followers
        given = self.released_resources.released_part(step.change)
        return given.jobs if given else self.beneficiaries.jobs_arriving_where_left(step)

    def _started(self, step: JobStep) -> Reason:
        """One reason for all plain jobs that differ in their names and places alone."""
        change = step.change
        taken, key = change.nodes_taken, self.worth.start_key(change)
        if key is None or step.after or len(taken) > 1 or self.promises.overtaken_promises(change.job.name):
            return self._start_reason(step)
        key = key, taken[0] in self.changes.added
        if key not in self._of_plain:
            self._of_plain[key] = self._start_reason(step)
        return self._of_plain[key]

    def _start_reason(self, step: JobStep) -> Reason:
        """Facts that the reviewer cannot see from size, nodes and queue."""
        change, job = step.change, step.change.job
        nodes = [self.changes.nodes[name] for name in change.nodes_taken]
        waited = job.waiting_seconds(self.changes.snapshot.taken_at)
        parts = []
        if len(change.arriving) < job.gang.maximum:
            parts.append(f"{len(change.arriving):,} of at most {job.gang.maximum:,} replicas")
        racks = {rack_of(node) for node in nodes}
        if len(nodes) > 1 and nodes[0].rack and len(racks) == 1:
            parts.append(f"one rack ({nodes[0].rack})")
        if len(job.gpu_models) > 1 and change.after and (model := self.worth.gpu_model(job, change.after)):
            parts.append(f"on {model}")
        if new := sum(node.name in self.changes.added for node in nodes):
            parts.append(f"on {format_count(new, 'new node')}")
        parts.append(f"waited {format_duration(waited)}" if waited else "just submitted")
        numbers: _Numbers = {"points": self.worth.points(change), "waited_seconds": waited}
        if job.progress:
            numbers["remaining_seconds"] = left = self.promises.future.stays[job.name].seconds
            parts.append(f"goes on with {format_duration(left)} left")
        parts += self._displaced(step, numbers)
        parts += self.promises.remarks(job.name, numbers)
        return Reason(code=ReasonCode.ADMITTED, text="; ".join(parts), numbers=numbers)

    def _grown(self, step: JobStep) -> Reason:
        change = step.change
        numbers: _Numbers = {}
        parts = [self._resized(change, numbers), *self._lost(change, numbers)]
        parts.append(self._gain(change, numbers))
        parts += self._displaced(step, numbers)
        return Reason(code=ReasonCode.RESIZED, text="; ".join(parts), numbers=numbers)

    def _displaced(self, step: JobStep, numbers: _Numbers) -> list[str]:
        """Which jobs gave up places for a job; if none did, which ones gave up quota or power for it."""
        if victims := self.beneficiaries.jobs_replaced(step):
            numbers["takes_the_place_of"] = ", ".join(victims)
            return [f"takes the place of {join_jobs(victims)}"]
        given: dict[str, str] = {}
        for earlier in self.beneficiaries.waited_for(step):
            if self.beneficiaries.jobs_taking_over(earlier):
                continue  # It makes room for those.
            part = self.released_resources.released_part(earlier.change)
            if part and step.change.job.name in part.jobs:
                given[earlier.change.job.name] = part.of
        if not given:
            return []
        victims = tuple(sorted(given))
        numbers["takes_the_place_of"] = ", ".join(victims)
        what = " and ".join(sorted(set(given.values())))
        return [f"uses {what} that {join_jobs(victims)} {'frees' if len(victims) == 1 else 'free'}"]

    def _resized(self, change: JobChange, numbers: _Numbers) -> str:
        before = len(change.before.replicas) if change.before else 0
        after = len(change.after.replicas) if change.after else 0
        numbers |= {"replicas_before": before, "replicas_after": after}
        bound = f"at most {change.job.gang.maximum:,}"
        if change.kind is ActionKind.SHRINK:
            bound = f"at least {change.job.gang.minimum:,}"
        return f"{before:,} → {after:,} replicas of {bound}"

    def _cut(self, step: JobStep) -> Reason:
        """Why a job is preempted or shrunk, for which jobs, and how much work is lost."""
        change = step.change
        numbers: _Numbers = {}
        code, why = self._why_it_leaves(step, numbers)
        parts = [why]
        if change.kind is ActionKind.SHRINK:
            parts.insert(0, self._resized(change, numbers))
        if (resumes := self.promises.resumes_at(change.job.name)) is not None:
            parts.append(f"resumes {format_time(resumes, self.changes.snapshot.taken_at)}")
        parts += self._lost(change, numbers)
        parts.append(self._gain(change, numbers))
        return Reason(code=code, text="; ".join(filter(None, parts)), numbers=numbers)

    def _moved(self, step: JobStep) -> Reason:
        change = step.change
        numbers: _Numbers = {}
        code, why = self._why_it_leaves(step, numbers)
        if victims := self.beneficiaries.jobs_replaced(step):
            why = f"{why}, takes the place of {join_jobs(victims)}"
            numbers["takes_the_place_of"] = ", ".join(victims)
        parts = [why, *self._lost(change, numbers), self._gain(change, numbers)]
        return Reason(code=code, text="; ".join(parts), numbers=numbers)

    def _gain(self, change: JobChange, numbers: _Numbers) -> str:
        """Points that the change adds to the objective, and the part that is its disruption price."""
        points, disruption = self.worth.points(change), self.worth.disruption(change)
        numbers |= {"points": points, "disruption_points": disruption}
        return format_points(points, disruption, change.kind.value)

    def _why_it_leaves(self, step: JobStep, numbers: _Numbers) -> tuple[ReasonCode, str]:
        change, nodes = step.change, self.changes.nodes
        if drained := [name for name in change.nodes_left if nodes[name].drain]:
            return ReasonCode.DRAINED, f"leaves {join_first_names(drained)}, to be drained"
        if closing := self._closing(change):
            return ReasonCode.DRAINED, closing
        if removed := [name for name in change.nodes_left if name in self.changes.target.removed]:
            code = ReasonCode.MOVED if change.kind is ActionKind.MIGRATE else ReasonCode.MAKES_ROOM
            return code, f"empties {join_first_names(removed)}, to be removed"
        if followers := self.beneficiaries.jobs_taking_over(step):
            numbers["makes_room_for"] = ", ".join(followers)
            return ReasonCode.MAKES_ROOM, f"makes room for {join_jobs(followers)}"
        if given := self.released_resources.released_part(change):
            numbers |= {"makes_room_for": ", ".join(given.jobs), **given.numbers}
            return ReasonCode.MAKES_ROOM, f"frees {given.text} for {join_jobs(given.jobs)}"
        if arriving := self.beneficiaries.jobs_arriving_where_left(step):
            numbers["makes_room_for"] = ", ".join(arriving)
            return ReasonCode.MAKES_ROOM, f"makes room for {join_jobs(arriving)}"
        if change.kind is not ActionKind.MIGRATE and change.job.name in self.changes.target.undo.jobs:
            return ReasonCode.MAKES_ROOM, ""  # the rollback says itself why
        code = ReasonCode.MOVED if change.kind is ActionKind.MIGRATE else ReasonCode.MAKES_ROOM
        return code, self._better(change, numbers) or "so that other changes of this plan fit"

    def _better(self, change: JobChange, numbers: _Numbers) -> str:
        """Advantage of the new places, for the job or for future larger jobs; empty if there is none."""
        if change.before is None or change.after is None:
            return ""
        before, after = (
            self.worth.gpu_model(change.job, placement) for placement in (change.before, change.after)
        )
        if before != after and change.job.speed_milli(after) > change.job.speed_milli(before):
            return f"to a faster GPU model, {before} → {after}"
        if (points := self.worth.larger_blocks(change)) > 0:
            numbers["fragmentation_points"] = points
            where = join_first_names(change.nodes_left)
            return f"leaves GPUs free in larger blocks on {where}, worth {points:,} points"
        return "to places that are worth more" if self.worth.points(change) > 0 else ""

    def _closing(self, change: JobChange) -> str:
        """Text for a job that leaves nodes before a reservation window closes them; empty for other jobs."""
        future = self.promises.future
        window = future.windows.forced_leave_window(change.job)
        if window is None or not (left := [name for name in change.nodes_left if name in window.nodes]):
            return ""
        begins = format_time(future.instant_at(window.begins), self.changes.snapshot.taken_at)
        since = f"begins at {begins}" if window.begins > 0 else "has begun"
        return f"leaves {join_first_names(left)}: {window_name(window)} {since}"

    def _lost(self, change: JobChange, numbers: _Numbers) -> list[str]:
        """How long the job ran, and how much of its work is in no checkpoint."""
        if change.job.running is None or change.before is None:
            return []
        now, running = self.changes.snapshot.taken_at, change.job.running
        job, future = change.job, self.promises.future
        ran = max(0, int((now - running.started_at).total_seconds()))
        lost = unsaved_seconds(job, now)
        gpu_seconds = sum(replica.quota_milli for replica in change.before.replicas) * lost
        numbers |= {
            "ran_seconds": ran,
            "lost_seconds": lost,
            "recovery_seconds": lost_seconds(future.policy, job, now) - lost,
            "remaining_seconds": future.durations.restart_seconds_now(job, future.durations.gpu_model(job)),
            "lost_gpu_hours": round(gpu_seconds / (MILLI * _SECONDS_PER_HOUR), 3),
        }
        what = format_gpu_hours(gpu_seconds) if gpu_seconds else f"{format_duration(lost)} of work"
        if not lost:
            return [f"ran {format_duration(ran)}, loses no work"]
        since = "since its last checkpoint" if running.last_checkpoint_at else "without a checkpoint"
        return [f"ran {format_duration(ran)}, loses {what} {since}"]

    def _laid_out(self, step: LayoutStep) -> Reason:
        layout, jobs = step.change, self.beneficiaries.served(step)
        before, after = set(layout.before or ()), set(layout.after)
        text = f"for {join_first_names(jobs)}" if jobs else "put back"
        if layout.before is None:
            text = f"{text}; switches MIG mode on"
        return Reason(
            code=ReasonCode.LAYOUT,
            text=text,
            numbers={
                "jobs": ", ".join(jobs),
                "created": len(after - before),
                "destroyed": len(before - after),
            },
        )
