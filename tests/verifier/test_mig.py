from build import job, node, placement, replica, snapshot
from judging import asking, broken, judge, sliced

from planner.models.cluster import Gpu, MigInstance, NodeGpus
from planner.models.violation import Rule

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


def judge_on(node, jobs, *placements):
    return judge(snapshot(nodes=[node], jobs=jobs), *placements)


def test_an_instance_that_is_there_may_be_used():
    jobs = [wants("a", _3g=40), wants("b", _3g=40)]

    assert judge_on(mig_node(*HALVES), jobs, half("a", start=4), half("b", start=0)) == ()


def test_the_other_gpus_of_the_node_are_whole():
    assert judge_on(mig_node(*HALVES), [job(gpus=1)], placement("a", replica(gpus=(1,)))) == ()


def test_an_instance_has_one_user():
    jobs = [wants("a", _3g=40), wants("b", _3g=40)]

    found = judge_on(mig_node(*HALVES), jobs, half("a", start=4), half("b", start=4))

    assert found == broken(Rule.MIG, HERE, "2 users of 3g.40gb at slice 4: a, b", "1 user")


def test_an_instance_in_use_by_a_running_job_is_taken():
    runs = job("a", at=half(start=0).replicas)

    found = judge_on(mig_node(*HALVES), [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert found == broken(Rule.MIG, HERE, "2 users of 3g.40gb at slice 0: a, b", "1 user")


def test_an_instance_must_be_there_already():
    found = judge_on(mig_node(("3g.40gb", 0)), [wants(_3g=40)], half(start=4))

    assert found == broken(Rule.MIG, HERE, "3g.40gb at slice 4", "instances present: 3g.40gb at slice 0")


def test_mig_mode_without_instances_offers_none():
    assert judge_on(mig_node(), [wants(_3g=40)], half(start=4)) == broken(
        Rule.MIG, HERE, "3g.40gb at slice 4", "instances present: none"
    )


def test_a_gpu_without_mig_mode_has_no_instances():
    assert judge_on(mig_node(*HALVES), [wants(_3g=40)], half(start=4, index=1)) == broken(
        Rule.MIG, "node n0 gpu 1", "3g.40gb at slice 4", "no instances: MIG mode is off"
    )


def test_a_gpu_in_mig_mode_cannot_be_had_whole_or_in_shares():
    allowed = "MIG instances: MIG mode is on"

    assert judge_on(mig_node(*HALVES), [job(gpus=1)], placement("a", replica(gpus=(0,)))) == broken(
        Rule.MIG, HERE, "held by a as a GPU", allowed
    )
    assert judge_on(mig_node(), [job(milli=100)], placement("a", replica(gpus=(0,), milli=100))) == broken(
        Rule.MIG, HERE, "held by a as a GPU", allowed
    )


def test_instances_that_cannot_exist_together_are_illegal_even_if_listed():
    runs = job("a", at=[sliced(replica(), (0, "4g.40gb", 0))])
    world = mig_node(("4g.40gb", 0), ("3g.40gb", 0))

    found = judge_on(world, [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert found == broken(
        Rule.MIG,
        HERE,
        "4g.40gb at slice 0: memory slice 0 belongs to 3g.40gb at slice 0",
        "a legal set of instances on H100-80GB",
    )


def test_an_instance_at_a_start_its_profile_does_not_have_is_illegal_even_if_listed():
    found = judge_on(mig_node(("3g.40gb", 2)), [wants(_3g=40)], half(start=2))

    assert found == broken(
        Rule.MIG, HERE, "3g.40gb at slice 2: may start at 0, 4", "a legal set of instances on H100-80GB"
    )


def test_a_model_without_a_known_geometry_is_judged_by_what_is_there():
    assert judge_on(mig_node(*HALVES, model="X1"), [wants(_3g=40)], half(start=4)) == ()


def test_what_running_jobs_already_do_is_not_the_plans_fault():
    whole = job("a", gpus=1, at=[replica(gpus=(0,))])
    sliver = job("b", at=half(start=2, index=1).replicas)
    world = snapshot(nodes=[mig_node(*HALVES)], jobs=[whole, sliver])

    assert judge(world, whole.placement, sliver.placement) == ()


def test_a_running_job_on_an_instance_that_is_gone_does_not_count_against_a_new_one():
    runs = job("a", at=half(start=4).replicas)
    world = mig_node(("3g.40gb", 0))

    assert judge_on(world, [runs, wants("b", _3g=40)], runs.placement, half("b", start=0)) == ()


def test_somebody_on_the_whole_gpu_is_in_the_way_of_a_new_instance():
    runs = job("a", gpus=1, at=[replica(gpus=(0,))])

    found = judge_on(mig_node(*HALVES), [runs, wants("b", _3g=40)], runs.placement, half("b", start=0))

    assert found == broken(Rule.MIG, HERE, "held by a as a GPU", "MIG instances: MIG mode is on")


def test_instances_of_running_jobs_are_not_judged_where_no_instance_is_new():
    runs = job("a", at=half(start=2).replicas)

    found = judge_on(
        mig_node(*HALVES),
        [runs, job("b", milli=100)],
        runs.placement,
        placement("b", replica(gpus=(0,), milli=100)),
    )

    assert found == broken(Rule.MIG, HERE, "held by b as a GPU", "MIG instances: MIG mode is on")
