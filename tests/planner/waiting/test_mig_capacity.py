"""How many replicas find MIG instances on a node, each instance put where it spoils the least."""

import random
from functools import cache

import pytest

from gpuplan.models.cluster import MigInstance
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.mig import MEDIA_EXTENSIONS, mig_geometry
from gpuplan.models.policy.policy import MigPolicy
from gpuplan.planner.waiting.mig_capacity import MigCapacity, profiles_of
from tests.support.builders.build import MODEL, job, node, placement, replica, snapshot


def room_for(mig, *, gpus, used=(), repartition=True):
    """Replicas that fit a node of so many GPUs in MIG mode, with instances in use (GPU, profile, start)."""
    layouts = {
        index: [(profile, start) for gpu, profile, start in used if gpu == index] for index in range(gpus)
    }
    world = snapshot(nodes=[node(gpus=gpus, mig=layouts)], jobs=[job("r")])
    there = [placement("r", replica(mig=used))] if used else []
    nodes = world.cluster.nodes
    room = MigCapacity(there, MigPolicy(repartition=repartition))
    return room.replicas(nodes[0], free_resources_by_node(nodes, there)["n0"], profiles_of(mig))


def test_small_instances_stay_out_of_the_way_of_large_ones():
    # Wherever a small one could spoil a start of the large ones, one replica would be lost.
    assert room_for({"1g.10gb": 1, "3g.40gb": 1}, gpus=2, used=[(1, "1g.10gb", 0)]) == 3


def test_every_one_of_several_equal_gpus_is_filled():
    assert room_for({"1g.10gb": 1}, gpus=4) == 28
    assert room_for({"3g.40gb": 1}, gpus=4) == 8


def test_gpus_in_different_states_are_filled_each_by_itself():
    assert room_for({"1g.10gb": 1}, gpus=3, used=[(1, "3g.40gb", 0), (2, "1g.10gb", 2)]) == 7 + 3 + 6
    assert room_for({"1g.10gb": 3}, gpus=3, used=[(1, "3g.40gb", 0), (2, "1g.10gb", 2)]) == 5


def test_what_is_in_use_is_not_had_again():
    assert room_for({"7g.80gb": 1}, gpus=3, used=[(0, "1g.10gb", 0), (2, "1g.10gb", 6)]) == 1


def test_without_repartitioning_only_idle_instances_count():
    assert room_for({"1g.10gb": 1}, gpus=2, used=[(0, "1g.10gb", 0)], repartition=False) == 0


def test_a_gpu_that_the_plan_switches_is_cut_whatever_is_said_of_those_in_mig_mode():
    """`mig.repartition` is about GPUs that are in MIG mode before the plan."""
    nodes = (node(gpus=1, mig={0: [("3g.40gb", 4)]}),)
    there = [placement("r", replica(mig=[(0, "3g.40gb", 4)]))]
    policy = MigPolicy(repartition=False, switch_mode=True)

    def small_ones(switched):
        room = MigCapacity(there, policy, switched)
        return room.replicas(
            nodes[0], free_resources_by_node(nodes, there)["n0"], profiles_of({"1g.10gb": 1})
        )

    assert small_ones(set()) == 0
    assert small_ones({("n0", 0)}) == 4


def test_an_idle_instance_is_kept_only_where_nothing_is_repartitioned():
    """The plan prefers idle instances, which cost nothing; whether a job fits does not depend on prices."""
    idle = {0: [("1g.20gb", 0)], 1: [("3g.40gb", 4)]}
    wish = {"4g.40gb": 1, "1g.20gb": 1}

    assert count(idle, (), wish, repartition=True) == most_replicas(idle, (), wish, repartition=True) == 2
    assert count(idle, (), wish, repartition=False) == most_replicas(idle, (), wish, repartition=False) == 0


def test_a_switched_gpu_without_jobs_is_cut_at_will():
    world = snapshot(nodes=[node(gpus=1, mig={0: []})])
    empty = free_resources_by_node(world.cluster.nodes, [])["n0"]
    policy = MigPolicy(repartition=False, switch_mode=True)

    found = MigCapacity((), policy, {("n0", 0)})

    assert found.replicas(world.cluster.nodes[0], empty, profiles_of({"7g.80gb": 1})) == 1
    assert found.cut(world.cluster.nodes[0], empty) == 1


@pytest.mark.slow
def test_no_more_replicas_find_instances_in_any_other_order():
    """The ledger takes one instance after the other; all ways to place them are the oracle."""
    seen = set()
    for seed in range(60):
        draw = random.Random(seed)
        layouts = {gpu: drawn_layout(draw) for gpu in range(draw.randint(1, 2))}
        used = [(gpu, *place) for gpu, places in layouts.items() for place in places if draw.random() < 0.5]
        wish = {draw.choice(PROFILES): draw.choice((1, 1, 2)) for _ in range(draw.randint(1, 3))}
        repartition = draw.random() < 0.6

        found = count(layouts, used, wish, repartition=repartition)

        assert found == most_replicas(layouts, used, wish, repartition=repartition), seed
        seen.add(min(found, 3))
    assert seen == {0, 1, 2, 3}


GEOMETRY = mig_geometry(MODEL)
PROFILES = [profile for profile in GEOMETRY.profiles if not profile.endswith(MEDIA_EXTENSIONS)]


def count(layouts, used, wish, *, repartition):
    """What is said of a node with these instances, of which some are in use."""
    nodes = snapshot(nodes=[node(gpus=len(layouts), mig=layouts)], jobs=[job("r")]).cluster.nodes
    there = [placement("r", replica(mig=used))] if used else []
    room = MigCapacity(there, MigPolicy(repartition=repartition))
    return room.replicas(nodes[0], free_resources_by_node(nodes, there)["n0"], profiles_of(wish))


@cache
def may_exist(places):
    instances = [MigInstance(profile=profile, start=start) for profile, start in places]
    return next(GEOMETRY.faults(instances), None) is None


def drawn_layout(draw):
    places = []
    for _ in range(draw.randint(0, 4)):
        profile = draw.choice(PROFILES)
        place = profile, draw.choice(GEOMETRY.profiles[profile].starts)
        if place not in places and may_exist(frozenset({*places, place})):
            places.append(place)
    return places


def most_replicas(layouts, used, wish, *, repartition):
    """The most replicas of which all instances may exist at the same time, by trying every way."""
    sequence = [profile for profile, times in wish.items() for _ in range(times)]

    @cache
    def more(gpus, position):
        best, profile = 0, sequence[position]
        for number, (there, taken) in enumerate(gpus):
            starts = (
                GEOMETRY.profiles[profile].starts if repartition else [s for p, s in there if p == profile]
            )
            for start in starts:
                place = profile, start
                if place not in taken and may_exist(taken | {place}):
                    after = (*gpus[:number], (there, taken | {place}), *gpus[number + 1 :])
                    follows = (position + 1) % len(sequence)
                    best = max(best, (follows == 0) + more(after, follows))
        return best

    return more(
        tuple(
            (frozenset(places), frozenset((p, s) for on, p, s in used if on == gpu))
            for gpu, places in layouts.items()
        ),
        0,
    )
