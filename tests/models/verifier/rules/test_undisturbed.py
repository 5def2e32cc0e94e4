"""Later starts count on nothing that the plan takes from running jobs."""

from gpuplan.models.cluster import Gpu
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import MigPolicy
from tests.support.builders.build import node, placement, queue, replica, snapshot
from tests.support.builders.time_builders import ahead, later, runs, waits
from tests.support.harness.verify_helpers import broken, holding, judge, sliced

LEFT, RIGHT = replica("n0", gpus=(0, 1)), replica("n0", gpus=(2, 3))
SOON = {"checkpoint": 0, "restart": 0}


def plan(jobs, *planned, now=(), nodes=None, disruption=None, **about):
    """What is wrong if of the running jobs only those placed in `now` stay."""
    world = snapshot(nodes=[node(gpus=4)] if nodes is None else nodes, jobs=jobs, **about)
    policy = ahead(disruption=SOON | (disruption or {}), mig=MigPolicy(repartition=True))
    return judge(world, *now, policy=policy, planned=planned)


def wrong(found, allowed="1 holder", subject="node n0 gpu 0 in slot 1"):
    return broken(Rule.UNDISTURBED, subject, f"{found} beside the running jobs", allowed)


def half(index):
    return holding(replica("n0", gpus=(index,)), gpus=(GpuShare(index=index, milli=500),))


def urgent(**more):
    return waits("u", gpus=2, hours=1, priority=9, **more)


def test_what_a_stopped_job_held_is_free_for_later_starts_from_its_expected_end_on():
    jobs = [runs("r", LEFT, hours=3), waits(gpus=4)]
    all_four = replica("n0", gpus=range(4))

    assert plan(jobs, later("a", 3, all_four)) == ()
    found = {(each.rule, each.subject) for each in plan(jobs, later("a", 2, all_four))}
    assert found == {(Rule.UNDISTURBED, f"node n0 gpu {gpu} in slot 2") for gpu in (0, 1)}


def test_it_does_not_matter_that_another_job_held_it_in_the_meantime():
    jobs = [runs("r", LEFT, hours=5), runs("s", RIGHT, hours=9), urgent(), waits(gpus=2)]
    now = [placement("u", LEFT), placement("s", RIGHT)]

    assert plan(jobs, later("a", 5, LEFT), now=now) == ()
    assert plan(jobs, later("a", 2, LEFT), now=now)[0].rule is Rule.UNDISTURBED


def test_later_starts_count_beside_each_other_as_long_as_they_last():
    jobs = [runs("r", LEFT, hours=9), waits(gpus=2, hours=3), waits("b", gpus=2)]

    assert plan(jobs, later("a", 1, RIGHT), later("b", 4, LEFT)) == ()
    found = plan(jobs, later("a", 1, RIGHT), later("b", 2, LEFT), later("c", 5, LEFT))
    assert Rule.UNDISTURBED in {each.rule for each in found}


def test_every_slot_in_which_a_job_starts_counts():
    jobs = [runs("r", LEFT, hours=3), waits(gpus=4, hours=1), waits("b", gpus=4)]
    both = replica("n0", gpus=range(4))

    found = plan(jobs, later("a", 1, both), later("b", 4, both))

    assert {each.subject for each in found} == {f"node n0 gpu {gpu} in slot 1" for gpu in (0, 1)}


def test_a_job_that_resumes_may_have_what_is_free():
    jobs = [runs("r", LEFT, hours=5), waits()]

    assert plan(jobs[:1], later("r", 1, LEFT), nodes=[node(gpus=2)]) == ()
    assert plan(jobs, later("r", 1, LEFT), later("a", 5, replica("n0", gpus=(3,)))) == ()


def test_a_job_that_resumes_does_not_count_beside_itself():
    jobs = [runs("r", LEFT, hours=5), waits(gpus=2)]

    assert plan(jobs, later("r", 1, LEFT), later("a", 1, RIGHT)) == ()


def test_where_no_job_is_disturbed_the_rule_has_nothing_to_say():
    jobs = [runs("r", LEFT, hours=5), waits(gpus=2)]

    found = plan(jobs, later("a", 1, LEFT), now=[placement("r", LEFT)], nodes=[node(gpus=2)])

    assert {each.rule for each in found} == {Rule.GPU_CAPACITY}


