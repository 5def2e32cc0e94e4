"""What jobs are worth by each goal of the policy."""

from __future__ import annotations

from datetime import timedelta
from math import log

import pytest

from gpuplan.models.dependency import FinishedJob
from gpuplan.models.job import Progress
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Disruption, Policy, RequeueBoost, Weights
from gpuplan.models.policy.settings import Goal, HorizonPolicy, Objective
from gpuplan.models.value.job_value import job_points
from gpuplan.models.value.start_value import StartValue
from tests.support.builders import build

HOUR = 3600


def worth(*jobs, nodes=None, finished=(), horizon=None, disruption=None, **objective):
    """Points by job."""
    snapshot = build.snapshot(nodes=nodes or build.cluster(1), jobs=jobs)
    snapshot = snapshot.model_copy(update={"finished": tuple(finished)})
    policy = Policy(
        objective=Objective(**objective),
        horizon=horizon or HorizonPolicy(),
        disruption=Disruption(**disruption or {}),
    )
    earnings = StartValue(snapshot, policy)
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


def test_by_completion_half_of_the_time_left_counts_twice_as_much_under_the_root():
    jobs = [job("a", 1), job("b", 2, gpus=4), job("c", 16), job("day", 24)]

    found = worth(*jobs, goal="completion")

    assert found["day"] == 100
    assert found["a"] == pytest.approx(100 * 24**0.25, rel=0.025)
    assert found["b"] == pytest.approx(400 * 12**0.25, rel=0.025)
    assert found["c"] == pytest.approx(100 * 1.5**0.25, rel=0.025)


def test_by_completion_it_is_service_left_where_equals_take_turns():
    jobs = [job("a", 1), job("b", 1, gpus=8), job("days", 8 * 24)]

    found = worth(*jobs, goal="completion", disruption={"priority_gap": 0})

    assert found["days"] == 100
    assert found["a"] == pytest.approx(100 * 192**0.25, rel=0.025)
    assert found["b"] == pytest.approx(800 * 24**0.25, rel=0.025)


def test_what_a_job_is_worth_depends_on_no_other_job():
    alone = worth(job("a", 4), goal="completion")["a"]

    assert worth(job("a", 4), job("b", 700, gpus=128), goal="completion")["a"] == alone


def test_by_completion_the_order_is_that_of_weight_over_time_whatever_the_spread():
    jobs = [
        job("a", 8),
        job("b", 4),
        job("c", 1),
        job("d", 0.1),
        job("e", 700, gpus=128),
        job("f", 8, weight=4),
    ]
    found = worth(*jobs, goal="completion")

    each_gpu = {one.name: found[one.name] / one.request.gpus for one in jobs}
    assert sorted(each_gpu, key=each_gpu.get) == ["e", "a", "b", "f", "c", "d"]


def test_by_completion_what_earlier_runs_saved_is_not_left():
    progress = Progress(completed=9 * HOUR)
    restart = {"checkpoint_duration": 0, "restart_duration": 0}

    found = worth(job("a", 10, progress=progress, **restart), job("b", 1), goal="completion")

    assert found["a"] == found["b"]


def test_by_completion_a_running_job_is_worth_more_the_nearer_its_end():
    found = worth(running("a", 10, ran=0), running("b", 10, ran=9, gpu=1), job("c", 1), goal="completion")

    assert found["a"] < found["b"] == found["c"]


def test_waiting_counts_as_less_work_and_running_does_not():
    jobs = [job("a", 20, waited=24), job("b", 5), running("c", 40, ran=20), job("d", 20)]

    found = worth(*jobs, goal="completion", doubling="12h")

    assert found["a"] == found["b"]
    assert found["c"] == found["d"]


def test_an_aged_job_is_worth_more_than_one_of_any_length_that_has_just_come():
    """A job of five days, after 13 doublings, and one of a minute: almost 2^13 times as much work."""
    aged = job("long", 120, waited=13 * 12)

    found = worth(job("s", 0.02), aged, goal="completion", doubling="12h")

    assert found["long"] > found["s"]


def test_a_gpu_is_worth_less_than_a_guarantee_and_a_nominal_quota_whatever_its_age():
    found = worth(job("a", 0.001, waited=5000), job("b", 5000), goal="completion")

    assert found["a"] < Policy().prices.nominal < Policy().prices.guarantee


