"""
Plan priorities one after the other: the problem of each stage, and what a plan brings each priority.

The stage of a priority plans its jobs and those of higher priority as if jobs of lower priority did not
exist. What the jobs of each priority then earn is a floor in every later stage (lexicographic goal
programming; Ignizio, "Goal Programming and Extensions", 1976). The allowed changes of running jobs, and their
prices, are the same at every stage.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.shared_model import ModelPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.verifier.verify import Verification
    from gpuplan.solvers.shared_model import WholeModel


def stage_problem(problem: Problem, priority: int) -> Problem:
    """
    The problem without jobs of lower priority.

    Jobs with a firm reservation stay. Jobs that help to meet a guarantee or a contested nominal quota of
    their queue stay too, but are worth nothing by themselves: these are kept at every stage.
    """
    kept = _stage_classes(problem, priority)
    place = {index: number for number, index in enumerate(kept)}
    return replace(
        problem,
        classes=tuple(_with_known(job_class, place) for job_class in kept.values()),
        incumbents=tuple(
            one._replace(
                grow=None if one.grow is None else place.get(one.grow),
                move=_new_index(one.move, place),
                resume=_new_index(one.resume, place),
            )
            for one in problem.incumbents
        ),
        firm_reservations=tuple(
            replace(each, job_class=place[each.job_class]) for each in problem.firm_reservations
        ),
        floors=tuple(each for each in problem.floors if each[0] > priority),
    )


def stage_part(whole: WholeModel, problem: Problem, priority: int) -> ModelPart | None:
    """
    The same problem as a part of the whole model; None if it is none.

    A class that is worth nothing in the stage has points in the whole model, and a job waits there for
    predecessors that are left out.
    """
    kept = _stage_classes(problem, priority)
    for index, job_class in kept.items():
        same = job_class is problem.classes[index]
        if not same or any(
            each.job_class is not None and each.job_class not in kept for each in job_class.predecessors
        ):
            return None
    return ModelPart(whole, tuple(kept), tuple(each for each in problem.floors if each[0] > priority))


def _stage_classes(problem: Problem, priority: int) -> dict[int, JobClass]:
    """Classes of the stage by their place in the problem; without points if worth nothing in it."""
    reserved = {booking.job_class for booking in problem.firm_reservations}
    owed = {
        queue
        for guarantee in problem.guarantees
        if guarantee.owed > guarantee.own
        for queue in guarantee.queues
    }
    kept: dict[int, JobClass] = {}
    for index, job_class in enumerate(problem.classes):
        if job_class.role.replaces_incumbent or job_class.priority >= priority or index in reserved:
            kept[index] = job_class
        elif job_class.role is ClassRole.START and job_class.queue in owed and job_class.shape.quota_milli:
            kept[index] = _without_points(job_class)
    return kept


def without_unknown_starts(
    target: DesiredState, running: tuple[Placement, ...], problem: Problem
) -> DesiredState:
    """The plan without the jobs that do not run yet and that the problem does not have."""
    known = {placement.job for placement in running}
    known.update(*(job_class.jobs for job_class in problem.classes))
    return replace(
        target, placements=tuple(placement for placement in target.placements if placement.job in known)
    )


def plans_of_stages(
    target: DesiredState, running: tuple[Placement, ...], problem: Problem
) -> dict[int, DesiredState]:
    """By priority, what a plan has of the jobs of its stage."""
    return {
        priority: without_unknown_starts(target, running, stage_problem(problem, priority))
        for priority in problem.priorities
    }


def _without_points(job_class: JobClass) -> JobClass:
    options = (
        replace(option, points=0, once=0, later=tuple(None if each is None else 0 for each in option.later))
        for option in job_class.options
    )
    return replace(job_class, options=tuple(options), fixed_points=0)


def _with_known(job_class: JobClass, place: Mapping[int, int]) -> JobClass:
    """The class with those predecessors that are in this stage; the others never come."""
    predecessors = tuple(
        replace(each, job_class=_new_index(each.job_class, place))
        for each in job_class.predecessors
        if each.job_class is None or each.job_class in place
    )
    return replace(job_class, predecessors=predecessors) if job_class.predecessors else job_class


def _new_index(index: int | None, place: Mapping[int, int]) -> int | None:
    return None if index is None else place[index]


class PriorityResults:
    """Points that plans bring the jobs of each priority that start or grow."""

    def __init__(self, problem: Problem, running: tuple[Placement, ...]) -> None:
        self._problem = problem
        self._running = {placement.job: placement for placement in running}
        self._classes = {
            name: job_class
            for job_class in problem.classes
            if not job_class.role.replaces_incumbent
            for name in job_class.jobs
        }
        self._models = {
            problem.nodes[node].name: group.gpu_model for group in problem.groups for node in group.nodes
        }

    def points(self, target: DesiredState) -> dict[int, int]:
        """Points by priority."""
        found: dict[int, int] = defaultdict(int)
        for priority, _, points in self._earned(target):
            found[priority] += points
        return found

    def keeps(self, target: DesiredState, problem: Problem) -> bool:
        """True if each priority earns at least its floor."""
        points = self.points(target) if problem.floors else {}
        return all(points[priority] >= floor for priority, floor in problem.floors)

    def brings_more(self, target: DesiredState, other: DesiredState) -> bool:
        """True if a plan brings more to the highest priority for which the two differ."""
        found, least = self.points(target), self.points(other)
        for priority in self._problem.priorities:
            if found[priority] != least[priority]:
                return found[priority] > least[priority]
        return False

    def points_left_out(self, target: DesiredState, problem: Problem) -> int:
        """Points of jobs of the whole problem that this one leaves out, or counts as worth nothing."""
        asked = {
            name
            for one in problem.classes
            if not one.role.replaces_incumbent and one.most_points
            for name in one.jobs
        }
        return sum(points for _, job, points in self._earned(target) if job not in asked)

    def _earned(self, target: DesiredState) -> Iterator[tuple[int, str, int]]:
        """(priority, job, points) of all jobs that start or grow, now or later."""
        models = self._models | {node.name: node.gpu_model for node in target.added}
        for placement in target.placements:
            before, job_class = self._running.get(placement.job), self._classes.get(placement.job)
            if job_class is None or before is placement:
                continue
            more = len(placement.replicas) - (len(before.replicas) if before else 0)
            option = self._option(job_class, models.get(placement.replicas[0].node))
            if more > 0 and option is not None:
                yield job_class.priority, placement.job, job_class.points(option, more)
        for planned in target.planned:
            if (job_class := self._classes.get(planned.job)) is None:
                continue
            option = self._option(job_class, models.get(planned.replicas[0].node))
            if option is not None:
                yield job_class.priority, planned.job, option.later[planned.slot] or 0

    @staticmethod
    def _option(job_class: JobClass, gpu_model: str | None) -> Option | None:
        takes_gpus = job_class.shape.quota_milli > 0
        wanted = gpu_model if takes_gpus else None
        return next((option for option in job_class.options if option.gpu_model == wanted), None)


def verifier_of_stage(
    check: Callable[[DesiredState], Verification], served: PriorityResults, problem: Problem
) -> Callable[[DesiredState], Verification]:
    """The verifier of one stage: jobs that the stage leaves out count for nothing."""

    def judge(target: DesiredState) -> Verification:
        verification = check(target)
        return replace(
            verification, objective=verification.objective - served.points_left_out(target, problem)
        )

    return judge


def with_last_plan_where_better(
    problem: Problem,
    running: tuple[Placement, ...],
    plans: Mapping[int, DesiredState],
    served: PriorityResults,
    check: Callable[[DesiredState], Verification],
    deadline: float | None,
) -> dict[int, DesiredState]:
    """
    Greedy's `plans` by priority, with the last one in place of those that are worse for their stage.

    Guarantees count at every stage, and only the last plan uses idle GPUs for them (`idle_gpus`): without
    this the floors would rule it out in the end. Its jobs of lower priority count for guarantees, and are
    then left out of it, since the stage may not know them. A plan that earns less for a higher priority
    than the plan of that priority stands in nowhere. None is replaced after the deadline.
    """
    *earlier, last = problem.priorities
    found, whole, floors = dict(plans), plans[last], dict[int, int]()
    for priority in earlier:
        if is_late(deadline) or priority not in found:
            break
        asked = replace(stage_problem(problem, priority), floors=tuple(floors.items()))
        if served.keeps(whole, asked):
            judge = verifier_of_stage(check, served, asked)
            target = without_unknown_starts(whole, running, asked)
            better = judge(whole).objective > judge(found[priority]).objective
            if better and not check(target).violations:
                found[priority] = target
        floors[priority] = served.points(found[priority])[priority]
    return found
