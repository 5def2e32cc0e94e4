"""What comes back as running jobs end, and nodes that come: what later slots can count on."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu, MigInstance
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.problem.problem import ReplicaRelease
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.planner.analysis.quota_headroom import usage_by_queue, usage_of_resource
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.problem_builder.free_nodes import held_milli
from tests.support.builders import build
from tests.support.strategies import instances, time_strategies
from tests.support.strategies.time_strategies import HOUR, found, hours, posed, runs, waits

SEEDS = range(60)


def node_of(problem, name="n0"):
    return next(node for node in problem.nodes if node.name == name)


@pytest.mark.parametrize(("left", "slot"), [(0.5, 1), (1, 1), (1.5, 2), (3, 3), (3.5, None), (9, None)])
def test_what_a_job_holds_comes_back_with_the_slot_after_its_end(left, slot):
    problem = posed(runs(left=left))

    assert [each.slot for each in node_of(problem).releases] == ([] if slot is None else [slot])


def test_all_that_a_replica_holds_comes_back():
    place = build.replica("n0", gpus=(2, 5), cpus=3, memory_gib=2)
    job = build.job("r", gpus=2, cpus=3, memory_gib=2, at=[place], expected_duration=2 * HOUR)
    nodes = [build.node("n0", details=[Gpu(index=5, healthy=False)], power_cap_watts=700, watts=700)]

    (back,) = node_of(posed(job, nodes=nodes)).releases

    assert back == ReplicaRelease(1, ((2, 1000),), (), (3000, 2048, 0, 2000))


def test_instances_and_shares_come_back():
    shares = build.job("s", milli=300, at=[build.replica(gpus=(3,), milli=300)], expected_duration=2 * HOUR)
    place = build.replica("n0", mig=[(0, "3g.40gb", 4)])
    slices = build.job("t", mig={"3g.40gb": 1}, at=[place], expected_duration=2 * HOUR)
    nodes = [build.node("n0", mig={0: [("3g.40gb", 4)]})]

    first, second = node_of(posed(shares, slices, nodes=nodes)).releases

    assert first.gpus == ((3, 300),)
    assert second.slices == ((0, MigInstance(profile="3g.40gb", start=4)),)


def test_what_is_promised_more_than_once_comes_back_as_it_was_counted():
    place = build.replica("n0", gpus=(0,), cpus=5)
    job = build.job("r", gpus=1, cpus=5, at=[place], qos="burstable", expected_duration=2 * HOUR)

    (back,) = node_of(posed(job, overcommit={"burstable": {"cpus": 2}})).releases

    assert back.amounts[0] == 2500


@pytest.mark.slow
@pytest.mark.parametrize("make", [instances.everything, instances.everything_mixed])
@pytest.mark.parametrize("seed", SEEDS)
def test_after_all_returns_a_node_is_as_if_no_ending_job_had_run(make, seed):
    instance = time_strategies.instance(seed, make=make)
    snapshot, problem = instance.snapshot, build_problem(instance.snapshot, instance.policy)
    slots = TimeSlots.of(instance.policy.horizon, snapshot.taken_at)
    durations = Durations(snapshot, instance.policy)
    stays = [
        job.placement
        for job in snapshot.jobs
        if job.running and slots.until(0, durations.remaining(job)) >= slots.count
    ]
    nodes = snapshot.cluster.nodes
    now = free_resources_by_node(nodes, snapshot.running_placements, snapshot=snapshot)
    then = free_resources_by_node(nodes, stays, snapshot=snapshot)
    for node in problem.nodes:
        if node.name not in then:
            assert node.releases == ()
            continue
        milli = Counter()
        for back in node.releases:
            milli.update(dict(back.gpus))
        sound = [index for index in range(len(node.gpus)) if index not in node.unhealthy]
        before, after = now[node.name], then[node.name]
        assert [after.gpu_milli[index] - before.gpu_milli[index] for index in sound] == [
            milli[index] for index in sound
        ]
        assert not set(milli) & set(node.unhealthy)
        given = [sum(column) for column in zip(*(back.amounts for back in node.releases), strict=True)]
        if given:
            assert given[:3] == [
                after.cpu_milli - before.cpu_milli,
                after.memory_mib - before.memory_mib,
                after.disk_mib - before.disk_mib,
            ]
        assert [back.slot for back in node.releases] == sorted(back.slot for back in node.releases)


@pytest.mark.slow
@pytest.mark.parametrize("make", [instances.everything, instances.everything_mixed])
@pytest.mark.parametrize("seed", SEEDS)
def test_after_all_returns_queues_and_racks_hold_what_goes_on(make, seed):
    instance = time_strategies.instance(seed, make=make)
    snapshot, problem = instance.snapshot, build_problem(instance.snapshot, instance.policy)
    slots = TimeSlots.of(instance.policy.horizon, snapshot.taken_at)
    durations = Durations(snapshot, instance.policy)
    running = [job for job in snapshot.jobs if job.running]
    ends = {job.name: slots.until(0, durations.remaining(job)) for job in running}
    incumbents = {one.job: number for number, one in enumerate(problem.incumbents)}
    goes_on = [job.placement for job in running if ends[job.name] >= slots.count]
    usage = usage_by_queue(snapshot, goes_on)
    for budget in problem.budgets:
        left = list(budget.own)
        for _, queue, milli, _ in budget.releases:
            left[queue] -= milli
        own = usage_of_resource(usage, budget.resource)
        assert left == [own.get(name, 0) for name in problem.queues]
        for number in incumbents.values():
            slot = ends[problem.incumbents[number].job]
            assert {back[0] for back in budget.releases if back[3] == number} <= {slot}
    after = snapshot.model_copy(
        update={
            "jobs": tuple(job for job in snapshot.jobs if not job.running or ends[job.name] >= slots.count)
        }
    )
    drawn_now, drawn_then = held_milli(snapshot), held_milli(after)
    for cap in problem.power_caps:
        racks = {
            (node.region, node.zone, node.rack)
            for node in snapshot.cluster.nodes
            if node.name in {problem.nodes[index].name for index in cap.nodes}
        }
        if len(racks) == 1:
            of_rack = [
                node
                for node in snapshot.cluster.nodes
                if node.gpus and (node.region, node.zone, node.rack) in racks
            ]
            saved = sum(
                (drawn_now.get(node.name, 0) - drawn_then.get(node.name, 0)) * node.gpus.watts
                for node in of_rack
            )
            assert sum(watts for _, watts, _ in cap.releases) == saved


def test_what_an_incumbent_gives_back_bears_its_number():
    nodes = [build.node("n0", gpus=2)]
    rival = build.job("rival", gpus=2, priority=5)

    problem = posed(runs("a", left=1), runs("b", left=2, first=1, preemptible=False), rival, nodes=nodes)

    assert [one.job for one in problem.incumbents] == ["a"]
    assert [(each.slot, each.incumbent) for each in node_of(problem).releases] == [(1, 0), (2, None)]
    (budget,) = problem.budgets
    assert budget.resource == ALL_MODELS
    assert budget.releases == ((1, 0, 1000, 0), (2, 0, 1000, None))


def coming(when, **more):
    return build.node("n1", ready=False, ready_at=hours(when), **more)


@pytest.mark.parametrize(("when", "opens"), [(0.5, 1), (1, 1), (1.2, 2), (3, 3)])
def test_a_node_that_comes_takes_jobs_from_then_on(when, opens):
    problem = posed(waits(), nodes=[build.node("n0"), coming(when)])
    (option,) = found(problem).options

    assert node_of(problem, "n1").opens == opens
    offered = [
        {node for group in groups for node in problem.groups[group].nodes} for groups in option.later_groups
    ]
    assert [1 in nodes for nodes in offered] == [slot >= opens for slot in range(4)]
    assert all(1 not in problem.groups[group].nodes for group in option.groups)
    assert all(0 in nodes for nodes in offered[1:])


@pytest.mark.parametrize(
    "node",
    [
        coming(3.5),
        coming(-1),
        coming(1, cordoned=True),
        coming(1, drain=True),
        build.node("n1", ready=False),
    ],
)
def test_other_nodes_that_are_down_are_left_out(node):
    problem = posed(waits(), nodes=[build.node("n0"), node])

    assert [each.name for each in problem.nodes] == ["n0"]


def test_with_one_slot_no_node_is_waited_for():
    assert len(posed(waits(), nodes=[build.node("n0"), coming(0.5)], slots=1).nodes) == 1


def test_nodes_that_pools_may_open_stand_behind_those_that_come():
    template = build.node("a-new")
    problem = posed(waits(), nodes=[coming(1), build.node("n2")], pools=[build.pool(template=template)])

    assert [node.name for node in problem.nodes] == ["n2", "n1", "a-new-1"]
    assert [node.opens for node in problem.nodes] == [0, 1, 0]
    assert [group.pool for group in problem.groups] == [None, None, 0]
    (option,) = found(problem).options
    assert option.groups == (0, 2)
    # No job waits for a node that is not ordered.
    assert option.later_groups == ((), (0, 1), (0, 1), (0, 1))


def test_slots_and_depth_are_those_of_the_policy():
    policy = {"weights": {"default_duration": HOUR}}
    problem = posed(waits(), policy=policy, taken_at=build.NOW + timedelta(minutes=20))

    assert problem.edges == (0, 2400, 6000, 9600, 13200)
    assert problem.depth is None
