"""What the READMEs of the scenarios that look ahead say beside their plans."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuplan.models.plan.actions import Migrate, Preempt, Start
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.files import load_policy, load_snapshot

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def load(folder):
    source = SCENARIOS / folder
    return load_snapshot(str(source)), load_policy(str(source / "policy.yaml"))


def plan(snapshot, policy):
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)


def hour(plan, name):
    """At which hour of the day a job starts."""
    return next(each.start.hour for each in plan.planned if each.job == name)


def started(plan):
    return {action.job: action for action in plan.actions if isinstance(action, Start)}


def changed(snapshot, name, **fields):
    jobs = tuple(job.model_copy(update=fields if job.name == name else {}) for job in snapshot.jobs)
    return snapshot.model_copy(update={"jobs": jobs})


@pytest.fixture(scope="module")
def gang():
    return load("starving-gang")


def with_backfill(policy, **fields):
    backfill = policy.horizon.backfill.model_copy(update=fields)
    return policy.model_copy(update={"horizon": policy.horizon.model_copy(update={"backfill": backfill})})


@pytest.mark.slow
def test_gang_that_does_not_starve_starts_behind_the_others(gang):
    snapshot, policy = gang

    assert hour(plan(snapshot, policy), "pretrain") == 15
    assert hour(plan(snapshot, with_backfill(policy, starving=None)), "pretrain") == 18


@pytest.mark.slow
def test_a_start_in_front_of_the_gang_is_killed_when_its_time_is_over(gang):
    snapshot, policy = gang

    killed = started(plan(snapshot, policy))
    left_alone = started(plan(snapshot, with_backfill(policy, kill=False)))

    assert killed.keys() == left_alone.keys() == {"infer-1", "infer-2", "infer-3"}
    for name, action in killed.items():
        asked_for = timedelta(seconds=snapshot.job_by_name[name].expected_duration)
        assert action.kill_at == snapshot.taken_at + asked_for
        assert left_alone[name].kill_at is None


@pytest.mark.slow
def test_jobs_leave_the_rack_in_the_last_plan_before_it_is_too_late():
    snapshot, policy = load("maintenance-window")
    earlier = snapshot.model_copy(update={"taken_at": snapshot.taken_at - timedelta(minutes=30)})

    def leave(plan):
        return {each.job for each in plan.actions if isinstance(each, Migrate | Preempt)}

    assert leave(plan(snapshot, policy)) == {"embed", "distill"}
    assert not leave(plan(earlier, policy))


def test_deadline_without_a_price_rents_no_machine():
    snapshot, policy = load("deadline-against-price")
    free = policy.model_copy(update={"prices": policy.prices.model_copy(update={"lateness_milli": 0})})

    assert len(plan(snapshot, policy).target.added) == 1
    assert not plan(snapshot, free).target.added


def test_hard_deadline_that_can_be_met_just_so_is_worth_a_machine():
    snapshot, policy = load("deadline-against-price")
    shorter = changed(snapshot, "filing", expected_duration=5 * 3600 - 300)

    found = plan(shorter, policy)

    assert "filing" in started(found)
    placed = verify(shorter, policy, found.placements, added=found.target.added, planned=found.target.planned)
    assert placed.violations == ()


def test_pair_starts_with_its_slower_half_and_alone_where_it_is_no_pair():
    snapshot, policy = load("dependency-chain")
    alone = changed(snapshot, "eval-client", co_start=None)

    pair = plan(snapshot, policy)

    assert hour(pair, "eval-client") == hour(pair, "eval-server") == 17
    assert "eval-client" in started(plan(alone, policy))


def test_chain_needs_the_third_cleaning_where_all_have_to_succeed():
    snapshot, policy = load("dependency-chain")

    found = plan(changed(snapshot, "train", depends_on_at_least=None), policy)

    assert hour(found, "train") == 16


def test_without_a_tariff_no_job_waits_for_the_night():
    snapshot, policy = load("off-peak-start")
    cluster = snapshot.cluster.model_copy(update={"tariffs": ()})

    dear, free = plan(snapshot, policy), plan(snapshot.model_copy(update={"cluster": cluster}), policy)

    assert set(started(dear)) == {"incident", "archive"}
    assert hour(dear, "retrain") == hour(dear, "sweep") == 20
    assert {"retrain", "incident", "archive"} <= set(started(free))
