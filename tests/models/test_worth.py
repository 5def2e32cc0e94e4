"""What jobs are worth by each goal of the policy."""

from __future__ import annotations

from datetime import timedelta

import build
import pytest

from planner.models.dependency import FinishedJob
from planner.models.earnings import Earnings
from planner.models.errors import BadInputError
from planner.models.job import Running
from planner.models.objective import Goal, Objective
from planner.models.policy import Policy, job_points
from planner.models.progress import Progress
from planner.sources.files import load_policy

HOUR = 3600


def worth(*jobs, nodes=None, finished=(), **objective):
    """Points by job."""
    snapshot = build.snapshot(nodes=nodes or build.cluster(1), jobs=jobs)
    snapshot = snapshot.model_copy(update={"finished": tuple(finished)})
    earnings = Earnings(snapshot, Policy(objective=Objective(**objective)))
    return {job.name: earnings.full_points(job) for job in jobs}


def job(name, hours=1.0, *, gpus=1, waited=0.0, **more):
    expected = None if hours is None else round(hours * HOUR)
    waited = timedelta(hours=waited)
    return build.job(name, gpus=gpus, expected_duration=expected, waited=waited, **more)


def running(name, hours, *, ran, gpu=0, **more):
    since = Running(started_at=build.NOW - timedelta(hours=ran), replicas=(build.replica(gpus=(gpu,)),))
    return job(name, hours, waited=ran, running=since, **more)


def test_by_value_jobs_are_worth_what_weights_say():
    jobs = [job("a", 3, gpus=2, waited=13, priority=1), job("b", None)]

    found = worth(*jobs, goal="value")

    assert found == {each.name: job_points(Policy(), each, build.NOW) for each in jobs}


def test_by_completion_half_of_the_service_left_is_worth_twice_as_much():
    found = worth(job("a", 1), job("b", 2), job("c", 4), goal="completion")

    assert found["a"] == pytest.approx(2 * found["b"], rel=0.05)
    assert found["b"] == pytest.approx(2 * found["c"], rel=0.05)


def test_by_completion_gangs_count_as_the_time_they_take():
    """Points of a job do not depend on its GPUs, so that for each GPU they fall with them."""
    found = worth(job("a", 2, gpus=1), job("b", 2, gpus=4), goal="completion")

    assert found["a"] == found["b"]


def test_by_completion_what_earlier_runs_saved_is_not_left():
    progress = Progress(completed=9 * HOUR)
    restart = {"checkpoint_duration": 0, "restart_duration": 0}

    found = worth(job("a", 10, progress=progress, **restart), job("b", 10), goal="completion")

    assert found["a"] == pytest.approx(10 * found["b"], rel=0.05)


def test_by_completion_a_running_job_is_worth_more_the_nearer_its_end():
    found = worth(
        running("a", 10, ran=0), running("b", 10, ran=9, gpu=1), goal="completion", doubling="4000h"
    )

    assert found["b"] == pytest.approx(10 * found["a"], rel=0.1)


def test_worth_doubles_with_age():
    found = worth(job("a", 5, waited=24), job("b", 5), goal="completion", doubling="12h")

    assert found["a"] == pytest.approx(4 * found["b"], rel=0.05)


def test_an_aged_job_is_worth_more_than_any_that_has_just_come():
    """The bound on how long a job is overtaken: from the least to the most is so many doublings."""
    doublings = 16
    short, tiny = job("s", 0.1), [job(f"t{index}", 0.02) for index in range(50)]
    aged = job("long", 1000, gpus=8, waited=doublings * 12)

    found = worth(short, aged, *tiny, goal="completion", doubling="12h")

    assert found["long"] / 8 > max(found["s"], found["t0"])


def test_a_gpu_is_worth_less_than_a_guarantee_whatever_its_age():
    found = worth(job("a", 0.02, waited=5000), job("b", 5000), goal="completion")

    assert found["a"] < Policy().prices.guarantee


