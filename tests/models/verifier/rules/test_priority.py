"""No job takes a place that a waiting job of higher priority could use."""

from datetime import timedelta

import pytest

from gpuplan.models.placement import Placement
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import HorizonPolicy
from tests.support.builders.build import cluster, job, node, placement, queue, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge

IN_ORDER = Policy(priority={"order": "tiers"})


def low(name="low", *, gpus=1, **more):
    return job(name, gpus=gpus, priority=1, **more)


def high(name="high", *, gpus=1, **more):
    return job(name, gpus=gpus, priority=10, **more)


def on(name, *gpus, node="n0", milli=1000):
    return placement(name, replica(node, gpus=gpus, milli=milli))


def in_place_of(*names, waits="high"):
    took = ", ".join(names)
    return broken(
        Rule.PRIORITY,
        f"job {waits} of priority 10",
        f"waits while {took} of lower priority took a place that it could use",
        "its start",
    )


def judged(world, *placements, policy=IN_ORDER, **more):
    return judge(world, *placements, policy=policy, **more)


def test_eight_gpus_of_low_priority_do_not_go_before_one_of_high_priority():
    world = snapshot(nodes=cluster(1), jobs=[low(gpus=8), high()])

    assert judged(world, on("low", *range(8))) == in_place_of("low")
    assert judged(world, on("high", 0)) == ()


def test_by_weights_they_may():
    world = snapshot(nodes=cluster(1), jobs=[low(gpus=8), high()])

    assert judge(world, on("low", *range(8)), policy=Policy(priority={"order": "weights"})) == ()


def test_a_place_too_small_for_the_higher_job_may_be_taken():
    world = snapshot(nodes=cluster(2, gpus=4), jobs=[low(gpus=4), high(gpus=8)])

    assert judged(world, on("low", *range(4))) == ()


def test_a_gang_could_use_what_several_jobs_took():
    gang = high(gpus=4, replicas=2)
    world = snapshot(nodes=cluster(2, gpus=4), jobs=[low("a", gpus=4), low("b", gpus=4), gang])

    assert judged(world, on("a", *range(4)), on("b", *range(4), node="n1")) == in_place_of("a", "b")
    assert judged(world, on("a", *range(4))) == in_place_of("a")


def test_a_gang_that_needs_one_rack_could_not():
    gang = high(gpus=4, replicas=2, locality={"required": "rack"})
    nodes = [node("n0", gpus=4, rack="x"), node("n1", gpus=4, rack="y")]
    world = snapshot(nodes=nodes, jobs=[low(gpus=4), gang])

    assert judged(world, on("low", *range(4))) == ()


def test_a_share_could_be_on_a_gpu_that_a_lower_share_took():
    world = snapshot(nodes=cluster(1, gpus=1), jobs=[low(gpus=0, milli=700), high(gpus=0, milli=500)])

    assert judged(world, on("low", 0, milli=700)) == in_place_of("low")


def test_shares_of_both_may_be_on_one_gpu():
    jobs = [low(gpus=0, milli=500), high(gpus=0, milli=500)]
    world = snapshot(nodes=cluster(1, gpus=1), jobs=jobs)

    assert judged(world, on("high", 0, milli=500), on("low", 0, milli=500)) == ()


def test_quota_that_a_lower_job_took_could_be_used():
    queues = [queue("q", nominal=1)]
    world = snapshot(nodes=cluster(1), queues=queues, jobs=[low(), high()])

    assert judged(world, on("low", 0)) == in_place_of("low")


def test_a_job_beyond_the_quota_of_its_own_queue_is_kept_from_nothing():
    queues = [queue("q"), queue("small", nominal=0)]
    world = snapshot(nodes=cluster(1, gpus=1), queues=queues, jobs=[low(), high(queue="small")])

    assert judged(world, on("low", 0)) == ()


def test_what_a_queue_is_guaranteed_goes_before_priorities():
    queues = [queue("q"), queue("owed", nominal=1, guarantee=1)]
    world = snapshot(nodes=cluster(1, gpus=1), queues=queues, jobs=[low(queue="owed"), high()])

    assert judged(world, on("low", 0)) == ()


def test_a_promised_start_goes_before_priorities():
    world = snapshot(nodes=cluster(1, gpus=1), jobs=[low(), high()])
    promise = {"start": world.taken_at, "replicas": (replica(gpus=(0,)),)}
    promised = snapshot(nodes=cluster(1, gpus=1), jobs=[low(promise=promise), high()])

    assert judged(promised, on("low", 0)) == ()


@pytest.mark.parametrize("names", [("low",), ("low", "other")])
def test_a_starving_job_goes_before_priorities_where_it_is_promised_a_start(names):
    """And with it the other jobs of its group."""
    first, *others = names
    jobs = [low(first, waited=timedelta(days=8), co_start="g"), *(low(each, co_start="g") for each in others)]
    world = snapshot(nodes=cluster(1, gpus=len(names)), jobs=[*jobs, high()])
    starts = [on(name, gpu) for gpu, name in enumerate(names)]
    ahead = IN_ORDER.model_copy(update={"horizon": HorizonPolicy(slots=2)})

    assert judged(world, *starts, policy=ahead) == ()
    assert judged(world, *starts) == in_place_of(*names)


def test_a_running_job_that_was_submitted_long_ago_does_not_grow_before_priorities():
    """It does not wait, so it does not starve."""
    running = low(replicas=(1, 4), waited=timedelta(days=8), at=[replica("n0", gpus=(0,))])
    world = snapshot(nodes=cluster(1, gpus=4), jobs=[running, high(gpus=2)])
    grown = placement("low", *(replica("n0", gpus=(gpu,)) for gpu in range(4)))
    ahead = IN_ORDER.model_copy(update={"horizon": HorizonPolicy(slots=2)})

    assert judged(world, grown, policy=ahead) == in_place_of("low")


def test_a_job_that_may_not_start_yet_is_kept_from_nothing():
    for reason in ({"held": True}, {"weight": 0}, {"node_selector": {"disk": "fast"}}):
        world = snapshot(nodes=cluster(1, gpus=1), jobs=[low(), high(**reason)])

        assert judged(world, on("low", 0)) == ()


def test_growth_gives_way_to_a_higher_start():
    grown = low(replicas=(1, 2), at=[replica(gpus=(0,))])
    world = snapshot(nodes=cluster(1, gpus=2), jobs=[grown, high()])
    both = Placement(job="low", replicas=(replica(gpus=(0,)), replica(gpus=(1,))))

    assert judged(world, both) == in_place_of("low")


def test_what_was_freed_for_a_lower_job_at_a_price_is_not_free_for_a_higher_one():
    """What eight running jobs lose goes against what the job of higher priority would bring."""
    running = [job(f"r{gpu}", gpus=1, at=[replica(gpus=(gpu,))]) for gpu in range(8)]
    # A weight of 4 brings more than the work that the running jobs repeat, and less with the value they lose.
    for weight, expected in ((1, ()), (4, ()), (9, in_place_of("low"))):
        world = snapshot(nodes=cluster(1), jobs=[*running, low(gpus=8, weight=3), high(weight=weight)])

        assert judged(world, on("low", *range(8))) == expected