def test_a_job_that_shrinks_or_moves_counts_where_it_is_now():
    ones = [replica("n0", gpus=(index,)) for index in range(4)]
    elastic, moving = runs("r", *ones, replicas=(1, 4), hours=5), runs("r", LEFT, hours=5)

    assert plan([elastic, waits()], later("a", 1, ones[3]), now=[placement("r", *ones[:2])])
    nodes = [node(gpus=2), node("n1", gpus=2)]
    away = [placement("r", replica("n1", gpus=(0, 1)))]
    assert plan(
        [moving, waits()], later("a", 1, ones[0]), now=away, nodes=nodes, disruption={"migrate": True}
    )


def test_of_whole_gpus_only_the_number_counts():
    """Two GPUs are free either way; which ones is decided among the jobs that are really there."""
    jobs = [runs("r", LEFT, hours=5), urgent(), waits(gpus=2), waits("b", gpus=1)]
    now = [placement("u", RIGHT)]

    assert plan(jobs, later("a", 1, LEFT), now=now) == ()
    found = plan(jobs, later("a", 1, LEFT), later("b", 1, replica("n0", gpus=(2,))), now=())
    assert {each.rule for each in found} == {Rule.UNDISTURBED}


def test_gpus_of_jobs_that_have_ended_by_then_are_free():
    jobs = [runs("r", LEFT, hours=1), runs("s", RIGHT, hours=9), waits(gpus=2)]

    assert plan(jobs, later("a", 3, RIGHT), now=[placement("r", LEFT)]) == ()


def test_gpus_in_mig_mode_are_no_free_ones():
    split = node(model="A100-40GB", gpus=2, mig={1: ()})
    jobs = [runs("r", replica("n0", gpus=(0,)), hours=5), waits()]

    assert plan(jobs, later("a", 1, replica("n0", gpus=(0,))), nodes=[split]) == wrong("2 holders: a, r")


def test_gpus_that_are_to_be_shared_are_no_free_ones():
    jobs = [runs("r", LEFT, hours=5), waits(gpus=0, milli=500), waits("b")]

    assert plan(jobs, later("a", 1, half(2)), later("b", 1, replica("n0", gpus=(0,)))) == ()


def test_unhealthy_gpus_are_no_free_ones():
    sick = node(gpus=4, details=(Gpu(index=2, healthy=False),))
    jobs = [runs("r", LEFT, hours=5), waits(gpus=2)]

    assert plan(jobs, later("a", 1, LEFT), nodes=[sick]) == wrong(
        "2 holders: a, r", subject="node n0 gpu 1 in slot 1"
    )


def test_shares_count_on_their_own_gpu():
    jobs = [runs("r", half(0), hours=5, gpus=0, milli=500)]
    jobs += [waits(name, gpus=0, milli=500) for name in "ab"]

    assert plan(jobs, later("a", 1, half(0))) == ()
    assert plan(jobs, later("a", 1, half(0)), later("b", 1, half(0))) == wrong("1.5 GPUs: a, b, r", "1 GPU")


def test_instances_of_mig_count_on_their_own_gpu():
    nodes = [node(model="A100-40GB", gpus=1, mig={0: ()})]
    seven = sliced(replica("n0"), (0, "7g.40gb", 0))
    one = sliced(replica("n0"), (0, "1g.5gb", 0))
    jobs = [runs("r", seven, hours=5, gpus=0, mig={"7g.40gb": 1}), waits(gpus=0, mig={"1g.5gb": 1})]

    assert {each.rule for each in plan(jobs, later("a", 1, one), nodes=nodes)} == {Rule.UNDISTURBED}
    assert plan(jobs, later("a", 5, one), nodes=nodes) == ()


def test_cores_of_the_node_count():
    jobs = [runs("r", holding(LEFT, cpu_milli=60_000), hours=5), waits(gpus=1, cpus=60)]
    there = holding(replica("n0", gpus=(3,)), cpu_milli=60_000)

    assert plan(jobs, later("a", 1, there), nodes=[node(gpus=4, cpus=100)]) == wrong(
        "120 CPU cores", "100 CPU cores", "node n0 in slot 1"
    )


def test_power_of_the_node_counts():
    capped = node(gpus=4, watts=700, power_cap_watts=1400)
    jobs = [runs("r", LEFT, hours=5), waits(gpus=1)]

    assert plan(jobs, later("a", 1, replica("n0", gpus=(3,))), nodes=[capped]) == wrong(
        "2100 W", "1400 W", "node n0 in slot 1"
    )


def test_quota_of_the_queue_counts():
    jobs = [runs("r", LEFT, hours=5), waits(gpus=2)]
    queues = [queue(nominal=2)]

    assert plan(jobs, later("a", 5, RIGHT), queues=queues) == ()
    found = plan(jobs, later("a", 1, RIGHT), queues=queues)
    assert found == wrong("4 GPUs", "2 GPUs", "queue q in slot 1")
