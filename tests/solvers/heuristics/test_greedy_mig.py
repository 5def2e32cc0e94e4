"""Where greedy puts MIG instances: on what exists, where it leaves most room, and switched GPUs last."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import MigPolicy, Policy, Prices
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders import build
from tests.support.harness.greedy_plans import plan

FREE = Policy(mig=MigPolicy(switch_mode=True), prices=Prices(switch_mode=0, repartition=0))


def test_idle_instance_is_used_before_one_is_created():
    node = build.node(gpus=2, mig={0: [], 1: [("3g.40gb", 4)]})

    planned = plan(build.snapshot(nodes=[node], jobs=[build.job(mig={"3g.40gb": 1})]))

    assert planned.held("a") == [(1, "3g.40gb", 4)]
    assert "repartition" not in planned.terms


def test_instance_is_created_where_nothing_idle_is_of_its_profile():
    node = build.node(gpus=1, mig={0: [("3g.40gb", 4)]})

    planned = plan(build.snapshot(nodes=[node], jobs=[build.job(mig={"1g.10gb": 1}, priority=5)]))

    # Slices 0 to 3 take no 3g beside the idle one any more, but a 4g none either way.
    assert planned.held("a")[0][1] == "1g.10gb"
    assert planned.terms["repartition"] == -20


def test_created_instance_spares_idle_ones_and_the_room_of_larger_ones():
    node = build.node(gpus=1, mig={0: [("1g.10gb", 0)]})
    used = build.job("r", mig={"1g.10gb": 1}, at=[build.replica(mig=[(0, "1g.10gb", 0)])])

    planned = plan(build.snapshot(nodes=[node], jobs=[used, build.job(mig={"1g.10gb": 1}, priority=5)]))

    # Next to the one in use: a 3g still fits at 4, and a 2g at 2.
    assert planned.held("a") == [(0, "1g.10gb", 1)]


def test_idle_instance_in_the_way_is_destroyed():
    node = build.node(gpus=1, mig={0: [("1g.10gb", index) for index in range(7)]})

    planned = plan(build.snapshot(nodes=[node], jobs=[build.job(mig={"7g.80gb": 1})]))

    assert planned.held("a") == [(0, "7g.80gb", 0)]


def test_without_repartitioning_only_what_exists_is_used():
    node = build.node(gpus=1, mig={0: [("1g.10gb", 0)]})
    jobs = [build.job(name, mig={"1g.10gb": 1}, priority=5) for name in "ab"]

    planned = plan(build.snapshot(nodes=[node], jobs=jobs), Policy(mig=MigPolicy(repartition=False)))

    assert planned.held("a") == [(0, "1g.10gb", 0)]
    assert set(planned.places) == {"a"}


def test_unknown_gpu_model_offers_what_it_has():
    node = build.node(model="X900", gpus=1, mig={0: [("1g.10gb", 0), ("1g.10gb", 3)]})
    jobs = [build.job(name, mig={"1g.10gb": 1}, priority=5) for name in "abc"]

    planned = plan(build.snapshot(nodes=[node], jobs=jobs), FREE)

    assert sorted(planned.held(job)[0][2] for job in planned.places) == [0, 3]


def test_gpu_is_switched_to_mig_mode_only_where_that_is_allowed():
    snapshot = build.snapshot(nodes=[build.node(gpus=1)], jobs=[build.job(mig={"3g.40gb": 1}, priority=9)])

    assert plan(snapshot).places == {}
    switched = plan(snapshot, Policy(mig=MigPolicy(switch_mode=True)))
    assert switched.held("a")[0][:2] == (0, "3g.40gb")
    assert switched.terms["repartition"] == -120


def test_gpu_is_not_switched_for_a_job_that_is_worth_less():
    snapshot = build.snapshot(nodes=[build.node(gpus=1)], jobs=[build.job(mig={"3g.40gb": 1})])

    assert plan(snapshot, Policy(mig=MigPolicy(switch_mode=True))).places == {}


def test_jobs_share_a_switched_gpu_before_another_is_switched():
    snapshot = build.snapshot(
        nodes=[build.node(gpus=2)], jobs=[build.job(name, mig={"3g.40gb": 1}, priority=9) for name in "ab"]
    )

    planned = plan(snapshot, Policy(mig=MigPolicy(switch_mode=True)))

    assert [planned.held(job)[0][0] for job in "ab"] == [0, 0]
    assert planned.terms["repartition"] == -140


def test_switched_gpu_is_no_gpu_for_others_and_a_shared_one_is_not_switched():
    running = build.job("r", milli=500, at=[build.replica(gpus=[0], milli=500)])
    jobs = [running, build.job("m", mig={"3g.40gb": 1}, priority=9), build.job("g", gpus=1)]

    planned = plan(build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs), FREE)

    # One wholly free GPU: the better paid takes it, in whichever form.
    assert planned.held("m") == [(1, "3g.40gb", 0)]
    assert "g" not in planned.places


def test_replica_with_several_instances_gets_them_on_one_node():
    nodes = [build.node(f"n{index}", gpus=1, mig={0: [("3g.40gb", 0), ("3g.40gb", 4)]}) for index in range(2)]
    busy = build.job("r", mig={"3g.40gb": 1}, at=[build.replica("n0", mig=[(0, "3g.40gb", 0)])])

    planned = plan(build.snapshot(nodes=nodes, jobs=[busy, build.job(mig={"3g.40gb": 2})]))

    assert planned.nodes("a") == ["n1"]
    assert planned.held("a") == [(0, "3g.40gb", 0), (0, "3g.40gb", 4)]


@pytest.mark.parametrize(
    ("profile", "count"), [("1g.10gb", 7), ("2g.20gb", 3), ("3g.40gb", 2), ("7g.80gb", 1)]
)
def test_gpu_takes_as_many_instances_as_it_can_have(profile, count):
    snapshot = build.snapshot(
        nodes=[build.node(gpus=1, mig={0: []})],
        jobs=[build.job(f"j{index}", mig={profile: 1}, priority=9) for index in range(9)],
    )

    assert len(plan(snapshot).places) == count


def test_small_instances_leave_the_room_of_a_large_one():
    jobs = [
        build.job("large", mig={"3g.40gb": 1}),
        *(build.job(f"s{index}", mig={"1g.10gb": 1}, priority=9) for index in range(4)),
    ]

    planned = plan(build.snapshot(nodes=[build.node(gpus=1, mig={0: []})], jobs=jobs), FREE)

    assert len(planned.places) == 5


def test_small_instance_stands_where_a_wanted_large_one_does_not_fit_anyway():
    used = build.job("r", mig={"1g.10gb": 1}, at=[build.replica(mig=[(0, "1g.10gb", 5)])])
    jobs = [used, build.job("s", mig={"1g.10gb": 1}, priority=9), build.job("large", mig={"4g.40gb": 1})]

    planned = plan(build.snapshot(nodes=[build.node(gpus=1, mig={0: [("1g.10gb", 5)]})], jobs=jobs), FREE)

    assert planned.held("large") == [(0, "4g.40gb", 0)]
    assert planned.held("s")[0][2] in (4, 6)


def test_switched_gpu_is_cut_though_those_in_mig_mode_are_left_as_they_are():
    mig = MigPolicy(repartition=False, switch_mode=True)
    policy = Policy(mig=mig, prices=Prices(switch_mode=0, repartition=150))
    jobs = [build.job("a", mig={"3g.40gb": 1}, priority=9), build.job("b", mig={"1g.10gb": 1})]
    world = build.snapshot(nodes=[build.node(gpus=1)], jobs=jobs)

    made = plan_epoch(world, policy.model_copy(update={"solvers": ()}), seed=0, created_at=build.NOW)

    # The second one is not worth an instance, which is no fault of `mig.repartition`.
    assert [each.job for each in made.placements] == ["a"]
    assert {each.job: each.reason.code for each in made.waiting} == {"b": ReasonCode.NOT_CHOSEN}
    # It is, once the GPU is in MIG mode.
    later = plan(build.snapshot(nodes=[build.node(gpus=1, mig={0: []})], jobs=jobs), policy)
    assert later.places == {}
