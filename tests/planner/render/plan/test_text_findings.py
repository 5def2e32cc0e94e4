"""What the text of a plan says beside its actions: what went wrong, is missed, waits, or is proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan.models.plan.solution import Fallback, RejectedAnswer, SolveStatus, StopReason
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Disruption, Policy
from gpuplan.models.policy.settings import DisruptionBudget
from gpuplan.planner.diff.diff import diff
from tests.support.builders.build import (
    by_value,
    cluster,
    job,
    node,
    placement,
    pool,
    queue,
    replica,
    snapshot,
)
from tests.support.builders.solution_builders import drafted
from tests.support.harness.verify_helpers import broken
from tests.support.output.golden import golden_section
from tests.support.output.plan_texts import HEAD, crowd, shown, text, text_of_diff
from tests.support.samples.sample_plans import NEW_NODE, WORLD, small_plan

TEXTS = Path(__file__).with_name("texts.golden.txt")


def test_the_cost_before_is_told_where_the_plan_changes_it():
    world = snapshot(
        nodes=[node(price_per_hour=10)], pools=[pool("cloud", template=NEW_NODE)], jobs=[job(gpus=8)]
    )

    plan = small_plan(world, [placement("a", replica("cloud-1", gpus=range(8)))], added=[NEW_NODE])

    assert "cost 10.00 → 50.00/h" in text(plan)


def test_what_went_another_way_than_meant_is_said():
    violations = broken(Rule.FRACTIONAL_GPU, "node h100-02 gpu 4", "1.5 GPUs", "1 GPU")
    plan = small_plan(
        solver="greedy",
        objective=43_790,
        bound=None,
        fallback=Fallback(
            tried="milp", used="greedy", reason="the time limit of 1 s passed without an answer"
        ),
        rejected=(RejectedAnswer(solver="milp", violations=violations),),
        not_disaggregated=2,
    )

    assert text(plan).startswith(HEAD + shown("""
        greedy FEASIBLE  objective 43,790  bound unknown  in 6.0 s
        goal value  terms  completion +43,790  (greedy 43,790)
        Fell back from milp to greedy: the time limit of 1 s passed without an answer
        Rejected an answer that breaks a rule: milp: fractional_gpu: node h100-02 gpu 4:
        found 1.5 GPUs, allowed 1 GPU
        2 jobs of the solver's answer found no concrete place and wait

          + start""")[:-1])  # fmt: skip


def test_a_last_plan_that_no_longer_fits_is_no_answer_that_was_rejected():
    violations = broken(Rule.ANTI_AFFINITY, "job a", "on n0 with b", "no other job with app=y there")

    told = " ".join(text(small_plan(rejected=(RejectedAnswer("last plan", violations),))).split())

    assert "cannot be carried on, since the cluster has changed: anti_affinity: job a: found on n0" in told
    assert "Rejected" not in told


def test_a_clock_that_ends_a_deterministic_search_is_told():
    deterministic = {"policy": Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))}
    told = "The clock ended the search after 6.0 s"

    assert told in text(small_plan(ended=StopReason.TIME).model_copy(update=deterministic))
    assert told not in text(small_plan(ended=StopReason.TICKS).model_copy(update=deterministic))
    assert told not in text(small_plan(ended=StopReason.TIME))


def test_a_plan_that_changes_nothing_says_why():
    proven = {"status": SolveStatus.OPTIMAL, "objective": 0, "bound": 0, "greedy_objective": 0}
    idle = snapshot(nodes=cluster(1), jobs=[])
    worthless = snapshot(nodes=cluster(1), jobs=[job(gpus=1, weight=0)])

    assert "No changes: nothing waits, and no change pays (proven" in text(small_plan(idle, (), **proven))
    assert "No changes: no change pays (proven, " in text(small_plan(worthless, (), **proven))


def test_a_guarantee_that_is_missed_is_told_and_one_without_demand_is_not():
    jobs = [
        job("r", gpus=8, queue="research", at=[replica(gpus=range(8))]),
        job("w", gpus=6, queue="research"),
    ]
    queues = [queue("research", nominal=16, guarantee=12), queue("idle", nominal=16, guarantee=4)]

    lines = text(small_plan(snapshot(nodes=cluster(1), jobs=jobs, queues=queues), ())).splitlines()

    assert [line for line in lines if "guaranteed" in line] == ["queue research: 8 of 12 guaranteed GPUs"]


def test_a_guarantee_counts_what_queues_below_hold_and_no_held_job():
    jobs = [
        job("r", gpus=3, queue="leaf", at=[replica(gpus=range(3))]),
        job("w", gpus=1, queue="leaf"),
        job("h", gpus=8, queue="leaf", held=True),
    ]
    queues = [queue("top", nominal=16, guarantee=12), queue("leaf", parent="top")]

    assert "queue top: 3 of 4 guaranteed GPUs" in text(
        small_plan(snapshot(nodes=cluster(1), jobs=jobs, queues=queues), ())
    )


def test_a_drain_that_has_to_wait_names_the_jobs_and_why():
    jobs = [
        job("fixed", gpus=1, preemptible=False, at=[replica(gpus=[0])]),
        job("other", gpus=1, at=[replica(gpus=[1])]),
    ]
    world = snapshot(nodes=[node(drain=True), node("n1", drain=True)], jobs=jobs)

    lines = text(small_plan(world, ())).splitlines()

    assert [line for line in lines if "drain waits" in line] == [
        "node n0: drain waits for fixed (not preemptible) and other (stays)"
    ]


def test_a_drain_names_the_budget_that_it_waits_for():
    jobs = [job(name, gpus=1, at=[replica(gpus=[index])]) for index, name in enumerate("abc")]
    world = snapshot(nodes=[node(drain=True), node("n1")], jobs=jobs)
    policy = by_value(disruption=Disruption(budgets=(DisruptionBudget(name="x", max_unavailable=1),)))

    found = " ".join(text(drafted(world, placement("a", replica("n1", gpus=[0])), policy=policy)).split())

    assert "node n0: drain waits for b and c (disruption budget x: 1 of at most 1 replica unavail" in found


def test_where_no_gpu_is_free_nothing_is_said_about_whole_nodes():
    world = snapshot(nodes=[node(), node("n1", drain=True)], jobs=[job("a", gpus=8)])

    assert "free GPUs" not in text(small_plan(world, [placement("a", replica(gpus=range(8)))]))


def test_a_proof_that_nothing_can_start_is_said():
    world = WORLD.model_copy(update={"jobs": tuple(job for job in WORLD.jobs if job.running or job.held)})
    plan = small_plan(world, (), status=SolveStatus.OPTIMAL, objective=0, bound=0, greedy_objective=0)

    found = text(plan)

    assert found == golden_section(TEXTS, "a proof that nothing can start", found)


def test_without_a_proof_no_changes_is_not_called_proven():
    found = text(small_plan(started=(), bound=None))

    assert "No changes: nothing better was found (bound unknown). 7 waiting, 2 unchanged." in found
    assert "Next:" not in found


def test_without_a_file_there_is_no_next_command():
    assert "Next:" not in text(small_plan(), path=None)


@pytest.mark.slow
@pytest.mark.parametrize("path", [None, "-"])
def test_no_command_is_shown_for_a_plan_that_is_in_no_file(path):
    found = text(crowd(), path=path)

    assert "Next:" not in found
    assert "each one: gpuplan plan … --all" in found
    assert "each one: --all" in text_of_diff(diff(crowd()), path=path)


def test_where_nothing_is_free_nothing_is_said_about_what_is_free():
    world = snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)])

    assert "free GPUs" not in text(small_plan(world, [placement("a", replica(gpus=range(8)))]))