def test_jobs_of_unknown_duration_take_after_their_like():
    def finished(name, minutes):
        end = build.NOW - timedelta(hours=1)
        start = end - timedelta(minutes=minutes)
        return FinishedJob(name=name, queue="q", user="u", started_at=start, ended_at=end)

    past = [finished(f"short-{index}", 10) for index in range(5)]
    past += [finished(f"long-{index}", 600) for index in range(5)]
    jobs = [job("short-9", None, user="u"), job("long-9", None, user="u"), job("short", 1 / 6)]

    found = worth(*jobs, finished=past, goal="completion")

    assert found["short-9"] == pytest.approx(found["short"], rel=0.05)
    assert found["short-9"] == pytest.approx(60**0.25 * found["long-9"], rel=0.05)


def test_of_jobs_of_which_nothing_is_known_those_that_ran_least_go_first():
    past = {name: Progress(completed=hours * HOUR) for name, hours in (("b", 1), ("c", 30))}
    jobs = [job("a", None), job("b", None, progress=past["b"]), job("c", None, progress=past["c"])]

    found = worth(*jobs, goal="completion")

    assert found["a"] > found["b"] > found["c"]


def test_by_least_attained_service_what_a_job_has_had_counts():
    progress = Progress(completed=15 * HOUR)

    found = worth(job("a", 60), job("b", 60, progress=progress), goal="least-attained-service")

    assert found["a"] == pytest.approx(2 * found["b"], rel=0.03)


def test_by_least_attained_service_lost_work_counts_and_elastic_jobs_by_the_replicas_they_held():
    lost = Progress(completed=0, served=15 * HOUR)
    grown = running("c", 60, ran=15, gpu=0, replicas=(1, 4))
    jobs = [job("a", 60, progress=lost), job("b", 60, replicas=(1, 4)), grown]

    found = worth(*jobs, goal="least-attained-service")

    assert found["b"] == pytest.approx(4 * 2 * found["a"], rel=0.03)
    assert found["c"] == pytest.approx(4 * found["a"], rel=0.03)
    assert worth(jobs[0], goal="completion") == worth(job("a", 60, progress=Progress()), goal="completion")


def test_uncounted_service_is_what_was_completed_at_full_size():
    progress = Progress(completed=3 * HOUR)
    jobs = [job("a", 60, gpus=2, progress=progress), job("b", 60, gpus=2, progress=Progress(served="6h"))]

    found = worth(*jobs, goal="least-attained-service")

    assert found["a"] == found["b"]


def test_by_makespan_more_left_is_worth_more():
    found = worth(job("a", 24), job("b", 24 * 16), goal="makespan")

    assert (found["a"], found["b"]) == (100, 200)


def test_by_critical_path_a_job_that_all_wait_for_goes_first_and_others_by_time_left():
    """On 8 GPUs the jobs need (20 + 8 · 10 + 2) / 8 = 13 hours at least, and 20 because of the longest."""
    jobs = [job("long", 20), job("wide", 10, gpus=8), job("short", 2)]

    found = worth(*jobs, goal="critical-path")

    each_gpu = {one.name: found[one.name] / one.request.gpus for one in jobs}
    assert each_gpu["long"] == worth(job("a", 1 / 60), goal="completion")["a"]
    assert each_gpu["short"] == worth(job("a", 2), goal="completion")["a"]
    assert each_gpu["wide"] == pytest.approx(worth(job("a", 10), goal="completion")["a"], rel=0.01)


def test_by_critical_path_a_declared_hour_goes_before_no_declaration():
    """Beside a job of 900 hours none of the two is on the critical path."""
    found = worth(job("long", 900), job("declared", 1), job("unknown", None), goal="critical-path")

    assert found["declared"] > found["unknown"]


def test_by_critical_path_no_job_is_urgent_while_there_is_more_to_do_than_the_longest():
    others = [job(f"j{index}", 10) for index in range(32)]

    found = worth(job("long", 20), *others, goal="critical-path")

    assert found["long"] == worth(job("a", 20), goal="completion")["a"] < found["j0"]


