"""An apply that is cut off after any of its steps is gone on with to the end that it would have reached."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.errors import PartlyAppliedError, StalePlanError
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Drift
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import verify_remaining
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot
from tests.support.builders.build import NOW, cluster, job, placement, queue, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.doubles.interrupted_apply import apply_at_once, apply_in_pieces, preempting, reclaiming
from tests.support.samples.all_actions import PLAN as OF_ALL_KINDS
from tests.support.samples.all_actions import begin, plan_with, pool, scale_up, with_pools
from tests.support.samples.apply_world import carry_out, stop_after
from tests.support.seeds import EVERY_SEED

SCENARIOS = Path(__file__).parents[3] / "scenarios"
SMALL = sorted(path.name for path in SCENARIOS.iterdir() if path.is_dir() and path.name != "production")
SMALL.remove("everything")


@cache
def planned(scenario):
    """Greedy's plan: no clock says how good it is."""
    source = str(SCENARIOS / scenario)
    world, policy = load_snapshot(source), load_policy(default_policy_path(source))
    return plan_epoch(world, policy.model_copy(update={"solvers": ()}), seed=0, created_at=NOW)


def assert_cuts_do_no_harm(plan, folder, *, steps=1):
    (folder / "whole").mkdir()
    (folder / "cut").mkdir()
    whole = apply_at_once(plan, folder / "whole")
    assert apply_in_pieces(plan, folder / "cut", steps=steps) == whole


@pytest.mark.parametrize("name", ["cloud-1", "z-1"])
def test_a_new_node_is_not_taken_for_the_one_that_a_reservation_of_one_node_meant(tmp_path, name):
    """Without the new node only n0 can be the reserved one, so the job gets the new node."""
    cloud = pool()
    soon = Reservation(name="soon", count=1, start=NOW + timedelta(hours=1), duration=3600, queues=("own",))
    queues = [queue("q"), queue("own")]
    long = {"expected_duration": "5h", "queue": "q"}
    jobs = [job("a", gpus=8, **long), job("old", gpus=1, at=[replica("n0", gpus=[0])], **long)]
    world = with_pools(snapshot(nodes=cluster(1), jobs=jobs, queues=queues, reservations=(soon,)), cloud)
    held = replica(name, gpus=range(8))
    plan = plan_with(
        world,
        scale_up(cloud, name),
        begin(world, "a", held, once=[f"scale_up/{name}"]),
        placements=[world.job_by_name["old"].placement, placement("a", held)],
    )

    assert_cuts_do_no_harm(plan, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SMALL)
def test_a_plan_of_a_scenario_cut_after_every_step_comes_to_its_end(tmp_path, scenario):
    assert_cuts_do_no_harm(planned(scenario), tmp_path)


def test_a_plan_that_stops_borrowers_cut_after_every_step_comes_to_its_end(tmp_path):
    assert_cuts_do_no_harm(reclaiming(), tmp_path)


@pytest.mark.slow
def test_a_plan_of_all_kinds_of_changes_cut_after_every_step_comes_to_its_end(tmp_path):
    assert_cuts_do_no_harm(OF_ALL_KINDS, tmp_path)


@pytest.mark.slow
def test_the_plan_with_every_rule_at_once_cut_again_and_again_comes_to_its_end(tmp_path):
    assert_cuts_do_no_harm(planned("everything"), tmp_path, steps=1 if EVERY_SEED else 43)


@pytest.mark.slow
def test_a_plan_of_300_steps_cut_again_and_again_comes_to_its_end(tmp_path):
    plan = preempting(100, 200)
    assert len(steps_of(plan)) == 300

    assert_cuts_do_no_harm(plan, tmp_path, steps=1 if EVERY_SEED else 73)


@pytest.mark.parametrize("mode", list(Drift))
def test_what_others_changed_while_a_plan_was_cut_off_is_noticed_all_the_same(tmp_path, log, mode):
    plan = reclaiming()
    with SimulatedCluster.create(tmp_path / "c.db", plan.snapshot) as live:
        with pytest.raises(PartlyAppliedError):
            carry_out(live, log, plan=plan, stop=stop_after(4))
        live._db.execute("""UPDATE queues SET document = replace(document, '"nominal":6', '"nominal":1')""")

        with pytest.raises(StalePlanError, match=r"quota: queue all: .* 4 GPUs.* 3 GPUs"):
            carry_out(live, log, plan=plan, resume=True, drift_mode=mode)


def test_a_job_that_the_plan_started_is_not_judged_as_one_that_starts_only_now():
    on_time = {"expected_duration": "1h", "deadline": NOW + timedelta(minutes=65), "hard_deadline": True}
    world = snapshot(nodes=cluster(2), jobs=[job("a", gpus=1, **on_time), job("b", gpus=1, **on_time)])
    places = [placement("a", replica("n0", gpus=[0])), placement("b", replica("n0", gpus=[1]))]
    plan = plan_of(world, *places)
    running = world.job_by_name["a"].model_copy(update={"running": _since_now(places[0])})
    later = world.model_copy(
        update={"taken_at": NOW + timedelta(minutes=10), "jobs": (running, world.job_by_name["b"])}
    )

    late = verify_remaining(plan, later, {"a1"}).violations

    assert [violation.subject for violation in late] == ["job b"]
    assert verify_remaining(plan, later, {"a1", "a2"}).violations == ()


def _since_now(placed):
    return Running(started_at=NOW, replicas=placed.replicas)
