"""Goals of the policy: plans serve them, proofs are of them, and brute force finds none better."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate, permutations

import pytest

from gpuplan.models.job import Progress
from gpuplan.models.placement import Running
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.approval import Approval
from gpuplan.models.policy.policy import Disruption, Policy, SolverName, Weights
from gpuplan.models.policy.settings import Blend, Goal, HorizonPolicy, Objective
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.render.plan.header import header_lines, search_remarks
from gpuplan.planner.render.style import Style
from tests.support.builders import build
from tests.support.harness.portfolio_answers import held_against_all_plans, without_neighbourhoods
from tests.support.oracles.brute_force import offered
from tests.support.oracles.overcommitted import overfull
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances

TIMED = [goal for goal in Goal if goal is not Goal.VALUE]
HOURS = (0.05, 0.3, 1, 4, 30, 200, None)


def started(snapshot, **objective):
    """Names of the jobs that start now."""
    policy = Policy(objective=Objective(**objective), solvers=(SolverName.CPSAT,))
    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
    assert plan.solution.status == SolveStatus.OPTIMAL
    return {placement.job for placement in plan.placements} - {
        job.name for job in snapshot.jobs if job.running
    }


def job(name, hours, gpus=1, **more):
    return build.job(name, gpus=gpus, expected_duration=round(hours * 3600), **more)


def test_each_goal_starts_the_job_that_it_is_named_for():
    """One node of two GPUs: a long job that is late, a short one, and one that has run for long already."""
    ran = Progress(completed=90 * 3600)
    jobs = [
        job("late", 4, 2, waited=build.timedelta(hours=9)),
        job("short", 1, 2),
        job("long", 100, 2, progress=ran),
        job("longest", 50, 2),
    ]
    snapshot = build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs)

    assert started(snapshot, goal=Goal.COMPLETION) == {"short"}
    assert started(snapshot, goal=Goal.MAKESPAN) == {"longest"}
    assert started(snapshot, goal=Goal.FAIRNESS) == {"late"}
    assert started(snapshot, goal=Goal.LEAST_ATTAINED_SERVICE) == {"late"}


def test_by_completion_many_short_jobs_go_before_a_long_one_and_a_gang_before_longer_gangs():
    jobs = [*(job(f"s{index}", 1) for index in range(4)), job("gang", 1, 4), job("slow", 8, 8)]
    snapshot = build.snapshot(nodes=[build.node(gpus=8)], jobs=jobs)

    assert started(snapshot, goal=Goal.COMPLETION) == {"s0", "s1", "s2", "s3", "gang"}


def test_equals_take_turns_only_where_the_policy_lets_them_and_it_pays():
    at = [build.replica(gpus=(0,))]
    jobs = [job("runs", 100, preemptible=True, at=at), job("short", 0.5)]
    snapshot = build.snapshot(nodes=[build.node(gpus=1)], jobs=jobs)

    def plan(gap, objective):
        policy = Policy(
            objective=objective, disruption=Disruption(priority_gap=gap), solvers=(SolverName.CPSAT,)
        )
        made = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
        return {placement.job for placement in made.placements}

    assert plan(1, Objective(goal=Goal.COMPLETION)) == {"runs"}
    assert plan(0, Objective(goal=Goal.COMPLETION)) == {"short"}
    assert plan(0, Objective(goal=Goal.VALUE)) == {"runs"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_over_a_horizon_the_sum_of_weighted_completion_times_is_least(seed):
    """Four jobs for one GPU, one after the other: of all orders there is none with a lesser sum."""
    draw = random.Random(f"orders {seed}")
    jobs = [
        job(f"j{index}", hours, weight=draw.choice((1, 1, 3)))
        for index, hours in enumerate(draw.choices((1, 2, 3, 5), k=4))
    ]
    hours = {each.name: each.expected_duration // 3600 for each in jobs}
    weights = {each.name: each.weight_milli for each in jobs}

    def cost(order):
        ends = accumulate(hours[name] for name in order)
        return sum(weights[name] * end for name, end in zip(order, ends, strict=True))

    snapshot = build.snapshot(nodes=[build.node(gpus=1)], jobs=jobs)
    policy = Policy(horizon=HorizonPolicy(slots=20, length="1h"), solvers=(SolverName.CPSAT,))
    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
    now = [placement.job for placement in plan.placements]
    order = (*now, *(each.job for each in sorted(plan.planned, key=lambda each: each.slot)))

    assert plan.solution.status == SolveStatus.OPTIMAL
    assert cost(order) == min(map(cost, permutations(hours)))


def with_times(seed):
    """A tiny world of jobs with durations, ages and pasts, and a goal."""
    draw = random.Random(f"goals {seed}")
    made = instances.tiny(seed)

    def timed(each):
        hours = draw.choice(HOURS)
        past = Progress(completed=draw.choice((600, 7200))) if draw.random() < 0.3 else None
        changed = {
            "expected_duration": None if hours is None else round(hours * 3600),
            "submitted_at": made.snapshot.taken_at - build.timedelta(hours=draw.choice((2, 9, 80))),
            "progress": each.progress or past,
        }
        return each.model_copy(update=changed)

    jobs = tuple(map(timed, made.snapshot.jobs))
    goal = TIMED[seed % len(TIMED)]
    blend = Blend(goal=draw.choice(TIMED), part=0.3) if draw.random() < 0.3 else None
    policy = made.policy.model_copy(update={"objective": Objective(goal=goal, blend=blend)})
    return made.snapshot.model_copy(update={"jobs": jobs}), policy


@pytest.mark.slow
def test_no_plan_is_better_than_a_proven_one_by_any_goal(monkeypatch):
    without_neighbourhoods(monkeypatch)
    tally = Counter()
    worlds = (
        (seed, snapshot, policy, offered(build_problem(snapshot, policy)))
        for seed in range(400 if EVERY_SEED else 16)
        for snapshot, policy in [with_times(seed)]
    )
    for _, snapshot, policy, best, solution in held_against_all_plans(worlds, tally):
        full = overfull(build_problem(snapshot, policy))
        tally[policy.objective.goal] += solution.objective == best.objective and not full
    assert min(tally[goal] for goal in TIMED) >= 2, tally


DAYS = build.timedelta(days=5)


@pytest.mark.slow
@pytest.mark.parametrize("goal", TIMED)
def test_a_job_that_has_run_for_days_gives_way_as_with_any_goal(goal):
    """For a higher priority, for a drain, for a guarantee, and for a nominal quota."""
    since = Running(
        started_at=build.NOW - DAYS, replicas=(build.replica(gpus=(0,)),), last_checkpoint_at=build.NOW
    )
    policy = Policy(objective=Objective(goal=goal), solvers=())

    def after(node, queues, **waiting):
        jobs = [job("low", 300, waited=DAYS, running=since), job("urgent", 20, **waiting)]
        snapshot = build.snapshot(nodes=[node, build.node("n1", gpus=0)], jobs=jobs, queues=queues)
        plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
        return {placement.job for placement in plan.placements}

    one, q = build.node(gpus=1), build.queue("q")
    assert after(one, [q], priority=10) == {"urgent"}
    assert after(build.node(gpus=1, drain=True), [q]) == set()
    assert after(one, [q, build.queue("owed", nominal=1, guarantee=1)], queue="owed") == {"urgent"}
    assert after(one, [q, build.queue("owed", nominal=1)], queue="owed") == {"urgent"}


def test_the_header_tells_of_weights_that_count_with_another_goal_only():
    snapshot = build.snapshot(jobs=[job("a", 1)])

    def told(goal, **weights):
        policy = Policy(objective=Objective(goal=goal), weights=Weights(**weights), solvers=())
        plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
        return any("without effect" in line for line in search_remarks(plan))

    assert told(Goal.COMPLETION, basis="job")
    assert told(Goal.COMPLETION, ageing={"cap": 3})
    assert not told(Goal.VALUE, basis="job")
    assert told(Goal.COMPLETION, basis="gpu")
    assert not told(Goal.COMPLETION, smallest_size=0.5)


def test_queues_have_goals_of_their_own_and_those_below_them_too():
    """Of research the shorter job goes first, of batch, which is above nightly, the longer one."""
    queues = [build.queue(name, nominal=1) for name in ("research", "batch")]
    queues.append(build.queue("nightly", parent="batch", nominal=0))
    jobs = [
        *(job(f"r{hours}", hours, queue="research") for hours in (1, 9)),
        *(job(f"n{hours}", hours, queue="nightly") for hours in (1, 9)),
    ]
    snapshot = build.snapshot(nodes=[build.node(gpus=4)], jobs=jobs, queues=queues)

    assert started(snapshot) == {"r1", "n1"}
    assert started(snapshot, queues={"batch": {"goal": "makespan"}}) == {"r1", "n9"}
    near = {"batch": {"goal": "makespan"}, "nightly": {"goal": "completion"}}
    assert started(snapshot, goal="makespan", queues=near) == {"r9", "n1"}


def test_the_header_tells_of_goals_of_queues_and_of_queues_that_are_not_there():
    snapshot = build.snapshot(jobs=[job("a", 1)], queues=[build.queue("q")])
    objective = Objective(queues={"q": {"goal": "value"}, "typo": {"goal": "makespan"}})
    policy = Policy(objective=objective, approval=Approval(queues=("tipo",)), solvers=())
    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)

    shown = "\n".join(header_lines(plan, Style(width=200), verbose=False))

    assert "goal completion  (q: value, typo: makespan)" in shown
    assert "objective.queues names typo, no queue of the snapshot; known: q" in shown
    assert "approval.queues names tipo, no queue of the snapshot; known: q" in shown


def test_the_header_names_the_goal_and_only_where_it_is_another():
    snapshot = build.snapshot(jobs=[job("a", 1)])

    def header(**objective):
        policy = Policy(objective=Objective(**objective), solvers=())
        plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
        return "\n".join(header_lines(plan, Style(width=100), verbose=False))

    assert "goal" not in header()
    assert "goal" not in header(goal=Goal.COMPLETION)
    assert "goal value  terms" in header(goal=Goal.VALUE)
    assert "goal fairness and 25.0 % makespan" in header(
        goal=Goal.FAIRNESS, blend=Blend(goal=Goal.MAKESPAN, part=0.25)
    )