def test_by_critical_path_what_runs_and_may_not_be_stopped_delays_no_job():
    """A service of 700 hours: the batch beside it ends when its own longest job does."""
    service = running("service", 700, ran=1, preemptible=False)

    found = worth(job("long", 20), job("short", 2), service, goal="critical-path")

    assert found["long"] > found["short"]


def test_by_fairness_the_later_job_is_worth_more():
    """Alone in the cluster its finish-time fairness is (1 h waited + 1 h left) / 1 h: two."""
    found = worth(job("a", 1, waited=1), job("b", 1), goal="fairness")

    assert (found["a"], found["b"]) == (200, 100)


def test_fairness_is_judged_by_the_share_there_is_for_jobs_with_gpus():
    crowd = [job("b", 1, gpus=31), *(job(f"c{index}", 1, gpus=0) for index in range(100))]
    cordoned = (*build.cluster(1), build.node("n1", cordoned=True))

    assert worth(job("a", 1), goal="fairness")["a"] == 100
    assert worth(job("a", 1), *crowd, goal="fairness")["a"] == 25
    assert worth(job("a", 1), *crowd, nodes=cordoned, goal="fairness")["a"] == 25


def test_a_blend_is_between_its_goals():
    jobs = [job("a", 1), job("b", 8)]
    of = {goal: worth(*jobs, goal=goal) for goal in (Goal.COMPLETION, Goal.MAKESPAN)}

    found = worth(*jobs, goal="completion", blend={"goal": "makespan", "part": 0.25})

    for name, points in found.items():
        both = 0.75 * of[Goal.COMPLETION][name] + 0.25 * of[Goal.MAKESPAN][name]
        assert points == pytest.approx(both, abs=1)


def test_a_weight_counts_with_every_goal_and_no_weight_is_worth_nothing():
    for goal in Goal:
        found = worth(job("a"), job("b", weight=16), job("c", weight=0), goal=goal)

        times = 16 if goal in (Goal.VALUE, Goal.FAIRNESS) else 2
        assert found["b"] == pytest.approx(times * found["a"], rel=0.03), goal
        assert found["c"] == 0, goal


def test_over_a_horizon_points_are_those_of_all_hours_of_service():
    """Of a slot at least: a job that ends within one holds its places to the end of it."""
    jobs = [job("day", 24), job("two", 48), job("short", 0.25)]
    horizon = HorizonPolicy(slots=16, length="1h")
    for goal in (Goal.COMPLETION, Goal.MAKESPAN, Goal.FAIRNESS, Goal.LEAST_ATTAINED_SERVICE):
        now = worth(*jobs, goal=goal)
        ahead = worth(*jobs, horizon=horizon, goal=goal)

        for name, hours in (("day", 24), ("two", 48), ("short", 1)):
            assert ahead[name] == pytest.approx(hours * now[name], rel=0.01), (goal, name)

    assert worth(*jobs, horizon=horizon, goal="value") == worth(*jobs, goal="value")


def test_over_a_horizon_value_beside_other_goals_is_by_the_hour_as_they_are():
    """A day's job is worth 100 by both goals, and each hour of it the same, in a blend and by queue."""
    jobs = [job("a", 24), job("b", 24, queue="batch")]
    ahead = HorizonPolicy(slots=16, length="1h")
    for mixed in (
        {"goal": "completion", "blend": {"goal": "value", "part": 0.5}},
        {"goal": "value", "blend": {"goal": "makespan", "part": 0.5}},
        {"goal": "completion", "queues": {"batch": {"goal": "value"}}},
    ):
        assert worth(*jobs, **mixed) == {"a": 100, "b": 100}
        assert worth(*jobs, horizon=ahead, **mixed) == {"a": 2400, "b": 2400}


def test_value_by_gpu_hours_has_its_hours_already():
    weights = {"basis": "gpu_hour"}
    objective = Objective(queues={"q": {"goal": "value"}})
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[job("a", 24)])

    def points(**horizon):
        policy = Policy(objective=objective, weights=weights, horizon=HorizonPolicy(**horizon))
        earnings = StartValue(snapshot, policy)
        return earnings.full_points(snapshot.jobs[0]), earnings.points_per_gpu(snapshot.jobs[0])

    assert points() == (2400, 2400)
    assert points(slots=16) == (2400, 100)


