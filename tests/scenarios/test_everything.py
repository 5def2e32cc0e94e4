"""The scenario with every rule at once: made to the byte, complete, and planned without breaking any."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpuplan.models.policy.policy import BudgetPolicy
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.files import load_policy, scenario_files
from gpuplan.planner.sources.synthetic import generate_snapshot, load_workload_profile

pytestmark = pytest.mark.slow

EVERYTHING = Path(__file__).parents[2] / "scenarios" / "everything"
SEED = 7
BY_WORK = BudgetPolicy(mode="deterministic")


@pytest.fixture(scope="module")
def everything():
    return generate_snapshot(load_workload_profile(EVERYTHING / "profile.yaml"), seed=SEED)


def test_the_generator_makes_the_shipped_files_to_the_byte(everything):
    made = scenario_files(everything)

    assert made == {name: (EVERYTHING / name).read_text() for name in made}


def test_it_is_of_the_size_that_its_readme_says(everything):
    running = sum(job.running is not None for job in everything.jobs)
    readme = " ".join((EVERYTHING / "README.md").read_text().split())

    assert len(everything.cluster.nodes) == 157
    assert f"{running} jobs run, {len(everything.jobs) - running} wait" in readme


def test_every_kind_of_job_waits_and_most_kinds_run(everything):
    def kinds(job):
        request = job.request
        yield "whole GPUs", request.gpus > 0
        yield "share", request.gpu_milli > 0 and not job.time_slicing
        yield "time-sliced share", job.time_slicing
        yield "MIG", bool(request.mig)
        yield "no GPU", not request.needs_gpu
        yield "gang", job.gang.minimum > 1
        yield "elastic", job.gang.elastic
        yield "preferred", job.locality.preferred is not None
        yield "data", bool(job.datasets)
        yield "region", bool(job.regions)
        yield "affinity", bool(job.affinity)
        yield "preference", bool(job.preferred_nodes)
        yield "required", job.locality.required is not None
        yield "spread", job.spread is not None
        yield "apart", bool(job.anti_affinity)

    found = {True: Counter(), False: Counter()}
    for job in everything.jobs:
        found[job.running is not None].update(kind for kind, given in kinds(job) if given)

    assert len(found[False]) == 15
    assert set(found[False]) - set(found[True]) == {"required", "spread", "apart"}


def test_some_of_what_runs_has_to_leave_and_was_saved_lately(everything):
    draining = {node.name for node in everything.cluster.nodes if node.drain}
    running = [job.running for job in everything.jobs if job.running]

    assert any(replica.node in draining for one in running for replica in one.replicas)
    assert 0 < sum(one.last_checkpoint_at is not None for one in running) < len(running)


def plan_and_verification(everything, **rules):
    policy = load_policy(str(EVERYTHING / "policy.yaml")).model_copy(update=rules)
    plan = plan_epoch(everything, policy, seed=0, created_at=everything.taken_at)
    target = plan.target
    return plan, verify(everything, policy, target.placements, added=target.added, removed=target.removed)


def test_its_plan_breaks_no_rule_and_its_objective_is_the_verifiers(everything):
    plan, verification = plan_and_verification(everything, budget=BudgetPolicy(time_limit="3s"))

    assert verification.violations == ()
    assert verification.objective == plan.solution.objective >= plan.solution.greedy_objective
    assert plan.solution.objective <= plan.solution.bound


def test_greedys_plan_has_changes_of_most_kinds(everything):
    """Greedy's, as no clock decides on it."""
    plan, verification = plan_and_verification(everything, solvers=(), budget=BY_WORK)

    assert verification.violations == ()
    done = Counter(action.type for action in plan.actions)
    assert min(done["start"], done["preempt"], done["migrate"], done["scale_up"]) > 0
