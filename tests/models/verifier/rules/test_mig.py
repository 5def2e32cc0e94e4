import random

import pytest

from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import MigPolicy, Policy
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import apart_from_damage, asking, broken, judge, sliced

HALVES = (("3g.40gb", 0), ("3g.40gb", 4))
HERE = "node n0 gpu 0"


def mig_node(*layout, model="H100-80GB"):
    """Node n0: GPU 0 in MIG mode with these instances, GPU 1 not."""
    instances = tuple(MigInstance(profile=profile, start=start) for profile, start in layout)
    gpus = NodeGpus(model=model, count=2, memory_mib=81559, details=(Gpu(index=0, mig=instances),))
    return node("n0").model_copy(update={"gpus": gpus})


def wants(name="a", **profiles):
    return asking(job(name), mig={f"{key[1:]}.{size}gb": 1 for key, size in profiles.items()})


def half(name="a", *, start, index=0):
    return placement(name, sliced(replica(), (index, "3g.40gb", start)))


LEGAL = "a legal set of instances on H100-80GB"
MODE_IS_ON = "MIG instances: MIG mode is on"


def wrong(found, allowed, gpu=HERE):
    return broken(Rule.MIG, gpu, found, allowed)


def overlap(instance, other, gpu=HERE):
    """Both profiles have their instance at these slices, and the first is illegal beside the other."""
    (profile, start), (taken, at) = instance, other
    return wrong(
        f"{profile} at slice {start}: memory slice {start} belongs to {taken} at slice {at}", LEGAL, gpu
    )


def two_users(profile, start):
    return wrong(f"2 users of {profile} at slice {start}: a, b", "1 user")


def held_as_gpu(name):
    return f"held by {name} as a GPU"


def judge_on(node, jobs, *placements, **switches):
    policy = Policy(mig=MigPolicy(**switches))
    return judge(snapshot(nodes=[node], jobs=jobs), *placements, policy=policy)


def test_an_instance_that_is_there_may_be_used():
    jobs = [wants("a", _3g=40), wants("b", _3g=40)]

    assert judge_on(mig_node(*HALVES), jobs, half("a", start=4), half("b", start=0)) == ()


def test_the_other_gpus_of_the_node_are_whole():
    assert judge_on(mig_node(*HALVES), [job(gpus=1)], placement("a", replica(gpus=(1,)))) == ()


def test_an_instance_has_one_user():
    jobs = [wants("a", _3g=40), wants("b", _3g=40)]

    found = judge_on(mig_node(*HALVES), jobs, half("a", start=4), half("b", start=4))

    assert found == two_users("3g.40gb", 4)


