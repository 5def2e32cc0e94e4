"""Jobs that have failed: none starts in its back-off or without a retry left, and nothing else is lost."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from gpuplan.models.dependency import Retry
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.builders.time_builders import ahead
from tests.support.harness.portfolio_answers import held_against_all_plans, without_neighbourhoods
from tests.support.oracles.brute_force import offered
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances

pytestmark = pytest.mark.slow

CHUNKS, SEEDS = (4, 100) if EVERY_SEED else (2, 8)
"""Chunks of seeds, and instances a chunk."""


def with_failures(snapshot, seed):
    """The snapshot, where most waiting jobs have failed before."""
    draw = random.Random(f"retries {seed}")

    def failed(job):
        if draw.random() < 0.3:
            return job
        rule = Retry(
            when=draw.choice(("never", "on-failure", "on-failure", "always")),
            max=draw.choice((0, 2, 3, 3)),
            backoff=draw.choice((0, 60, 600)),
            max_backoff=draw.choice((600, 1800)),
        )
        ago = timedelta(minutes=draw.choice((0, 0, 5, 20, 90)))
        failures = draw.choice((0, 1, 1, 1, 2, 4))
        update = {"retry": draw.choice((rule, rule, rule, None)), "failures": failures}
        return job.model_copy(update=update | {"failed_at": build.NOW - ago if failures else None})

    return snapshot.model_copy(update={"jobs": tuple(map(failed, snapshot.jobs))}).canonical()


def may_start(job):
    """By hand: not without a retry left, not before its back-off is over."""
    if job.retry is None or not job.failures:
        return True
    left = 0 if job.retry.when == "never" else job.retry.most
    pause = min(job.retry.longest_backoff, job.retry.backoff * 2 ** (job.failures - 1))
    return job.failures <= left and job.failed_at + timedelta(seconds=pause) <= build.NOW


def worlds(chunk):
    """(seed, snapshot, policy, disruptions)"""
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        instance = instances.tiny(seed)
        snapshot = with_failures(instance.snapshot, seed)
        yield seed, snapshot, instance.policy, offered(build_problem(snapshot, instance.policy))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_best_plan_starts_whatever_may_start(monkeypatch, chunk):
    without_neighbourhoods(monkeypatch)
    tally = Counter()
    for seed, snapshot, _, best, solution in held_against_all_plans(worlds(chunk), tally):
        jobs = snapshot.job_by_name
        for target in (solution.target, best.target):
            started = [jobs[each.job] for each in target.placements if jobs[each.job].running is None]
            assert all(map(may_start, started)), seed
        tally["kept"] += sum(not may_start(job) for job in snapshot.waiting)
        tally["started"] += len(best.target.placements) > len(snapshot.running_placements)
    assert tally["kept"] >= SEEDS // 2, tally
    assert tally["started"] >= SEEDS // 8, tally


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_plans_that_look_ahead_start_them_after_their_back_off(chunk):
    tally = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        snapshot = with_failures(instances.divisible(seed), seed)
        policy = ahead(slots=6, length=1200).model_copy(update={"solvers": ()})

        plan = plan_epoch(snapshot, policy, seed=0, created_at=build.NOW)

        jobs = snapshot.job_by_name
        for each in plan.planned:
            assert jobs[each.job].begins_at is None or each.start >= jobs[each.job].begins_at, seed
            assert not jobs[each.job].retries_used_up, seed
        for each in plan.waiting:
            used_up = jobs[each.job].retries_used_up and not jobs[each.job].running
            assert (each.reason.code is ReasonCode.RETRIES_USED_UP) is used_up, seed
            tally[each.reason.code] += 1
        tally["later"] += sum(jobs[each.job].begins_at is not None for each in plan.planned)
    assert tally["later"] >= SEEDS // 25, tally
    assert tally[ReasonCode.RETRIES_USED_UP] >= SEEDS // 2, tally
