"""A scenario says which jobs stop, lose, move, wait longer and gain, and counts the work its changes lose."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.render.reports.whatif import whatif_report
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.comparison import comparison_text
from gpuplan.planner.whatif.compare import JobOutcomeKind, compare
from gpuplan.planner.whatif.patch.scenario import Scenario, apply_scenario
from tests.support.builders.build import NOW, job, node, queue, replica, snapshot
from tests.support.doubles.task_engines import Here

POLICY = Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))
RACK_FAILS = {"change": "fail_nodes", "nodes": {"rack": "r1"}}
LAYOUT = Style(width=80)


def compared(world, *changes, policy=POLICY):
    scenario = Scenario.model_validate({"name": "s", "changes": changes})
    return compare(world, policy, [(scenario, apply_scenario(world, policy, scenario))], Here(), seed=0)


def fates(world, *changes, **more):
    (trial,) = compared(world, *changes, **more).scenarios
    return {each.job: each for each in trial.jobs}


def running(name, at, *, hours=10, saved=None, **more):
    """A job of eight GPUs on a node that has run for so long, and saved its state so many hours ago."""
    places = Running(
        started_at=NOW - timedelta(hours=hours),
        last_checkpoint_at=None if saved is None else NOW - timedelta(hours=saved),
        replicas=(replica(at, gpus=range(8)),),
    )
    return job(name, gpus=8, running=places, **more)


def two_racks(*jobs, queues=None):
    return snapshot(nodes=[node("n1", rack="r1"), node("n2", rack="r2")], jobs=jobs, queues=queues)


def test_a_rack_that_fails_loses_the_work_of_its_jobs():
    found = compared(two_racks(running("long", "n1")), RACK_FAILS)

    (trial,) = found.scenarios
    assert trial.figures.lost_gpu_hours == trial.figures.lost_by_changes_gpu_hours == 80.0
    assert trial.differences["lost_gpu_hours"] == 80.0
    # Checkpoint and restart cost as well, as in every other preemption.
    assert trial.figures.lost_by_changes_points >= 80 * POLICY.prices.disruption
    (fate,) = trial.jobs
    assert (fate.job, fate.queue) == ("long", "q")
    assert (fate.fate, fate.stopped_by_changes, fate.lost_gpu_hours) == (JobOutcomeKind.MOVES, True, 80.0)
    assert fate.text == "n1 → n2"


def test_what_is_in_a_checkpoint_is_not_lost():
    found = fates(two_racks(running("long", "n1", saved=1)), RACK_FAILS)

    assert found["long"].lost_gpu_hours == 8.0


def test_a_job_that_finds_no_place_after_a_failure_stops():
    found = fates(two_racks(running("long", "n1"), running("other", "n2")), RACK_FAILS)

    assert found.keys() == {"long"}
    assert (found["long"].fate, found["long"].gpus) == (JobOutcomeKind.STOPS, -8.0)
    assert found["long"].text.startswith("stops: needs 8 GPUs")


def test_a_job_that_does_not_start_for_want_of_quota_loses_and_one_with_more_quota_gains():
    world = two_racks(job("a", gpus=8), job("b", gpus=8), queues=[queue(nominal=8)])

    more = fates(world, {"change": "set_quota", "queue": "q", "nominal": 16})
    less = fates(world, {"change": "set_quota", "queue": "q", "nominal": 0})

    assert [(each.fate, each.gpus, each.text) for each in more.values()] == [
        (JobOutcomeKind.GAINS, 8.0, "starts")
    ]
    assert [(each.fate, each.gpus) for each in less.values()] == [(JobOutcomeKind.LOSES, -8.0)]
    assert "queue q" in next(iter(less.values())).text


def test_a_job_with_a_later_foreseen_start_waits_longer():
    policy = POLICY.model_copy(update={"horizon": HorizonPolicy(slots=8, length=3600)})
    first = running("first", "n1", hours=1, expected_duration=2 * 3600)
    longer = running("second", "n2", hours=1, expected_duration=4 * 3600)
    world = two_racks(first, longer, job("w", gpus=8, expected_duration=3600))

    found = fates(world, RACK_FAILS, policy=policy)

    assert found["w"].fate is JobOutcomeKind.WAITS_LONGER
    assert found["w"].starts_before is not None
    assert found["w"].starts_after is None or found["w"].starts_after > found["w"].starts_before


def test_a_scenario_that_changes_nothing_changes_no_job():
    world = two_racks(running("long", "n1"), job("a", gpus=8))

    (trial,) = compared(world).scenarios

    assert (trial.jobs, trial.differences) == ((), {})


def test_a_plan_that_stops_a_job_where_the_base_keeps_it_counts_its_loss_once():
    world = two_racks(running("low", "n1", hours=1), job("high", gpus=16, priority=50, held=True))
    change = {"change": "add_jobs", "jobs": [job("new", gpus=8, replicas=2, priority=60).document()]}

    (trial,) = compared(world, change).scenarios

    (fate,) = trial.jobs
    assert (fate.job, fate.fate, fate.stopped_by_changes) == ("low", JobOutcomeKind.STOPS, False)
    assert fate.lost_gpu_hours == trial.figures.lost_gpu_hours == 8.0
    assert trial.figures.lost_by_changes_points == 0


@pytest.mark.slow
def test_text_and_page_name_the_jobs_with_queue_and_user_and_say_what_is_worse():
    found = compared(two_racks(running("long", "n1", user="ada"), job("a", gpus=4, user="bob")), RACK_FAILS)

    text, page = comparison_text(found, LAYOUT), whatif_report(found)

    assert "s: 1 job loses, 1 moves; 80 GPU-hours of work lost" in text
    rows = [line.split()[:4] for line in text.splitlines()]
    assert ["long", "q", "ada", "moves"] in rows
    assert ["a", "q", "bob", "loses"] in rows
    for told in ("ada", "bob", "80 GPU-hours of work lost", "loses 80 GPU-hours"):
        assert told in page
    # More points, as the job starts anew, are no gain beside what was lost.
    assert found.scenarios[0].differences["objective"] > -found.scenarios[0].figures.lost_by_changes_points
    assert '<li class="stop">Objective ' in page


def test_more_of_what_is_bad_is_not_drawn_as_good():
    world = two_racks(job("a", gpus=8), job("b", gpus=8))

    page = whatif_report(compared(world, {"change": "remove_nodes", "nodes": {"rack": "r1"}}))

    assert '<li class="stop">Jobs waiting 0 → 1 (+1), worse' in page
    drawn = page[page.index("<h3>Jobs waiting</h3>") :].partition("</figure>")[0]
    assert "var(--leaves)" in drawn
    assert "var(--arrives)" not in drawn