def test_an_instance_in_use_by_a_running_job_is_taken():
    runs = job("a", at=half(start=0).replicas)

    found = judge_on(mig_node(*HALVES), [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert found == two_users("3g.40gb", 0)


def test_an_instance_may_be_created_on_idle_slices():
    assert judge_on(mig_node(("3g.40gb", 0)), [wants(_3g=40)], half(start=4)) == ()
    assert judge_on(mig_node(), [wants(_3g=40)], half(start=4)) == ()


def test_idle_instances_in_the_way_are_destroyed():
    sevenths = tuple(("1g.10gb", start) for start in range(7))
    runs = job("r", mig={"1g.10gb": 1}, at=[sliced(replica(), (0, "1g.10gb", 1))])

    assert judge_on(mig_node(*sevenths), [wants(_3g=40)], half(start=0)) == ()
    assert judge_on(mig_node(*sevenths), [runs, wants(_3g=40)], runs.placement, half(start=4)) == ()


def test_instances_in_use_are_not_destroyed():
    runs = job("r", mig={"1g.10gb": 1}, at=[sliced(replica(), (0, "1g.10gb", 1))])

    found = judge_on(mig_node(("1g.10gb", 1)), [runs, wants(_3g=40)], runs.placement, half(start=0))

    assert found == overlap(("1g.10gb", 1), ("3g.40gb", 0))


def test_the_instance_of_a_job_that_is_stopped_may_be_replaced():
    runs = job("r", mig={"1g.10gb": 1}, at=[sliced(replica(), (0, "1g.10gb", 1))])
    jobs = [runs, wants(_3g=40).model_copy(update={"priority": 1})]

    assert judge_on(mig_node(("1g.10gb", 1)), jobs, half(start=0)) == ()


def test_an_instance_must_be_there_already_where_the_policy_does_not_repartition():
    found = judge_on(mig_node(("3g.40gb", 0)), [wants(_3g=40)], half(start=4), repartition=False)

    assert found == wrong("3g.40gb at slice 4", "instances present: 3g.40gb at slice 0")


def test_then_mig_mode_without_instances_offers_none():
    assert judge_on(mig_node(), [wants(_3g=40)], half(start=4), repartition=False) == wrong(
        "3g.40gb at slice 4", "instances present: none"
    )


def test_a_gpu_without_mig_mode_has_no_instances():
    assert judge_on(mig_node(*HALVES), [wants(_3g=40)], half(start=4, index=1)) == broken(
        Rule.MIG, "node n0 gpu 1", "3g.40gb at slice 4", "no instances: MIG mode is off"
    )


def test_a_gpu_may_be_switched_to_mig_mode_where_the_policy_says_so():
    jobs, both = [wants("a", _3g=40), wants("b", _3g=40)], (half("a", start=4), half("b", start=0))
    on_1 = [sliced(replica(), (1, "3g.40gb", each.replicas[0].gpus[0].start)) for each in both]

    assert (
        judge_on(
            mig_node(*HALVES),
            jobs,
            placement("a", on_1[0]),
            placement("b", on_1[1]),
            repartition=False,
            switch_mode=True,
        )
        == ()
    )


def test_a_gpu_is_not_switched_to_mig_mode_while_it_is_held_as_a_gpu():
    runs = job("a", milli=500, at=[replica(gpus=(1,), milli=500)])

    found = judge_on(
        mig_node(),
        [runs, wants("b", _3g=40)],
        runs.placement,
        half("b", start=4, index=1),
        switch_mode=True,
    )

    assert found == wrong(held_as_gpu("a"), "MIG instances: MIG mode is switched on", "node n0 gpu 1")


def test_a_gpu_switched_to_mig_mode_has_a_legal_layout():
    jobs = [wants("a", _3g=40), wants("b", _4g=40)]
    four = placement("b", sliced(replica(), (1, "4g.40gb", 0)))

    found = judge_on(mig_node(), jobs, half("a", start=0, index=1), four, switch_mode=True)

    assert found == overlap(("4g.40gb", 0), ("3g.40gb", 0), "node n0 gpu 1")


def test_a_gpu_of_a_model_not_known_to_have_mig_is_not_switched():
    found = judge_on(mig_node(model="T4"), [wants(_3g=40)], half(start=4, index=1), switch_mode=True)

    assert found == broken(
        Rule.MIG, "node n0 gpu 1", "3g.40gb at slice 4", "no instances: T4 is not known to have MIG"
    )


def test_a_gpu_in_mig_mode_cannot_be_had_whole_or_in_shares():
    assert judge_on(mig_node(*HALVES), [job(gpus=1)], placement("a", replica(gpus=(0,)))) == wrong(
        held_as_gpu("a"), MODE_IS_ON
    )
    assert judge_on(mig_node(), [job(milli=100)], placement("a", replica(gpus=(0,), milli=100))) == wrong(
        held_as_gpu("a"), MODE_IS_ON
    )


def test_instances_that_cannot_exist_together_are_illegal_even_if_listed():
    runs = job("a", at=[sliced(replica(), (0, "4g.40gb", 0))])
    world = mig_node(("4g.40gb", 0), ("3g.40gb", 0))

    found = judge_on(world, [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert found == overlap(("4g.40gb", 0), ("3g.40gb", 0))


def test_an_instance_at_a_start_its_profile_does_not_have_is_illegal_even_if_listed():
    found = judge_on(mig_node(("3g.40gb", 2)), [wants(_3g=40)], half(start=2))

    assert found == wrong("3g.40gb at slice 2: may start at 0, 4", LEGAL)


def test_a_model_without_a_known_geometry_is_judged_by_what_is_there():
    assert judge_on(mig_node(*HALVES, model="X1"), [wants(_3g=40)], half(start=4)) == ()
    assert judge_on(mig_node(*HALVES, model="X1"), [wants(_3g=40)], half(start=2)) == wrong(
        "3g.40gb at slice 2",
        "instances present: 3g.40gb at slice 0, 3g.40gb at slice 4",
    )


def test_what_running_jobs_already_do_is_not_the_plans_fault():
    whole = job("a", gpus=1, at=[replica(gpus=(0,))])
    sliver = job("b", at=half(start=2, index=1).replicas)
    world = snapshot(nodes=[mig_node(*HALVES)], jobs=[whole, sliver])

    assert apart_from_damage(judge(world, whole.placement, sliver.placement)) == ()


def test_a_running_job_on_an_instance_that_is_gone_does_not_count_against_a_new_one():
    runs = job("a", at=half(start=4).replicas)
    world = mig_node(("3g.40gb", 0))

    found = judge_on(world, [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert apart_from_damage(found) == ()


def test_a_job_on_the_whole_gpu_is_in_the_way_of_a_new_instance():
    runs = job("a", gpus=1, at=[replica(gpus=(0,))])

    found = judge_on(mig_node(*HALVES), [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert apart_from_damage(found) == wrong(held_as_gpu("a"), MODE_IS_ON)


def test_instances_of_running_jobs_are_not_judged_where_no_instance_is_new():
    runs = job("a", at=half(start=2).replicas)

    found = judge_on(
        mig_node(*HALVES),
        [runs, job("b", milli=100)],
        runs.placement,
        placement("b", replica(gpus=(0,), milli=100)),
    )

    assert apart_from_damage(found) == wrong(held_as_gpu("b"), MODE_IS_ON)


# --- every set of instances --------------------------------------------------------------------------------

# (profile, memory slices, starts, most), from the published placement tables of the H100 with 80 GB.
PROFILES = (
    ("1g.10gb", 1, range(7), 7),
    ("1g.20gb", 2, (0, 2, 4, 6), 4),
    ("2g.20gb", 2, (0, 2, 4), 3),
    ("3g.40gb", 4, (0, 4), 2),
    ("4g.40gb", 4, (0,), 1),
    ("7g.80gb", 8, (0,), 1),
)
SPOTS = [(profile, start, start + size) for profile, size, starts, _ in PROFILES for start in starts]
MOST = {profile: most for profile, _, _, most in PROFILES}


def apart(spots):
    """True if no memory slice is used twice and no profile too often."""
    slices = [piece for _, start, end in spots for piece in range(start, end)]
    profiles = [profile for profile, *_ in spots]
    return len(slices) == len(set(slices)) and all(
        profiles.count(profile) <= MOST[profile] for profile in profiles
    )


def legal_sets():
    found = [()]
    for spot in SPOTS:
        found += [(*chosen, spot) for chosen in found if apart((*chosen, spot))]
    return found[1:]


def use(spots):
    """One job on each of these instances of an empty GPU in MIG mode."""
    jobs = [asking(job(f"j{number}"), mig={profile: 1}) for number, (profile, *_) in enumerate(spots)]
    placements = [
        placement(f"j{number}", sliced(replica(), (0, profile, start)))
        for number, (profile, start, _) in enumerate(spots)
    ]
    return judge_on(mig_node(), jobs, *placements)


@pytest.mark.slow
def test_each_of_the_722_legal_sets_of_a_gpu_of_seven_slices_may_be_created_and_used():
    legal = legal_sets()

    assert len(legal) == 722
    assert [spots for spots in legal if use(spots)] == []


@pytest.mark.slow
def test_sets_that_overlap_may_not():
    draw = random.Random(0)
    sets = [draw.sample(SPOTS, draw.randint(2, 5)) for _ in range(400)]
    illegal = [spots for spots in sets if not apart(spots)]

    assert len(illegal) > 200
    assert [spots for spots in illegal if {each.rule for each in use(spots)} != {Rule.MIG}] == []


def test_two_3g_leave_no_room_for_a_1g_though_compute_slices_add_up_to_seven():
    halves = [("3g.40gb", 0, 4), ("3g.40gb", 4, 8)]

    assert use(halves) == ()
    for start in range(7):
        assert {each.rule for each in use([*halves, ("1g.10gb", start, start + 1)])} == {Rule.MIG}


def test_a_1g_of_double_memory_takes_two_slices():
    doubles = [("1g.20gb", start, start + 2) for start in (0, 2, 4, 6)]

    assert use(doubles) == ()
    assert use([*doubles[:3], ("1g.10gb", 6, 7)]) == ()
    assert use([doubles[0], ("1g.10gb", 1, 2)]) == overlap(("1g.10gb", 1), ("1g.20gb", 0))
