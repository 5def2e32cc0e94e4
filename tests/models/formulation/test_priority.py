from __future__ import annotations

import dataclasses

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import DesiredState, LaterStart
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.priority_stages import PriorityResults, stage_problem
from tests.support.builders import build
from tests.support.builders.time_builders import HOUR

IN_ORDER = {"priority": {"order": "tiers"}}


def rows_of(snapshot, policy, floor):
    """The problem with a floor under priority 5, its columns, and the rows of the family."""
    problem = dataclasses.replace(build_problem(snapshot, policy), floors=((5, floor),))
    x = Columns(problem)
    return problem, x, [row for row in formulate(problem, x).rows if row.family == "priority"]


def one_of_each():
    elastic = build.job("elastic", gpus=1, replicas=(1, 3), priority=5)
    jobs = [elastic, build.job("high", gpus=2, priority=5), build.job("low", gpus=4, priority=1)]
    return build.snapshot(nodes=build.cluster(1), jobs=jobs)


def on(*gpus):
    return build.replica("n0", gpus=gpus)


def test_floor_counts_the_points_of_its_priority_and_of_each_replica():
    target = DesiredState((build.placement("elastic", on(0), on(1)), build.placement("high", on(2, 3))))
    problem, x, (exact,) = rows_of(one_of_each(), build.by_value(**IN_ORDER), 1200 + 1200)
    _, _, (more,) = rows_of(one_of_each(), build.by_value(**IN_ORDER), 1200 + 1200 + 1)

    values = encode(x, target)

    assert dict(PriorityResults(problem, ()).points(target)) == {5: 2400}
    assert exact.holds(values)
    assert not more.holds(values)


def test_jobs_of_other_priorities_do_not_count():
    _, x, (row,) = rows_of(one_of_each(), Policy(**IN_ORDER), 1)

    values = encode(x, DesiredState((build.placement("low", on(0, 1, 2, 3)),)))

    assert row.value(values) == 0
    assert not row.holds(values)


def test_later_starts_count_with_what_they_bring_later():
    policy = Policy(horizon={"slots": 3, "length": HOUR}, **IN_ORDER)
    job = build.job("high", gpus=2, priority=5, expected_duration=HOUR)
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[job, build.job("low", gpus=2, priority=1)])
    problem, x, (row,) = rows_of(snapshot, policy, 1)
    planned = DesiredState((), planned=(LaterStart("high", 1, (on(0, 1),)),))

    values = encode(x, planned)

    assert PriorityResults(problem, ()).points(planned)[5] > 0
    assert row.value(values) > 0
    assert row.value(encode(x, DesiredState(()))) == 0


def test_growth_counts_with_its_price():
    grown = build.job("r", gpus=1, replicas=(1, 3), priority=5, at=[on(0)])
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[grown, build.job("low", gpus=2, priority=1)])
    policy = build.by_value(prices={"disruption": 0}, **IN_ORDER)
    problem, x, (row,) = rows_of(snapshot, policy, 600 - 10)
    target = DesiredState((build.placement("r", on(0), on(1)),))

    assert PriorityResults(problem, snapshot.running_placements).points(target)[5] == 600 - 10
    assert row.holds(encode(x, target))


def test_stage_leaves_out_lower_priorities_but_not_what_queues_are_owed():
    queues = [build.queue("q"), build.queue("owed", nominal=4, guarantee=2)]
    jobs = [
        build.job("high", gpus=2, priority=5),
        build.job("low", gpus=2, priority=1),
        build.job("due", gpus=2, priority=1, queue="owed"),
    ]
    problem = build_problem(
        build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues), build.by_value(**IN_ORDER)
    )

    asked = stage_problem(problem, 5)

    assert {one.jobs: one.most_points for one in asked.classes} == {("high",): 1200, ("due",): 0}
    assert stage_problem(problem, 1) == problem
