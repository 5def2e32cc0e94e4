"""Little has changed since the last plan: the new one is that plan, and what little there is."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from gpuplan.models.placement import Running
from gpuplan.models.plan.actions import Keep, Wait
from gpuplan.models.plan.plan import Plan
from gpuplan.models.plan.solution import StopReason
from gpuplan.models.policy.policy import BudgetPolicy, Policy, PoolPolicy
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.warm_start import initial_target, new_waiting_jobs, reuse_equal_nouns
from gpuplan.solvers.targets.warm_start import extend_last_plan
from tests.support.builders import build
from tests.support.builders.solution_builders import drafted
from tests.support.oracles.plan_document import plan_document
from tests.support.strategies import instances

HURRIED = Policy(budget=BudgetPolicy(time_limit="1ms"))
"""No time but for the last plan and the jobs that are new to it."""
KINDS = (instances.mixed, instances.everything, instances.everything_mixed)


def planned(snapshot, last=None, policy=HURRIED, cache=None):
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at, last=last, cache=cache)


def carried_out(plan):
    """The cluster a minute after a plan was carried out."""
    there = {placement.job: placement.replicas for placement in plan.target.placements}
    now = plan.snapshot.taken_at

    def after(job):
        replicas = there.get(job.name)
        if job.running and job.running.replicas == replicas:
            return job
        running = Running(started_at=now, replicas=replicas) if replicas else None
        return job.model_copy(update={"running": running})

    jobs = tuple(map(after, plan.snapshot.jobs))
    return plan.snapshot.model_copy(update={"jobs": jobs, "taken_at": now + timedelta(minutes=1)})


def with_jobs(snapshot, *jobs):
    return snapshot.model_copy(update={"jobs": (*snapshot.jobs, *jobs)})


def without(snapshot, *names):
    jobs = tuple(job for job in snapshot.jobs if job.name not in names)
    return snapshot.model_copy(update={"jobs": jobs})


def changes(plan):
    return {action.id for action in plan.actions if not isinstance(action, Keep | Wait)}


@pytest.fixture
def at_rest():
    """A plan that was carried out: GPUs 0 to 5 of two nodes of four are held, and `large` waits."""
    jobs = [
        build.job("a", gpus=4, priority=1),
        build.job("b", gpus=2, priority=1),
        build.job("large", gpus=8, priority=1),
    ]
    first = planned(build.snapshot(nodes=build.cluster(2, gpus=4), jobs=jobs))
    assert changes(first) == {"start/a", "start/b"}
    return planned(carried_out(first), first)


def test_a_job_that_fits_starts_and_nothing_else_is_touched(at_rest):
    plan = planned(with_jobs(at_rest.snapshot, build.job("new", gpus=1)), at_rest)

    assert changes(plan) == {"start/new"}
    assert plan.solution.solver == "last plan"
    assert plan.solution.ended is StopReason.TIME
    assert plan.solution.bound >= plan.solution.objective


def test_a_job_that_is_worth_more_stops_one_other(at_rest):
    plan = planned(with_jobs(at_rest.snapshot, build.job("new", gpus=4, priority=9)), at_rest)

    assert len(changes(plan)) == 2
    assert "start/new" in changes(plan)
    assert changes(plan) < {"start/new", "preempt/a", "preempt/b"}


def test_a_job_that_fits_nowhere_waits_and_nothing_is_touched(at_rest):
    plan = planned(with_jobs(at_rest.snapshot, build.job("new", gpus=4)), at_rest)

    assert changes(plan) == set()
    assert {waiting.job for waiting in plan.waiting} == {"large", "new"}


def test_of_two_jobs_each_gets_what_there_is_for_it(at_rest):
    new = [build.job("one", gpus=1), build.job("other", gpus=1), build.job("third", gpus=1)]

    plan = planned(with_jobs(at_rest.snapshot, *new), at_rest)

    assert len(changes(plan)) == 2
    assert changes(plan) < {"start/one", "start/other", "start/third"}


def test_a_job_withdrawn_while_it_waits_is_not_missed(at_rest):
    plan = planned(without(at_rest.snapshot, "large"), at_rest)

    assert changes(plan) == set()
    assert not plan.waiting


def test_what_a_job_leaves_is_given_to_a_waiting_job_that_fits(at_rest):
    """No job is new, and there is room."""
    waiting = planned(with_jobs(at_rest.snapshot, build.job("next", gpus=4)), at_rest)
    assert changes(waiting) == set()

    plan = planned(without(waiting.snapshot, "a"), waiting)

    assert changes(plan) == {"start/next"}


def test_no_job_is_stopped_for_a_job_that_had_its_turn(at_rest):
    """Its turn came when the last plan was made, whatever that made of it."""
    again = planned(with_jobs(at_rest.snapshot, build.job("new", gpus=4, priority=9)), at_rest)
    left_out = again.model_copy(
        update={
            "placements": at_rest.snapshot.running_placements,
            "actions": tuple(each for each in again.actions if isinstance(each, Keep | Wait)),
        }
    )

    plan = planned(with_jobs(again.snapshot, build.job("cpu", gpus=0, cpus=1)), left_out)

    assert changes(plan) == {"start/cpu"}


def test_a_plan_not_carried_out_stays_planned_beside_the_new_job():
    alike = [build.job(name, gpus=2) for name in ("c", "d", "e")]
    first = planned(build.snapshot(nodes=build.cluster(2, gpus=4), jobs=alike))

    plan = planned(with_jobs(first.snapshot, build.job("a", gpus=2)), first)

    assert changes(plan) == changes(first) | {"start/a"}
    before = {placement.job: placement for placement in first.placements}
    assert all(placement == before.get(placement.job, placement) for placement in plan.placements)


def test_what_the_last_plan_stops_stays_stopped_until_that_is_done(at_rest):
    first = planned(with_jobs(at_rest.snapshot, build.job("new", gpus=4, priority=9)), at_rest)

    plan = planned(with_jobs(first.snapshot, build.job("cpu", gpus=0, cpus=1)), first)

    assert changes(plan) == changes(first) | {"start/cpu"}


def test_a_node_that_is_gone_takes_only_its_own_jobs_along():
    jobs = [build.job("a", gpus=4), build.job("b", gpus=4)]
    first = planned(build.snapshot(nodes=build.cluster(2, gpus=4), jobs=jobs))
    gone = first.snapshot.cluster.nodes[0]
    live = first.snapshot.model_copy(update={"cluster": build.snapshot(nodes=[gone]).cluster})

    plan = planned(live, first)

    staying = [each for each in first.placements if each.replicas[0].node == gone.name]
    assert list(plan.placements) == staying
    assert plan.solution.solver == "last plan"


def test_another_policy_begins_anew(at_rest):
    live = with_jobs(at_rest.snapshot, build.job("new", gpus=1))
    other = HURRIED.model_copy(update={"prices": HURRIED.prices.model_copy(update={"resize": 11})})

    assert initial_target(live, other, at_rest) is None
    assert planned(live, at_rest, other).solution.solver != "last plan"


@pytest.mark.slow
@pytest.mark.parametrize("policy", [HURRIED, Policy(solvers=())], ids=["hurried", "greedy too"])
def test_what_is_kept_alive_makes_no_difference_to_the_plan(at_rest, policy):
    live = with_jobs(at_rest.snapshot, build.job("new", gpus=1))
    document = plan_document(at_rest)
    document.pop("checksum")
    read = Plan.model_validate(document)
    read_live = Snapshot.model_validate(live.document())

    ids = {planned(world, last, policy).plan_id for world in (live, read_live) for last in (at_rest, read)}

    assert len(ids) == 1


def test_what_has_not_changed_is_the_same_object(at_rest):
    live = Snapshot.model_validate(with_jobs(at_rest.snapshot, build.job("new", gpus=1)).document())

    cache = EpochCache()
    told = planned(at_rest.snapshot, at_rest, cache=cache)
    found = reuse_equal_nouns(live, at_rest.snapshot)
    plan = planned(live, at_rest, cache=cache)

    assert found == live
    assert found.cluster is at_rest.snapshot.cluster
    assert all(job is found.job_by_name[job.name] for job in at_rest.snapshot.jobs)
    before = {action.id: action for action in at_rest.actions}
    assert all(action is before[action.id] for action in plan.actions if action.id in before)
    assert [state is other for state, other in zip(plan.nodes, told.nodes, strict=True)] == [True, False]


def test_what_is_said_of_jobs_and_nodes_is_what_is_true_now(at_rest):
    cache = EpochCache()
    last = planned(with_jobs(at_rest.snapshot, build.job("next", gpus=4)), at_rest, cache=cache)
    live = with_jobs(last.snapshot, build.job("new", gpus=1))

    plan, anew = planned(live, last, cache=cache), planned(live)

    assert plan.waiting == anew.waiting != last.waiting
    assert plan.nodes == anew.nodes != last.nodes
    waits = [[each for each in found.actions if isinstance(each, Wait)] for found in (plan, anew)]
    assert waits[0] == waits[1]


def test_a_node_that_has_changed_is_told_anew(at_rest):
    """Even if as much is left of it as before."""
    first, second = at_rest.snapshot.cluster.nodes
    pooled = first.model_copy(update={"pool": "spot"})
    cluster = at_rest.snapshot.cluster.model_copy(update={"nodes": (pooled, second)})
    cache = EpochCache()
    planned(at_rest.snapshot, at_rest, cache=cache)

    plan = planned(at_rest.snapshot.model_copy(update={"cluster": cluster}), at_rest, cache=cache)

    assert [state.pool for state in plan.nodes] == ["spot", None]
    assert [state.free_gpus for state in plan.nodes] == [state.free_gpus for state in at_rest.nodes]


def test_a_node_that_was_added_is_one_of_those_there_from_then_on():
    new = build.node("spot-1", gpus=8, pool="spot")
    world = build.snapshot(
        nodes=[build.node("old", gpus=1)], pools=[build.pool("spot", most=1)], jobs=[build.job("a", gpus=8)]
    )
    first = drafted(
        world, build.placement("a", build.replica("spot-1", gpus=range(8))), added=[new], policy=HURRIED
    )
    assert {state.name: state.change.value for state in first.nodes} == {"old": "kept", "spot-1": "added"}
    cluster = first.snapshot.cluster.model_copy(update={"nodes": (*first.snapshot.cluster.nodes, new)})

    plan = planned(first.snapshot.model_copy(update={"cluster": cluster}), first)

    assert {state.name: state.change.value for state in plan.nodes} == {"old": "kept", "spot-1": "kept"}


def test_what_was_said_of_nodes_in_another_plan_of_the_same_snapshot_is_not_taken_over(at_rest):
    live, cache = with_jobs(at_rest.snapshot, build.job("new", gpus=1)), EpochCache()
    plan = planned(live, at_rest, cache=cache)
    other = planned(without(plan.snapshot, "new"), plan, cache=cache)
    assert other.nodes != plan.nodes

    again = planned(plan.snapshot, plan, cache=cache)

    assert again.nodes == plan.nodes


def test_a_job_asked_for_in_other_words_is_new(at_rest):
    dearer = tuple(
        job.model_copy(update={"priority": 7}) if job.name == "large" else job
        for job in at_rest.snapshot.jobs
    )
    live = with_jobs(at_rest.snapshot.model_copy(update={"jobs": dearer}), build.job("new", gpus=1))

    assert new_waiting_jobs(live, at_rest.snapshot) == {"large", "new"}


@pytest.mark.slow
def test_carried_on_a_plan_breaks_no_rule_and_is_worth_no_less():
    started = 0
    for kind, seed in itertools.product(KINDS, range(6)):
        instance = kind(seed)
        snapshot = getattr(instance, "snapshot", instance).canonical()
        policy = getattr(instance, "policy", instances.POLICY).model_copy(update={"solvers": ()})
        for waits in [job for job in snapshot.jobs if job.running is None][-2:]:
            new = waits.model_copy(update={"priority": waits.priority + 3})
            last = planned(without(snapshot, new.name), policy=policy)
            live = with_jobs(without(snapshot, new.name), new).canonical()
            before, fresh = initial_target(live, policy, last), new_waiting_jobs(live, last.snapshot)

            after = extend_last_plan(build_problem(live, policy), live.running_placements, before, fresh)

            was, now = (verify_target(live, policy, target) for target in (before, after))
            assert was.violations == now.violations == ()
            assert now.objective >= was.objective
            started += new.name in {placement.job for placement in after.placements}
    assert started >= 3


def test_a_last_plan_that_is_not_legal_any_more_is_no_end():
    jobs = [build.job("a", gpus=4)]
    first = planned(build.snapshot(nodes=[build.node(gpus=4)], jobs=jobs))
    cordoned = build.snapshot(nodes=[build.node(gpus=4, cordoned=True)], jobs=jobs)

    plan = planned(cordoned, first)

    assert changes(plan) == set()
    assert not plan.placements


@pytest.mark.parametrize("change", [{"ready": False}, {"cordoned": True}, {"drain": True}])
def test_node_that_was_to_be_given_back_may_have_become_unusable(change):
    policy = HURRIED.model_copy(update={"pools": PoolPolicy(scale_down=True)})
    pools = [build.pool("spot", template=build.node("spot", price_per_hour=5))]
    nodes = [build.node(name, pool="spot", price_per_hour=5) for name in ("spot-0", "spot-1")]
    last = planned(build.snapshot(nodes=nodes, pools=pools), policy=policy)
    assert last.target.removed == ("spot-0", "spot-1")

    nodes[1] = nodes[1].model_copy(update=change)
    plan = planned(build.snapshot(nodes=nodes, pools=pools), last, policy=policy)

    assert plan.target.removed == ("spot-0",)
