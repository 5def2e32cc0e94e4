"""Running jobs in the problem: what may be done to them, what that is worth, and which jobs may follow."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.placement import Running
from gpuplan.models.problem.jobs import ClassRole, HeldResources
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.builders.build import NOW, by_value

MIGRATE = {"disruption": {"migrate": True}}


def posed(*jobs, policy=None, **more):
    return build_problem(build.snapshot(jobs=jobs, **more), by_value(**policy or {}))


def runs(name="r", *, on="n0", gpus=1, replicas=1, hours=1, first=0, count=None, **more):
    """A running job with whole GPUs of one node, its replicas side by side."""
    count = count or (replicas if isinstance(replicas, int) else replicas[0])
    places = [
        build.replica(on, gpus=range(first + number * gpus, first + (number + 1) * gpus))
        for number in range(count)
    ]
    job = build.job(name, gpus=gpus, replicas=replicas, at=places, waited=timedelta(hours=hours), **more)
    started = Running(started_at=NOW - timedelta(hours=hours), replicas=job.running.replicas)
    return job.model_copy(update={"running": started})


def wants(name="w", *, gpus=1, priority=5, **more):
    return build.job(name, gpus=gpus, priority=priority, **more)


def test_a_job_may_be_stopped_for_one_of_higher_priority():
    (found,) = posed(runs(gpus=2), wants()).incumbents

    # 2 GPUs are worth 200 points; 60 s + 300 s + 1 h of 2 GPUs at 100 a GPU-hour.
    assert (found.job, found.stop_points, found.rank) == ("r", -200 - 220, 1)
    assert found.holds == (HeldResources(0, (0, 1)),)
    assert (found.shape.gpus, found.gpu_model, found.move, found.grow) == (2, build.MODEL, None, None)
    assert not found.shrinkable


@pytest.mark.parametrize(
    ("policy", "job"),
    [
        ({"disruption": {"preempt": False}}, {}),
        ({"disruption": {"minimum_runtime": "61m"}}, {}),
        ({"disruption": {"max_preemptions": 0}}, {}),
        ({"disruption": {"max_preemptions": 2}}, {"preemptions": 2}),
        ({"disruption": {"max_preemptions": 2}}, {"preemptions": 3}),
        ({"disruption": {"priority_gap": 6}}, {}),
        ({}, {"preemptible": False}),
        ({}, {"priority": 5}),
        ({}, {"on": "n1"}),
    ],
)
def test_a_job_that_may_not_be_stopped_or_is_in_nobodys_way_is_no_incumbent(policy, job):
    nodes = [build.node("n0"), build.node("n1", model="T4")]
    waiting = wants(gpu_models={build.MODEL: 1})

    assert posed(runs(**job), waiting, nodes=nodes, policy=policy).incumbents == ()


def test_a_job_is_ripe_once_it_ran_for_the_minimum():
    policy = {"disruption": {"minimum_runtime": "1h"}}

    assert len(posed(runs(hours=1), wants(), policy=policy).incumbents) == 1


def test_a_job_is_spared_only_once_it_was_stopped_so_often():
    policy = {"disruption": {"max_preemptions": 2}}

    assert len(posed(runs(preemptions=1), wants(), policy=policy).incumbents) == 1
    assert len(posed(runs(preemptions=9), wants()).incumbents) == 1


def test_a_job_that_was_stopped_too_often_does_not_shrink_nor_move_but_grows():
    policy = {"disruption": {"migrate": True, "max_preemptions": 1}}

    (found,) = posed(runs(replicas=(1, 6), count=2, preemptions=1), wants(), policy=policy).incumbents

    assert (found.stop_points, found.shrinkable, found.move, found.grow is None) == (None, False, None, False)


def test_a_job_on_a_node_that_is_still_coming_is_not_ripe():
    nodes = [build.node("n0", ready_at=NOW + timedelta(minutes=5))]

    assert posed(runs(hours=-0.01), wants(), nodes=nodes).incumbents == ()


def test_no_job_is_stopped_for_a_held_job():
    assert posed(runs(), wants(held=True)).incumbents == ()


def test_ranks_follow_the_priorities_of_the_jobs_that_make_room():
    jobs = [
        runs("r1", priority=1, first=0),
        runs("r3", priority=3, first=1),
        runs("r3too", priority=3, first=2),
        runs("r9", priority=9, first=3),
        wants("w0", priority=0),
        wants("w2", priority=2, gpus=2),
        wants("w4", priority=4, gpus=3),
        wants("w5", priority=5, gpus=4),
    ]

    problem = posed(*jobs, policy={"disruption": {"priority_gap": 2}})

    assert {one.job: one.rank for one in problem.incumbents} == {"r1": 1, "r3": 2, "r3too": 2}
    assert {one.jobs[0]: one.rank for one in problem.classes} == {"w0": 0, "w2": 0, "w4": 1, "w5": 2}


def test_what_a_queue_borrows_is_claimed_by_queues_below_their_quota():
    queues = [
        build.queue("q", nominal=2),
        build.queue("p", nominal=8),
        build.queue("o"),
    ]
    jobs = [
        runs("over", gpus=3),
        runs("within", gpus=1, first=3, queue="p"),
        runs("unlimited", gpus=1, first=4, queue="o"),
    ]

    problem = posed(*jobs, wants(priority=0, queue="p"), wants("x", priority=0, queue="o"), queues=queues)

    assert {one.job: one.claims for one in problem.incumbents} == {"over": (1,), "unlimited": (1,)}
    assert {one.jobs[0]: one.claim for one in problem.classes} == {"w": 1, "x": 0}


def test_a_queue_borrows_by_what_is_held_below_it_too():
    queues = [
        build.queue("o", nominal=1),
        build.queue("q", nominal=0),
        build.queue("p", parent="q", nominal=1),
    ]
    jobs = [runs("r", queue="p"), runs("s", gpus=2, first=1, queue="p")]

    problem = posed(*jobs, wants(priority=0, queue="o"), queues=queues)

    assert {one.job for one in problem.incumbents} == {"r", "s"}


def test_a_borrower_makes_room_in_the_quota_even_on_nodes_that_nothing_can_use():
    nodes = [build.node("n0", cordoned=True), build.node("n1", gpus=8)]
    queues = [build.queue("o", nominal=1), build.queue("q", nominal=1)]

    (found,) = posed(runs(gpus=2), wants(priority=0, queue="o"), nodes=nodes, queues=queues).incumbents

    assert (found.holds, found.claims) == ((HeldResources(None),), (1,))


def test_an_elastic_job_may_shrink_to_its_minimum_and_grow_to_its_maximum():
    problem = posed(runs(replicas=(2, 6), count=4), wants(), policy={"prices": {"resize": 7}})

    # 60 s + 300 s + 1 h of 4 GPUs at 100 a GPU-hour, and 7.
    (found,) = problem.incumbents
    assert (found.min_replicas, found.shrink_points, found.resize_points) == (2, (-100, -100), -447)
    grow = problem.classes[found.grow]
    assert (grow.role, grow.jobs, grow.incumbent) == (ClassRole.GROW, ("r",), 0)
    assert (grow.minimum, grow.maximum, grow.fixed_points) == (1, 2, -447)
    assert [option.points for option in grow.options] == [100]
    assert grow.points(grow.options[0], 2) == 200 - 447


def resized(job, *, ago):
    """The running job, resized so many minutes ago."""
    running = job.running.model_copy(update={"resized_at": NOW - timedelta(minutes=ago)})
    return job.model_copy(update={"running": running})


def test_a_job_that_was_just_resized_is_no_incumbent():
    job = runs(replicas=(2, 6), count=4, gpus=1)
    free = {"disruption": {"migrate": True}}

    assert posed(resized(job, ago=59), wants(), policy=free).incumbents == ()
    (found,) = posed(resized(job, ago=60), wants(), policy=free).incumbents
    assert None not in (found.stop_points, found.move, found.grow)
    assert found.shrinkable


def test_a_job_that_has_to_leave_is_an_incumbent_however_short_ago_it_was_resized():
    nodes = [build.node("n0", drain=True), build.node("n1")]

    (found,) = posed(resized(runs(replicas=(2, 6), count=4), ago=0), nodes=nodes).incumbents

    assert None not in (found.stop_points, found.move)
    assert (found.grow, found.shrinkable) == (None, False)


@pytest.mark.parametrize(
    "job",
    [
        {"replicas": (2, 4), "count": 4},
        {"replicas": (2, 6), "count": 2, "locality": {"required": "zone"}},
        {"replicas": (2, 6), "count": 2, "spread": {"max": 6}},
    ],
)
def test_a_job_at_its_maximum_or_bound_to_places_does_not_grow(job):
    assert posed(runs(**job)).classes == ()


def test_without_resize_no_job_shrinks_or_grows():
    problem = posed(runs(replicas=(1, 6), count=2), wants(), policy={"disruption": {"resize": False}})

    assert (problem.incumbents[0].shrinkable, problem.incumbents[0].grow) == (False, None)


def test_a_job_grows_though_it_may_not_be_disturbed():
    (found,) = posed(runs(replicas=(1, 6), preemptible=False)).incumbents

    assert (found.stop_points, found.shrinkable, found.grow) == (None, False, 0)


def test_growth_stays_on_the_gpu_model():
    nodes = [build.node("n0"), build.node("n1", model="T4"), build.node("n2", gpus=4)]

    problem = posed(runs(replicas=(1, 6)), nodes=nodes)

    (option,) = problem.classes[0].options
    assert (option.gpu_model, len(option.groups)) == (build.MODEL, 2)


def test_growth_may_follow_preempted_jobs():
    problem = posed(runs("low", priority=1, first=4), runs("high", priority=3, replicas=(1, 8)))

    assert {one.job: one.stop_points is not None for one in problem.incumbents} == {
        "low": True,
        "high": False,
    }
    assert problem.classes[0].rank == 1


def test_a_move_is_worth_the_difference():
    nodes = [build.node("n0", model="T4"), build.node("n1")]
    job = runs(gpus=2, replicas=(1, 4), count=2, gpu_models={"T4": 1, build.MODEL: 2})

    problem = posed(job, nodes=nodes, policy=MIGRATE | {"prices": {"migration": 3}})

    (found,) = problem.incumbents
    move = problem.classes[found.move]
    assert (move.role, move.minimum, move.maximum, move.elastic) == (ClassRole.MOVE, 2, 2, False)
    assert [(option.gpu_model, option.points) for option in move.options] == [(build.MODEL, 400), ("T4", 200)]
    assert found.leave_points == -200 - 440 - 3


def test_a_movable_job_is_offered_a_move():
    nodes = [build.node("n0"), build.node("n1", model="T4")]

    def moves(*jobs, **policy):
        return posed(*jobs, nodes=nodes, policy=MIGRATE | policy).incumbents

    assert len(moves(runs(), wants(priority=0))) == 1
    assert len(moves(runs(gpu_models={"T4": 2, build.MODEL: 1}))) == 1
    assert len(moves(runs(), prices={"fragmentation": 1})) == 1


def test_a_job_on_a_node_to_be_drained_may_leave_whatever_the_policy_says():
    nodes = [build.node("n0", drain=True), build.node("n1")]
    policy = {
        "disruption": {"preempt": False, "minimum_runtime": "100h", "max_preemptions": 0},
        "prices": {"drain": 77},
    }

    problem = posed(runs(), nodes=nodes, policy=policy)

    (found,) = problem.incumbents
    assert (found.stop_points is None, found.move, found.leave_reward, found.rank) == (False, 0, 77, 1)
    assert found.holds == (HeldResources(None),)
    assert [problem.nodes[index].name for index in problem.groups[0].nodes] == ["n1"]
    assert posed(runs(preemptible=False), nodes=nodes).incumbents == ()


def test_a_job_that_leaves_a_node_to_be_drained_may_take_the_place_of_a_lesser_one():
    nodes = [build.node("n0", drain=True), build.node("n1")]

    problem = posed(runs("high", priority=4), runs("low", on="n1"), nodes=nodes)

    assert {one.job: one.stop_points is not None for one in problem.incumbents} == {"high": True, "low": True}


def test_holds_say_what_each_replica_leaves():
    layout = [("1g.10gb", 0), ("3g.40gb", 4)]
    nodes = [
        build.node("n0", mig={1: layout}),
        build.node("n1", mig={0: layout}, cordoned=True),
        build.node("n2"),
    ]
    slices = build.job(
        "m",
        mig={"1g.10gb": 1},
        replicas=2,
        cpus=2,
        at=[
            build.replica("n0", mig=[(1, "1g.10gb", 0)], cpus=2),
            build.replica("n1", mig=[(0, "1g.10gb", 0)], cpus=2),
        ],
    )
    share = build.job("s", milli=300, at=[build.replica("n2", gpus=(5,), milli=300)])
    waiting = [wants("w"), wants("v", gpus=0, mig={"3g.40gb": 1})]

    problem = posed(slices, share, *waiting, nodes=nodes)

    held = {one.job: one for one in problem.incumbents}
    assert held["m"].holds == (
        HeldResources(0, (), ((1, build.layout(("1g.10gb", 0))[0]),)),
        HeldResources(None),
    )
    assert (held["m"].shape.mig, held["m"].shape.amounts[0]) == ((("1g.10gb", 1),), 2000)
    assert held["s"].holds == (HeldResources(1, (5,)),)
    assert (held["s"].shape.gpu_milli, held["s"].shape.gpus) == (300, 0)


def test_an_unhealthy_gpu_is_not_freed():
    nodes = [build.node("n0", details=(Gpu(index=1, healthy=False),))]

    (found,) = posed(runs(gpus=3), wants(), nodes=nodes).incumbents

    assert found.holds == (HeldResources(0, (0, 2)),)


def test_the_shape_of_an_incumbent_is_what_it_holds_as_it_is_charged():
    job = build.job(
        "r", gpus=1, cpus=9, qos="burstable", at=[build.replica("n0", gpus=(0,), cpus=4, memory_gib=1)]
    )

    (found,) = posed(job, wants(), overcommit={"burstable": {"cpus": 2, "memory": 2}}).incumbents

    assert found.shape.amounts == (2000, 512, 0)


@pytest.mark.parametrize(
    "places",
    [
        [build.replica("n0", gpus=(0,)), build.replica("n0", gpus=(1, 2))],
        [build.replica("n0", gpus=(0,), cpus=1), build.replica("n0", gpus=(1,))],
        [build.replica("n0", gpus=(0,)), build.replica("t", gpus=(1,))],
        [build.replica("n0"), build.replica("n0")],
    ],
)
def test_jobs_of_unlike_replicas_are_left_alone(places):
    job = build.job("r", gpus=1, replicas=2, at=places)

    assert posed(job, wants(), nodes=[build.node("n0"), build.node("t", model="T4")]).incumbents == ()


def test_usage_and_free_amounts_include_incumbents():
    problem = posed(
        runs(gpus=3), wants(), nodes=[build.node("n0", gpus=4)], queues=[build.queue("q", nominal=4)]
    )

    assert problem.nodes[0].gpus == (0, 0, 0, 1000)
    assert problem.budgets[0].own == (3000,)


def _rich():
    """A snapshot in which nearly every part of a question has something in it."""
    nodes = [
        build.node(
            "n0",
            rack="r",
            zone="z",
            watts=500,
            power_cap_watts=3000,
            mig={7: [("1g.10gb", 0), ("3g.40gb", 4)]},
        ),
        build.node("n1", rack="r", zone="z", drain=True, watts=500),
        build.node("n2", rack="s", zone="z", pool="spot", taints=({"key": "a"}, {"key": "b"})),
        build.node("n3", rack="s", zone="y", pool="base", labels={"tier": "gold"}),
    ]
    keep = {
        "labels": {"app": "x"},
        "anti_affinity": [{"labels": {"app": "x"}}, {"labels": {"app": "y"}, "level": "rack"}],
    }
    tolerant = {"tolerations": ({"key": "a"}, {"key": "b"})}
    jobs = [
        runs("r0", gpus=2, replicas=(1, 4), count=2, **keep),
        runs("r1", on="n1", workload_class="serve"),
        runs("r2", on="n2", gpus=3, priority=2, **tolerant),
        build.job(
            "r3", gpus=1, replicas=2, at=[build.replica("n3", gpus=(1,)), build.replica("n0", gpus=(6,))]
        ),
        build.job("r4", mig={"1g.10gb": 1}, at=[build.replica("n0", mig=[(7, "1g.10gb", 0)])]),
        wants("w0", gpus=2, replicas=(1, 3), queue="p", **keep),
        wants("w1", gpus=0, mig={"3g.40gb": 1}, datasets=["b", "a"], regions=["", "eu"]),
        wants("w2", workload_class="train", spread={"level": "rack"}, replicas=3, **tolerant),
        wants(
            "w3",
            priority=1,
            preferred_nodes=[
                {"match": {"key": "tier", "values": ["gold"]}, "points": 3},
                {"match": {"key": "tier", "operator": "Exists"}, "points": 4},
            ],
            affinity=[{"key": "x", "operator": "DoesNotExist"}, {"key": "y", "operator": "DoesNotExist"}],
        ),
    ]
    about = {
        "pools": (
            build.pool("spot", template=build.node("s", price_per_hour=2, zone="z", rack="t")),
            build.pool("base", template=build.node("b", price_per_hour=1), most=2),
        ),
        "datasets": ({"name": "a", "zones": {"z": 1, "y": 2}}, {"name": "b", "elsewhere": 3}),
        "rack_power": ({"rack": "r", "zone": "z", "watts": 5000}, {"rack": "s", "zone": "z", "watts": 1}),
    }
    queues = [
        build.queue("q", nominal=20, guarantee=12),
        build.queue("p", parent="q", nominal=9, guarantee=1),
    ]
    return build.snapshot(nodes=nodes, jobs=jobs, queues=queues, **about)


RICH = _rich()
RICH_POLICY = by_value(
    disruption={"migrate": True},
    prices={
        "fragmentation": 1,
        "interference": [
            {"classes": ["train", "serve"], "points": 5},
            {"classes": ["serve", "serve"], "points": 6},
        ],
    },
    profiles={"train": "spread"},
)


def _shuffled(value, draw):
    """A document with every list and mapping in another order."""
    if isinstance(value, dict):
        keys = draw.sample(list(value), len(value))
        return {key: _shuffled(value[key], draw) for key in keys}
    if isinstance(value, list):
        return [_shuffled(item, draw) for item in draw.sample(value, len(value))]
    return value


def test_a_rich_question_has_everything_in_it():
    problem = build_problem(RICH, RICH_POLICY)

    assert {one.job for one in problem.incumbents} == {"r0", "r1", "r2", "r3", "r4"}
    # At this instant no job resumes.
    assert {one.role for one in problem.classes} == set(ClassRole) - {ClassRole.RESUME}
    assert all((problem.pools, problem.domains, problem.power_caps, problem.standing, problem.guarantees))
    assert any(one.node_points for one in problem.classes)
    assert len({one.rank for one in problem.classes}) > 1


@pytest.mark.parametrize("seed", range(15))
def test_the_order_of_nothing_changes_the_question(seed):
    shuffled = Snapshot.model_validate(_shuffled(RICH.document(), random.Random(seed)))

    assert shuffled != RICH
    assert build_problem(shuffled, RICH_POLICY) == build_problem(RICH, RICH_POLICY)
