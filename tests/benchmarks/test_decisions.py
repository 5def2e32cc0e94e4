"""Decisions on small clusters: the same question for a seed, answered with a plan of its jobs."""

from __future__ import annotations

from benchmarks.decisions import DECISIONS, Decision, measure


def test_a_seed_gives_the_same_question_each_time():
    one, again, other = (DECISIONS[1].document(seed) for seed in (1, 1, 2))

    assert one == again != other
    assert {job["priority"] for job in one["jobs"]} == {0, 1, 2}
    assert any("running" in job for job in one["jobs"])


def test_a_decision_is_a_verified_plan_and_its_cpu_seconds():
    took, plan = measure(Decision(jobs=8, gpus=16, tiers=2), "greedy", seed=1, repetitions=1)

    assert took > 0
    assert len(plan.snapshot.jobs) == 8
    assert plan.solution.solver == "greedy"