def test_jobs_of_unknown_duration_take_after_their_like():
    def finished(name, minutes):
        end = build.NOW - timedelta(hours=1)
        start = end - timedelta(minutes=minutes)
        return FinishedJob(name=name, queue="q", user="u", started_at=start, ended_at=end)

    past = [finished(f"short-{index}", 10) for index in range(5)]
    past += [finished(f"long-{index}", 600) for index in range(5)]
    jobs = [job("short-9", None, user="u"), job("long-9", None, user="u"), job("short", 1 / 6)]

    found = worth(*jobs, finished=past, goal="completion")

    assert found["short-9"] == found["short"] == pytest.approx(60 * found["long-9"], rel=0.05)


def test_of_jobs_of_which_nothing_is_known_those_that_ran_least_go_first():
    past = {name: Progress(completed=hours * HOUR) for name, hours in (("b", 1), ("c", 30))}
    jobs = [job("a", None), job("b", None, progress=past["b"]), job("c", None, progress=past["c"])]

    found = worth(*jobs, goal="completion")

    assert found["a"] > found["b"] > found["c"]


def test_by_least_attained_service_what_a_job_has_had_counts():
    progress = Progress(completed=50 * HOUR)

    found = worth(job("a", 60), job("b", 60, progress=progress), goal="least-attained-service")

    assert found["a"] > 2 * found["b"]


def test_by_makespan_twice_as_much_left_is_worth_twice_as_much():
    found = worth(job("a", 2), job("b", 4), goal="makespan")

    assert found["b"] == pytest.approx(2 * found["a"], rel=0.05)


def test_by_fairness_the_later_job_is_worth_more():
    """Alone in the cluster its finish-time fairness is (1 h waited + 1 h left) / 1 h: two."""
    found = worth(job("a", 1, waited=1), job("b", 1), goal="fairness", power=3)

    assert found["a"] == 8 * found["b"]


def test_fairness_is_judged_by_the_share_there_is_for_all():
    few = worth(job("a", 1), goal="fairness", power=1)
    many = worth(job("a", 1), job("b", 1, gpus=31), goal="fairness", power=1)

    assert few["a"] == 100
    assert many["a"] == 100 // 4


def test_queues_may_have_goals_of_their_own():
    jobs = [job("a", 2), job("b", 2, queue="y")]

    found = worth(*jobs, goal="makespan", queues={"y": Goal.VALUE})

    assert found["b"] == 100
    assert found["a"] == worth(*jobs, goal="makespan")["a"]


def test_a_blend_is_between_its_goals():
    jobs = [job("a", 1), job("b", 8)]
    of = {goal: worth(*jobs, goal=goal) for goal in (Goal.COMPLETION, Goal.MAKESPAN)}

    found = worth(*jobs, goal="completion", blend={"goal": "makespan", "part": 0.25})

    for name, points in found.items():
        both = 0.75 * of[Goal.COMPLETION][name] + 0.25 * of[Goal.MAKESPAN][name]
        assert points == pytest.approx(both, abs=1)


def test_a_weight_counts_with_every_goal_and_no_weight_is_worth_nothing():
    for goal in Goal:
        found = worth(job("a"), job("b", weight=3), job("c", weight=0), goal=goal)

        assert found["b"] == pytest.approx(3 * found["a"], rel=0.05), goal
        assert found["c"] == 0, goal


def test_a_blend_with_a_horizon_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("objective: {goal: fairness, blend: {goal: makespan}}\nhorizon: {slots: 4, length: 1h}\n")

    with pytest.raises(BadInputError, match="expected one goal for all jobs with a horizon of several slots"):
        load_policy(path)


def test_ahead_the_sum_of_weighted_completion_times_counts():
    """Four slots of an hour, the longest job takes four: within eight hours all could complete."""
    jobs = [job("a", 1), job("b", 4)]
    policy = Policy(objective=Objective(goal="completion"), horizon={"slots": 4, "length": HOUR})
    earnings = Earnings(build.snapshot(jobs=jobs), policy)

    for start in (0, 1, 3):
        for each, hours in zip(jobs, (1, 4), strict=True):
            points = earnings.completion(each, build.MODEL, 1, start=start * HOUR)
            assert points == pytest.approx(100 * (8 - start - hours), abs=1)
