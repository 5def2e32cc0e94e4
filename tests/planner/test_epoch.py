"""One epoch end to end: verified, complete, repeatable, and at rest once it is applied."""

from __future__ import annotations

import dataclasses
import itertools
import time

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import Placement, Running
from gpuplan.models.plan.actions import Keep, Start, Wait
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy, SolverName
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.models.verifier import verify as verifier
from gpuplan.models.verifier.verify import verify
from gpuplan.planner import epoch
from gpuplan.planner.apply.standing import actions_done_in
from gpuplan.planner.epoch import limits_of, plan_epoch
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.solvers.params.search import PortfolioParams
from tests.support.builders import build
from tests.support.strategies import instances

DETERMINISTIC = instances.POLICY.model_copy(update={"budget": BudgetPolicy(mode=BudgetMode.DETERMINISTIC)})
GREEDY = instances.POLICY.model_copy(update={"solvers": ()})
KINDS = pytest.mark.parametrize("kind", [instances.divisible, instances.mixed], ids=["divisible", "mixed"])


def planned(snapshot, policy=DETERMINISTIC, seed=0):
    return plan_epoch(snapshot, policy, seed=seed, created_at=build.NOW)


def applied(snapshot, plan):
    """The snapshot as it is once the plan's starts are done."""
    places = {action.job: action.after for action in plan.actions if isinstance(action, Start)}
    jobs = [
        job.model_copy(
            update={"running": Running(started_at=snapshot.taken_at, replicas=places[job.name].replicas)}
        )
        if job.name in places
        else job
        for job in snapshot.jobs
    ]
    return snapshot.model_copy(update={"jobs": tuple(jobs)})


@pytest.mark.slow
@KINDS
def test_every_job_has_exactly_one_action_and_the_plan_breaks_no_rule(kind):
    kinds_seen = set()
    for seed in range(30):
        snapshot = kind(seed)

        plan = planned(snapshot, GREEDY)

        assert sorted(action.job for action in plan.actions) == [job.name for job in snapshot.jobs]
        verification = verify(snapshot, GREEDY, plan.placements)
        assert verification.violations == ()
        assert verification.objective == plan.solution.objective == sum(plan.solution.terms.values())
        kinds_seen |= {type(action) for action in plan.actions}
    assert kinds_seen == {Start, Keep, Wait}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [instances.everything, instances.everything_mixed, instances.cpu_limited(instances.everything)]
)
def test_whatever_a_cluster_has_the_plan_says_what_the_verifier_finds(kind):
    kinds_seen = set()
    for seed in range(25):
        snapshot, policy = kind(seed).snapshot, kind(seed).policy.model_copy(update={"solvers": ()})

        plan = planned(snapshot, policy)

        target = plan.target
        found = verify(snapshot, policy, target.placements, added=target.added, removed=target.removed)
        assert found.violations == ()
        assert found.terms == plan.solution.terms
        assert list(contradictions(plan)) == []
        assert actions_done_in(plan, snapshot) == frozenset()
        kinds_seen |= {action.type for action in plan.actions}
    assert {"start", "keep", "preempt", "wait"} <= kinds_seen


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("policy", [GREEDY, DETERMINISTIC], ids=["greedy", "milp"])
def test_planning_again_after_apply_changes_nothing(kind, policy):
    started = 0
    for seed in range(6):
        snapshot = kind(seed)
        plan = planned(snapshot, policy)

        again = planned(applied(snapshot, plan), policy)

        assert not again.has_changes, seed
        started += plan.has_changes
    assert started >= 4


@pytest.mark.slow
@pytest.mark.parametrize("solver", [SolverName.MILP, SolverName.CPSAT])
def test_same_question_gives_the_same_plan_id_whatever_the_order_of_input(solver):
    snapshot = instances.mixed(5)
    policy = DETERMINISTIC.model_copy(update={"solvers": (solver,)})
    backwards = snapshot.model_copy(update={"jobs": snapshot.jobs[::-1], "queues": snapshot.queues[::-1]})

    first, second, third = planned(snapshot, policy), planned(snapshot, policy), planned(backwards, policy)

    assert first.solution.solver == solver
    assert first.plan_id == second.plan_id == third.plan_id


def test_another_seed_or_policy_is_another_plan():
    snapshot = instances.mixed(5)

    ids = {planned(snapshot).plan_id, planned(snapshot, seed=1).plan_id, planned(snapshot, GREEDY).plan_id}

    assert len(ids) == 3


@pytest.mark.slow
def test_one_more_node_or_a_larger_quota_never_worsens_the_optimum():
    better = 0
    for seed in range(6):
        snapshot = instances.divisible(seed)
        nodes = (*snapshot.cluster.nodes, build.node("extra", gpus=8, cpus=64))
        wider = snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update={"nodes": nodes})})
        freer = snapshot.model_copy(
            update={"queues": tuple(queue.model_copy(update={"quota": None}) for queue in snapshot.queues)}
        )

        before, more_nodes, more_quota = (planned(world) for world in (snapshot, wider, freer))

        assert before.solution.status == more_nodes.solution.status == more_quota.solution.status == "OPTIMAL"
        assert before.solution.objective <= more_nodes.solution.objective
        assert before.solution.objective <= more_quota.solution.objective
        better += before.solution.objective < more_nodes.solution.objective
    assert better >= 1


