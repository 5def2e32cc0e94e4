"""A change of policy on one snapshot: which jobs gain, which lose, and how sure that is."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.policy.policy import Disruption, MigPolicy, Policy, Prices
from gpuplan.planner.analysis.policy_changes import changed_knobs
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.answers import review_text
from gpuplan.planner.whatif.policy_review import review, review_plans
from gpuplan.solvers.worker import ChildOutcome
from tests.support.builders.build import by_value, job, node, queue, replica, snapshot
from tests.support.doubles.task_engines import Failing
from tests.support.harness.explain_helpers import CALM, greedy_plan

FREE = by_value(disruption=Disruption(preempt=True, resize=False))
ONE_NODE = [node("n0")]
OLD = job("old", gpus=8, at=[replica("n0", gpus=range(8))])
URGENT = job("urgent", gpus=8, priority=9, queue="r")
WORLD = snapshot(nodes=ONE_NODE, queues=[queue("q"), queue("r")], jobs=[OLD, URGENT])


def reviewed(old, new, world=WORLD):
    return review_plans(greedy_plan(world, old), greedy_plan(world, new))


def text(found):
    return review_text(found, Style(width=80))


def test_the_same_policy_changes_nothing():
    found = reviewed(CALM, CALM)

    assert found.same
    assert found.knobs == ()
    assert found.gain_by_new == 0
    assert "No change" in text(found)


def test_the_job_that_gains_and_the_job_that_is_reclaimed():
    found = reviewed(CALM, FREE)

    assert [(each.job, each.before, each.after, each.gpus) for each in found.gains] == [
        ("urgent", "wait", "start", 8)
    ]
    assert [(each.job, each.before, each.after, each.gpus) for each in found.losses] == [
        ("old", "keep", "preempt", -8)
    ]
    assert not found.same


def test_what_is_lost_and_what_each_queue_has():
    found = reviewed(CALM, FREE)

    assert (found.old.lost_gpu_hours, found.new.lost_gpu_hours) == (0, 8)
    assert [(each.queue, each.gpu_milli_before, each.gpu_milli_after) for each in found.queues] == [
        ("q", 8000, 0),
        ("r", 0, 8000),
    ]


def test_both_plans_are_compared_by_the_new_policy():
    """Urgent is worth 8,000 points; old 800, and its 8 GPU-hours with the way back as many and some."""
    found = reviewed(CALM, FREE)

    assert found.gain_by_new == found.new.objective > 6000


def test_a_policy_that_forbids_the_old_plan_is_said_to():
    found = reviewed(FREE, CALM)

    assert found.gain_by_new is None
    assert "forbids the old plan" in text(found)


def with_slack(plan, points):
    """The plan as if a better one could have so many points more."""
    bound = plan.solution.objective + points
    return plan.model_copy(update={"solution": plan.solution.model_copy(update={"bound": bound})})


@pytest.mark.parametrize(
    ("old_slack", "new_slack", "undecided"), [(0, 0, False), (10_000, 0, True), (0, 10_000, True)]
)
def test_a_difference_within_either_gap_is_undecided(old_slack, new_slack, undecided):
    old, new = greedy_plan(WORLD, CALM), greedy_plan(WORLD, FREE)

    found = review_plans(with_slack(old, old_slack), with_slack(new, new_slack))

    assert found.undecided == undecided
    assert ("undecided" in text(found)) == undecided


def test_knobs_are_told_by_their_path():
    new = Policy(
        prices=Prices(disruption=300), mig=MigPolicy(repartition=False), profiles={"train": "spread"}
    )

    changes = {path: (before, after) for path, before, after in changed_knobs(Policy(), new)}

    assert changes == {
        "prices.disruption": (100, 300),
        "mig.repartition": (True, False),
        "profiles.train": (None, "spread"),
    }


def test_a_plan_that_could_not_be_made_says_under_which_policy():
    engine = Failing(1, outcome=ChildOutcome(killed=True))

    with pytest.raises(PlannerError, match=r"new policy: .*killed"):
        review(WORLD, CALM, FREE, engine, seed=0)
