"""Starts in later slots and windows: the question says what the price list says."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise

import pytest

from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.policy.policy import Policy
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.value.disruption_cost import disruption_points, lost_seconds
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.builders.problem_builders import quotas_allow
from tests.support.strategies import instances, time_strategies
from tests.support.strategies.time_strategies import HOUR

SEEDS = range(60)
MADE = (instances.everything, instances.everything_mixed)


def looking(slots=4, *, length=HOUR, **policy):
    return Policy(horizon={"slots": slots, "length": length}, **policy)


def posed(*jobs, policy=None, **more):
    return build_problem(build.snapshot(jobs=jobs, **more), policy or looking())


def names(problem, groups):
    return {problem.nodes[index].name for group in groups for index in problem.groups[group].nodes}


def by_job(problem, role=ClassRole.START):
    return {name: one for one in problem.classes if one.role is role for name in one.jobs}


class Told:
    """What nouns say of one instance, each asked by itself."""

    def __init__(self, instance):
        self.snapshot, self.policy = instance.snapshot, instance.policy
        self.slots = TimeSlots.of(self.policy.horizon, self.snapshot.taken_at)
        self.durations = Durations(self.snapshot, self.policy)
        self.start_value = StartValue(self.snapshot, self.policy)
        self.windows = ReservationWindows(self.snapshot, self.policy, self.durations)

    def places(self, job, model, slot, seconds):
        """Existing nodes where a start then keeps filters and windows."""
        start = self.slots.edges[slot]
        return {
            node.name
            for node in self.snapshot.cluster.nodes
            if self.is_up(node, slot)
            and ineligibility(job, node.model_copy(update={"ready": True})) is None
            and (not job.request.needs_gpu or node.gpu_model == model)
            and self.windows.blocking_window(job, node.name, start, seconds) is None
        }

    def is_up(self, node, slot):
        if node.ready:
            return True
        now = self.snapshot.taken_at
        if slot == 0 or node.ready_at is None or node.ready_at <= now:
            return False
        return now + timedelta(seconds=self.slots.edges[slot]) >= node.ready_at

    def missed_second(self, job, slot, seconds):
        return self.start_value.misses_hard_deadline(job, start=self.slots.edges[slot], seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("seed", SEEDS)
def test_starts_are_offered_where_and_when_they_may_be_and_for_what_they_are_worth(make, seed):
    told = Told(time_strategies.instance(seed, make=make))
    problem = build_problem(told.snapshot, told.policy)
    optional = {node.name for pool in problem.pools for node in pool.nodes}
    for name, one in by_job(problem).items():
        job = told.snapshot.job_by_name[name]
        for option in one.options:
            seconds = told.durations.seconds(job, option.gpu_model)
            common = job, option.gpu_model
            for slot, edge in enumerate(told.slots.edges[:-1]):
                assert option.ends[slot] == told.slots.until(slot, seconds)
                open_then = slot >= one.earliest and not told.missed_second(job, slot, seconds)
                places = told.places(*common, slot, seconds) if open_then else set()
                time = {"start": edge, "seconds": seconds}
                saved = told.start_value.saved_lateness(job, **time)
                if slot == 0:
                    assert names(problem, option.groups) - optional == places
                    each = 1 if job.gang.elastic and not job.gang.scaled else job.gang.minimum
                    worth = told.start_value.completion(*common, each, **time)
                    assert option.points == worth - told.start_value.tariff_points(*common, each, **time)
                    assert option.once == saved
                    sizes = range(job.gang.minimum, job.gang.maximum + 1) if job.gang.scaled else ()
                    net = [
                        told.start_value.completion(*common, size, **time)
                        - told.start_value.tariff_points(*common, size, **time)
                        for size in sizes
                    ]
                    assert option.further == tuple(more - less for less, more in pairwise(net))
                else:
                    assert names(problem, option.later_groups[slot]) == places
                    least = job.gang.minimum
                    worth = told.start_value.completion(*common, least, **time) + saved
                    worth -= told.start_value.tariff_points(*common, least, **time)
                    assert option.later[slot] == (worth if places else None)
            assert option.groups or any(points is not None for points in option.later)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_option_of_a_job_without_time_of_its_own_is_left_out(seed):
    told = Told(time_strategies.instance(seed))
    problem = build_problem(told.snapshot, told.policy)
    offered = by_job(problem)
    for job in told.snapshot.jobs:
        free = not (job.depends_on or job.co_start or job.not_before or job.datasets)
        if job.running or job.held or not free:
            continue
        models = {node.gpu_model for node in told.snapshot.cluster.nodes} if job.request.needs_gpu else {None}
        for model in models:
            seconds = told.durations.seconds(job, model)
            open_in = [
                slot
                for slot in range(told.slots.count)
                if told.places(job, model, slot, seconds) and not told.missed_second(job, slot, seconds)
            ]
            if open_in and quotas_allow(told.snapshot, job, model):
                assert model in {option.gpu_model for option in offered[job.name].options}
                assert offered[job.name].earliest <= min(open_in)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_runs_is_worth_what_is_left_of_it(seed):
    told = Told(time_strategies.instance(seed))
    problem = build_problem(told.snapshot, told.policy)
    now, earnings = told.snapshot.taken_at, told.start_value
    moves = by_job(problem, ClassRole.MOVE)
    for one in problem.incumbents:
        job = told.snapshot.job_by_name[one.job]
        count, left = len(job.running.replicas), told.durations.remaining(job)
        worth = earnings.completion(job, one.gpu_model, count, start=0, seconds=left)
        leaving = -worth - disruption_points(told.policy, job, now)
        assert one.leave_points == leaving - told.policy.prices.migration
        assert one.until == told.slots.until(0, left)
        if one.stop_points is not None:
            assert one.stop_points == leaving - earnings.saved_lateness(job, start=0, seconds=left)
        if one.shrinkable:
            sizes = range(count, job.gang.minimum - 1, -1)
            worths = [earnings.completion(job, one.gpu_model, size, start=0, seconds=left) for size in sizes]
            assert one.shrink_points == tuple(fewer - more for more, fewer in pairwise(worths))
        if one.move is not None:
            for option in moves[one.job].options:
                speeds = job.speed_milli(one.gpu_model), job.speed_milli(option.gpu_model)
                then = -(-left * speeds[0] // speeds[1]) + lost_seconds(told.policy, job, now)
                assert option.points == earnings.completion(
                    job, option.gpu_model, count, start=0, seconds=then
                )
                assert option.ends[0] == told.slots.until(0, then)
                assert set(option.later) == {None}
                for name in names(problem, option.groups):
                    assert told.windows.blocking_window(job, name, 0, then) is None
        if one.grow is not None:
            (option,) = problem.classes[one.grow].options
            more = earnings.completion(job, one.gpu_model, count + 1, start=0, seconds=left)
            assert option.points == more - worth
            assert option.ends[0] == one.until
            assert set(option.later) == {None}


def reversed_everywhere(snapshot, seed):
    """The same snapshot, its lists in another order."""
    draw = random.Random(seed)

    def shuffled(things):
        return tuple(draw.sample(things, len(things)))

    cluster = snapshot.cluster
    sections = ("nodes", "pools", "datasets", "reservations", "tariffs", "rack_power")
    cluster = cluster.model_copy(update={name: shuffled(getattr(cluster, name)) for name in sections})
    lists = {name: shuffled(getattr(snapshot, name)) for name in ("jobs", "queues", "finished")}
    return snapshot.model_copy(update={"cluster": cluster, **lists})


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_lists_changes_nothing(seed):
    instance = time_strategies.instance(seed)

    assert build_problem(reversed_everywhere(instance.snapshot, seed), instance.policy) == build_problem(
        instance.snapshot, instance.policy
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_with_one_slot_only_jobs_that_may_start_now_are_in_the_problem(seed):
    instance = time_strategies.instance(seed, slots=1)
    problem = build_problem(instance.snapshot, instance.policy)

    assert problem.edges == (0, 3600)
    for one in problem.classes:
        assert (one.earliest, one.needed, one.seconds, one.due, one.promise, one.starving) == (
            0,
            0,
            0,
            None,
            None,
            None,
        )
        for option in one.options:
            assert (option.ends, option.later, option.later_groups, option.once) == ((1,), (None,), ((),), 0)
            assert option.groups
    assert all(not node.releases and not node.opens for node in problem.nodes)
    assert all(not budget.releases for budget in problem.budgets)


@pytest.mark.slow
def test_the_instances_have_something_of_every_time_in_them():
    given = [time_strategies.instance(seed, make=make) for make in MADE for seed in SEEDS]
    problems = [build_problem(one.snapshot, one.policy) for one in given]
    classes = [one for problem in problems for one in problem.classes]
    nodes = [node for problem in problems for node in problem.nodes]

    for one in given:
        assert list(inconsistencies(one.snapshot)) == []
    assert sum(bool(one.predecessors) for one in classes) > 10
    assert sum(one.co_start is not None for one in classes) > 3
    assert sum(one.promise is not None for one in classes) > 10
    assert sum(bool(one.promise and one.promise.holds) for one in classes) > 5
    assert sum(one.starving is not None for one in classes) > 5
    assert sum(one.due is not None for one in classes) > 0
    assert sum(one.earliest > 0 for one in classes) > 20
    assert sum(bool(node.releases) for node in nodes) > 20
    assert sum(bool(node.opens) for node in nodes) > 5
    assert sum(option.once > 0 for one in classes for option in one.options) > 10