def test_the_time_limit_counts_what_it_takes_to_pose_the_question(monkeypatch):
    pose = epoch.build_problem

    def slow(*arguments):
        time.sleep(0.3)
        return pose(*arguments)

    monkeypatch.setattr(epoch, "build_problem", slow)
    jobs = [build.job("small", gpus=1, priority=2), build.job("large", gpus=2, priority=1)]
    policy = Policy(budget=BudgetPolicy(time_limit="200ms"))

    solution = planned(build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs), policy).solution

    assert (solution.solver, solution.fallback.tried) == ("greedy", "milp")
    assert "0.2 s" in solution.fallback.reason
    assert solution.seconds >= solution.phases["pose"] >= 0.3


@pytest.mark.parametrize(
    ("waiting", "slots", "times"), [(0, 1, 1.8), (4, 1, 5.3), (2, 1, 3.55), (2, 11, 3.55 / 2.2)]
)
def test_the_time_kept_back_grows_with_jobs_that_wait_and_not_with_slots(monkeypatch, waiting, slots, times):
    """Of four jobs some wait; the problem takes a second on the clock of the test."""
    kept_back = []
    clock = itertools.count(step=1)

    def solve(problem, running, limits, *more, **options):
        kept_back.append(limits.reserved)
        raise KeyboardInterrupt

    monkeypatch.setattr(epoch.portfolio, "solve", solve)
    jobs = [
        build.job(f"j{number}", gpus=1, at=None if number < waiting else [build.replica("n0", gpus=[number])])
        for number in range(4)
    ]
    snapshot = build.snapshot(nodes=[build.node("n0", gpus=8)], jobs=jobs)
    policy = Policy(horizon=HorizonPolicy(slots=slots))
    monkeypatch.setattr(epoch.time, "monotonic", lambda: float(next(clock)))

    with pytest.raises(KeyboardInterrupt):
        planned(snapshot, policy)

    assert kept_back == [pytest.approx(0.2 + times)]


@pytest.mark.parametrize(
    ("posed", "left", "limit", "kept_back"),
    [
        (1, 100, 120, 3),
        (2, -1, 11, 6),
        (13, 27, 60, 13.5),
        (13, 2, 60, 0.33 * 39),
        (2, -1, 5, 2),
        (0.1, -1, 0.2, 0.3),
    ],
    ids=["plenty", "late", "half of what is left", "a third", "as long as a process", "short"],
)
def test_a_last_bound_that_takes_most_of_the_limit_leaves_time_for_greedy(posed, left, limit, kept_back):
    assert epoch._seconds_for_bound(posed, left, limit, PortfolioParams()) == pytest.approx(kept_back)


def test_neither_the_best_plan_nor_the_last_one_is_judged_again(monkeypatch):
    snapshot = build.snapshot(jobs=[build.job(name, gpus=1) for name in "abc"])
    judged, verify_target = [], verifier.verify_target

    def counting(snapshot, policy, target, *more):
        judged.append(target)
        return verify_target(snapshot, policy, target, *more)

    monkeypatch.setattr(verifier, "verify_target", counting)
    placements = [Placement(job=name, replicas=(build.replica(gpus=(at,)),)) for at, name in enumerate("abc")]
    best, *worse = (DesiredState(tuple(placements[:count])) for count in (3, 2, 1, 0))
    check = verifier.Verifier(snapshot, Policy())

    for target in (best, *worse, worse[-1], best):
        assert check(target).violations == ()

    assert judged == [best, *worse]


def test_plan_that_breaks_a_rule_is_withheld(monkeypatch):
    snapshot = build.snapshot(jobs=[build.job("a", gpus=1)])
    honest = epoch.portfolio.solve

    def lying(*arguments, **options):
        solution = honest(*arguments, **options)
        nowhere = Placement(job="a", replicas=(build.replica("nowhere", gpus=(0,)),))
        return dataclasses.replace(solution, target=DesiredState((nowhere,)))

    monkeypatch.setattr(epoch.portfolio, "solve", lying)

    with pytest.raises(PlannerError, match="selection: job a"):
        planned(snapshot, GREEDY)


def test_budget_reaches_the_solvers():
    budget = BudgetPolicy(time_limit="500ms", workers=2, stop_gap=0.01)

    limits = limits_of(Policy(budget=budget), seed=7)

    assert (limits.seconds, limits.workers, limits.stop_gap, limits.seed, limits.ticks) == (
        0.5,
        2,
        0.01,
        7,
        None,
    )
    assert limits_of(DETERMINISTIC, seed=0).ticks == DETERMINISTIC.budget.ticks