def test_by_attained_service_a_job_that_had_eight_gpu_days_counts_as_by_value():
    had = Progress(completed=191 * HOUR)

    assert worth(job("a", 500, progress=had), goal="least-attained-service") == {"a": 100}


@pytest.mark.parametrize("slots", [2, 12, 96])
def test_a_gpu_is_worth_less_than_a_nominal_quota_over_any_horizon(slots):
    """What a job earns that starts now: the part of its points that is done by the end."""
    jobs = [job(f"j{hours}", hours, waited=5000) for hours in (0.02, 1, 2, 12, 96, 5000)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs)
    policy = Policy(horizon=HorizonPolicy(slots=slots, length="1h"))
    earnings = StartValue(snapshot, policy)

    nominal = policy.owed(policy.prices.nominal)
    assert max(earnings.completion(each, None, 1) for each in jobs) < nominal
    assert build.by_value(horizon=policy.horizon).owed(7) == Policy().owed(7) == 7


def test_by_fairness_the_first_hours_of_a_job_bring_more_than_the_later_ones():
    """Over a horizon of eight hours, a job of eight: starts at each hour."""
    earnings = StartValue(
        build.snapshot(nodes=build.cluster(1), jobs=[job("a", 8)]),
        Policy(
            objective=Objective(goal="fairness"), horizon=HorizonPolicy(slots=8, length=HOUR, earliness=0)
        ),
    )
    points = [earnings.completion(job("a", 8), build.MODEL, 1, start=hour * HOUR) for hour in range(8)]
    first_hours = [points[hour] - points[hour + 1] for hour in range(7)]

    assert points[0] == pytest.approx(earnings.full_points(job("a", 8)), rel=0.001)
    assert points[7] == pytest.approx(points[0] * log(2) / log(9), rel=0.01)
    # The hour that a start an hour later does without is the last one, and adds the less the more there are.
    assert first_hours == sorted(first_hours)


def test_by_fairness_of_two_jobs_the_one_that_had_less_is_worth_more_for_the_same_hours():
    had = {"progress": Progress(completed=20 * HOUR)}
    jobs = [job("new", 100), job("old", 120, **had)]
    policy = Policy(objective=Objective(goal="fairness"), horizon=HorizonPolicy(slots=8, length=HOUR))
    earnings = StartValue(build.snapshot(nodes=build.cluster(1), jobs=jobs), policy)

    shares = [earnings.worth.shares(each, [8 * HOUR], 100 * HOUR) for each in jobs]
    of_new, of_old = (parts / whole for (parts,), whole in shares)

    assert of_new > 2 * of_old


# --- the boost of preempted jobs ----------------------------------------------------------------------------


def boosted(job, goal, **requeue):
    policy = Policy(objective=Objective(goal=goal), weights=Weights(requeue=RequeueBoost(**requeue)))
    return StartValue(build.snapshot(nodes=build.cluster(1), jobs=[job]), policy).full_points(job)


@pytest.mark.parametrize(("preemptions", "doublings"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (90, 3)])
def test_each_preemption_is_worth_a_doubling_of_age_up_to_the_cap(preemptions, doublings):
    stopped = job("a", 24, preemptions=preemptions)

    assert boosted(stopped, "completion", gain=1, cap=3) == round(100 * 2 ** (doublings / 4))
    assert boosted(job("a", 24, waited=12 * doublings), "completion") == round(100 * 2 ** (doublings / 4))


@pytest.mark.parametrize(("preemptions", "points"), [(0, 200), (1, 400), (2, 600), (3, 700), (9, 700)])
def test_by_value_it_is_a_point_of_priority(preemptions, points):
    assert boosted(job("a", preemptions=preemptions, priority=1), "value", gain=2, cap=5) == points


@pytest.mark.parametrize("goal", list(Goal))
def test_by_default_preemptions_do_not_matter(goal):
    assert boosted(job("a", preemptions=5), goal) == boosted(job("a"), goal)


def test_with_fairness_there_is_no_boost():
    assert boosted(job("a", preemptions=5), "fairness", gain=3) == boosted(job("a"), "fairness")
