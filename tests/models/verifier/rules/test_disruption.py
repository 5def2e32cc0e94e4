from datetime import timedelta

from gpuplan.models.placement import Running
from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import NOW, job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, holding, judge, rules, sliced

TWO = (replica("n0", gpus=(0, 1), cpus=2), replica("n1", gpus=(2, 3), cpus=2))
RUNS = job("a", gpus=2, cpus=2, replicas=2, at=TWO)
WORLD = snapshot(jobs=[RUNS])
ONE = replica(gpus=(0,))
ELASTIC = {"gpus": 1, "replicas": (1, 3)}
MAY_MOVE = rules(migrate=True)


PREEMPT_OFF = "disruption.preempt is off"
MIGRATE_OFF = "disruption.migrate is off"
RESIZE_OFF = "disruption.resize is off"
NOT_PREEMPTIBLE = "it is not preemptible"


def ran(ago, least):
    return f"it has run for {ago}, less than {least}"


def resized_only(ago, least):
    return f"it was resized {ago} ago, less than {least}"


def preempted(times, most):
    return f"it was preempted {times}, and {most} is the most"


def wrong(found, allowed, because):
    return broken(Rule.EVICTION, "job a", found, f"{allowed}, since {because}")


def stopped(*reasons):
    """The job was stopped against each of these reasons."""
    return tuple(each for reason in reasons for each in wrong("stopped", "keeps running", reason))


def one(*gpus, **more):
    """The elastic job with a replica on each of these GPUs."""
    return job("a", **ELASTIC, at=[replica(gpus=(index,)) for index in gpus], **more)


def now_on(*gpus):
    return placement("a", *(replica(gpus=(index,)) for index in gpus))


def started(job, *, ago):
    """The same running job, started so many minutes before the snapshot."""
    running = Running(started_at=NOW - timedelta(minutes=ago), replicas=job.running.replicas)
    return job.model_copy(update={"running": running})


def stopped_before(job, times):
    """The same running job, preempted so often before."""
    return job.model_copy(update={"preemptions": times})


# --- kept --------------------------------------------------------------------------------------------------


def test_a_running_job_may_stay():
    assert judge(WORLD, RUNS.placement) == ()


def test_the_order_of_replicas_and_gpus_means_nothing():
    swapped = replica("n0", gpus=(1, 0), cpus=2)

    assert judge(WORLD, placement("a", TWO[1], swapped), policy=rules(migrate=False)) == ()


def test_a_resource_of_which_nothing_is_held_means_nothing():
    runs = job("a", cpus=1, at=[holding(replica(cpus=1), resources={"rdma/hca": 0})])

    assert judge(snapshot(jobs=[runs]), placement("a", replica(cpus=1))) == ()


# --- stopped -----------------------------------------------------------------------------------------------


def test_a_running_job_may_be_stopped():
    assert judge(WORLD) == ()


def test_no_job_is_stopped_where_the_policy_allows_no_preemption():
    found = judge(WORLD, policy=rules(preempt=False))

    assert found == stopped(PREEMPT_OFF)


def test_a_job_that_is_not_preemptible_is_not_stopped():
    firm = RUNS.model_copy(update={"preemptible": False})

    assert judge(snapshot(jobs=[firm])) == stopped(NOT_PREEMPTIBLE)


def test_a_job_is_not_stopped_before_it_has_run_long_enough():
    policy = rules(minimum_runtime="30m")

    assert judge(snapshot(jobs=[started(RUNS, ago=30)]), policy=policy) == ()
    assert judge(snapshot(jobs=[started(RUNS, ago=29)]), policy=policy) == stopped(ran("29m", "30m"))


def test_a_job_is_stopped_only_so_often():
    often = snapshot(jobs=[stopped_before(RUNS, 2)])

    assert judge(often) == ()
    assert judge(often, policy=rules(max_preemptions=3)) == ()
    assert judge(often, policy=rules(max_preemptions=2)) == stopped(preempted("2 times", 2))
    assert judge(WORLD, policy=rules(max_preemptions=0)) == stopped(preempted("0 times", 0))


def test_every_reason_is_told():
    firm = stopped_before(started(RUNS, ago=1), 1).model_copy(update={"preemptible": False})

    found = judge(snapshot(jobs=[firm]), policy=rules(preempt=False, minimum_runtime="1h", max_preemptions=1))

    assert found == stopped(PREEMPT_OFF, ran("1m", "1h"), NOT_PREEMPTIBLE, preempted("1 time", 1))


# --- moved -------------------------------------------------------------------------------------------------


def test_a_running_job_may_move_where_the_policy_migrates():
    elsewhere = replica("n0", gpus=(2, 3), cpus=2)

    assert judge(WORLD, placement("a", TWO[0], elsewhere), policy=MAY_MOVE) == ()
    assert judge(WORLD, placement("a", TWO[0], elsewhere)) == wrong(
        "node n0, gpu 2, gpu 3, 2 CPU cores",
        "node n1, gpu 2, gpu 3, 2 CPU cores",
        MIGRATE_OFF,
    )


def test_a_job_that_is_not_preemptible_does_not_move():
    firm = RUNS.model_copy(update={"preemptible": False})

    found = judge(
        snapshot(jobs=[firm]), placement("a", TWO[0], replica("n1", gpus=(2, 4), cpus=2)), policy=MAY_MOVE
    )

    assert found == wrong(
        "node n1, gpu 2, gpu 4, 2 CPU cores",
        "node n1, gpu 2, gpu 3, 2 CPU cores",
        NOT_PREEMPTIBLE,
    )


def test_a_job_does_not_move_before_it_has_run_long_enough():
    world = snapshot(jobs=[started(one(0), ago=1)])

    found = judge(world, now_on(1), policy=rules(migrate=True, minimum_runtime=61))

    assert found == wrong("node n0, gpu 1", "node n0, gpu 0", ran("1m", "1m1s"))


def test_a_job_that_was_stopped_too_often_does_not_move():
    world = snapshot(jobs=[stopped_before(one(0), 1)])

    assert judge(world, now_on(1), policy=rules(migrate=True, max_preemptions=2)) == ()
    assert judge(world, now_on(1), policy=rules(migrate=True, max_preemptions=1)) == wrong(
        "node n0, gpu 1", "node n0, gpu 0", preempted("1 time", 1)
    )


def test_another_gpu_of_the_same_node_is_another_place():
    found = judge(WORLD, placement("a", TWO[0], replica("n1", gpus=(2, 4), cpus=2)))

    assert found == wrong(
        "node n1, gpu 2, gpu 4, 2 CPU cores",
        "node n1, gpu 2, gpu 3, 2 CPU cores",
        MIGRATE_OFF,
    )


def test_another_share_is_another_place():
    runs = job("a", milli=500, at=[replica(gpus=(0,), milli=500)])

    found = judge(snapshot(jobs=[runs]), placement("a", replica(gpus=(0,), milli=250)))

    assert found == (
        *wrong("node n0, 0.25 of gpu 0", "node n0, 0.5 of gpu 0", MIGRATE_OFF),
        *broken(Rule.REQUEST, "job a replica 0", "1 0.25 GPU share", "1 0.5 GPU share"),
    )


def test_another_mig_instance_is_another_place():
    runs = job("a", mig={"3g.40gb": 1}, at=[sliced(replica(), (0, "3g.40gb", 0))])
    halves = node("n0", mig={0: (("3g.40gb", 0), ("3g.40gb", 4))})

    found = judge(snapshot(nodes=[halves], jobs=[runs]), placement("a", sliced(replica(), (0, "3g.40gb", 4))))

    assert found == wrong(
        "node n0, 3g.40gb at slice 4 of gpu 0",
        "node n0, 3g.40gb at slice 0 of gpu 0",
        MIGRATE_OFF,
    )


def test_two_equal_replicas_are_not_one_and_another():
    here, there = replica("n0", cpus=1), replica("n1", cpus=1)
    runs = job("a", cpus=1, replicas=2, at=[here, there])

    found = judge(snapshot(jobs=[runs]), placement("a", here, here))

    assert found == wrong("node n0, 1 CPU core", "node n1, 1 CPU core", MIGRATE_OFF)


# --- shrunk and grown --------------------------------------------------------------------------------------


def test_an_elastic_job_may_shrink_to_its_minimum():
    world = snapshot(jobs=[one(0, 1, 2)])

    assert judge(world, now_on(0, 2)) == ()
    assert judge(world, now_on(1)) == ()


def test_no_job_shrinks_below_its_minimum():
    assert judge(WORLD, placement("a", TWO[0])) == broken(Rule.GANG, "job a", "1 replica", "2 replicas")


def test_no_job_shrinks_where_the_policy_allows_no_resize():
    found = judge(snapshot(jobs=[one(0, 1)]), now_on(0), policy=rules(resize=False))

    assert found == wrong("1 replica", "2 replicas", RESIZE_OFF)


def test_a_job_that_is_not_preemptible_does_not_shrink():
    found = judge(snapshot(jobs=[one(0, 1, preemptible=False)]), now_on(0))

    assert found == wrong("1 replica", "2 replicas", NOT_PREEMPTIBLE)


def test_a_job_does_not_shrink_before_it_has_run_long_enough():
    found = judge(snapshot(jobs=[one(0, 1)]), now_on(0), policy=rules(minimum_runtime="2h"))

    assert found == wrong("1 replica", "2 replicas", ran("1h", "2h"))


def test_a_job_that_was_stopped_too_often_does_not_shrink():
    world = snapshot(jobs=[stopped_before(one(0, 1), 3)])

    assert judge(world, now_on(0), policy=rules(max_preemptions=4)) == ()
    assert judge(world, now_on(0), policy=rules(max_preemptions=2)) == wrong(
        "1 replica", "2 replicas", preempted("3 times", 2)
    )


def test_an_elastic_job_may_grow_to_its_maximum_even_if_it_may_not_be_disturbed():
    world = snapshot(jobs=[stopped_before(one(0, preemptible=False), 1)])

    assert judge(world, now_on(0, 1, 2), policy=rules(minimum_runtime="2h", max_preemptions=1)) == ()


def resized(job_, *, ago):
    """The job, resized so many minutes ago."""
    running = job_.running.model_copy(update={"resized_at": NOW - timedelta(minutes=ago)})
    return job_.model_copy(update={"running": running})


def test_a_job_keeps_its_size_for_a_while_after_it_was_resized():
    world, later = (snapshot(jobs=[resized(one(0, 1), ago=ago)]) for ago in (59, 60))
    too_soon = resized_only("59m", "1h")

    assert judge(world, now_on(0, 1)) == ()
    assert judge(world, now_on(0)) == wrong("1 replica", "2 replicas", too_soon)
    assert judge(world, now_on(0, 1, 2)) == wrong("3 replicas", "2 replicas", too_soon)
    assert judge(later, now_on(0)) == judge(later, now_on(0, 1, 2)) == ()


def test_a_job_that_was_just_resized_is_neither_stopped_nor_moved():
    world = snapshot(jobs=[resized(one(0, 1), ago=10)])
    too_soon = resized_only("10m", "30m")

    assert judge(world, policy=rules(resize_dwell="30m")) == stopped(too_soon)
    (moved,) = judge(world, now_on(2, 3), policy=rules(migrate=True, resize_dwell="30m"))
    assert moved.allowed.endswith(too_soon)
    assert judge(world, now_on(2, 3), policy=rules(migrate=True, resize_dwell="10m")) == ()


def test_a_policy_without_a_dwell_lets_jobs_be_resized_at_any_time():
    world = snapshot(jobs=[resized(one(0, 1), ago=0)])

    assert judge(world, now_on(0), policy=rules(resize_dwell=0)) == ()


def test_no_job_grows_beyond_its_maximum():
    found = judge(snapshot(jobs=[one(0)]), now_on(0, 1, 2, 3))

    assert found == broken(Rule.GANG, "job a", "4 replicas", "1 to 3 replicas")


def test_no_job_grows_where_the_policy_allows_no_resize():
    found = judge(snapshot(jobs=[one(0)]), now_on(0, 1), policy=rules(resize=False))

    assert found == wrong("2 replicas", "1 replica", RESIZE_OFF)


def test_a_job_that_must_stay_together_or_be_spread_does_not_grow():
    together = snapshot(jobs=[one(0, locality={"required": "node"})])
    apart = snapshot(jobs=[one(0, spread={"max": 9})])

    assert judge(together, now_on(0, 1)) == wrong(
        "2 replicas", "1 replica", "it does not grow while it has to stay within one node"
    )
    assert judge(apart, now_on(0, 1)) == wrong(
        "2 replicas", "1 replica", "it does not grow while its replicas have to be spread"
    )


def test_such_a_job_may_shrink_all_the_same():
    together = snapshot(jobs=[one(0, 1, locality={"required": "node"}, spread={"max": 9})])

    assert judge(together, now_on(1)) == ()


def test_replicas_with_equal_holdings_are_counted():
    same = replica(cpus=1)
    runs = job("a", cpus=1, replicas=(1, 3), at=[same, same])

    assert judge(snapshot(jobs=[runs]), placement("a", same)) == ()
    assert judge(snapshot(jobs=[runs]), placement("a", same, same, same)) == ()


def test_fewer_or_more_replicas_and_elsewhere_is_no_change_there_is():
    reason = "only a job that keeps its number of replicas may go elsewhere"

    assert judge(snapshot(jobs=[one(0, 1)]), now_on(2), policy=MAY_MOVE) == wrong(
        "1 replica instead of 2, 1 of them in new places", "2 replicas", reason
    )
    assert judge(snapshot(jobs=[one(0, 1)]), now_on(0, 2, 3), policy=MAY_MOVE) == wrong(
        "3 replicas instead of 2, 2 of them in new places", "2 replicas", reason
    )


# --- drained nodes -----------------------------------------------------------------------------------------

NOTHING = rules(preempt=False, resize=False, migrate=False, minimum_runtime="2h", max_preemptions=0)


def draining(*jobs):
    return snapshot(nodes=[node("n0", drain=True), node("n1"), node("n2", drain=True)], jobs=jobs)


def test_a_job_on_a_node_to_be_drained_may_leave_whatever_the_policy_says():
    assert judge(draining(one(0)), policy=NOTHING) == ()
    assert judge(draining(one(0)), placement("a", replica("n1", gpus=(0,))), policy=NOTHING) == ()


def test_a_job_with_one_replica_on_a_node_to_be_drained_may_leave():
    partly = job("a", **ELASTIC, at=[replica("n1", gpus=(0,)), ONE])

    assert judge(draining(partly), policy=NOTHING) == ()


def test_a_job_on_a_node_to_be_drained_leaves_however_short_ago_it_was_resized():
    world = draining(resized(one(0), ago=0))

    assert judge(world) == ()
    assert judge(world, placement("a", replica("n1", gpus=(0,)))) == ()


def test_a_job_on_a_node_to_be_drained_that_is_not_preemptible_stays():
    firm = one(0, preemptible=False)

    assert judge(draining(firm), firm.placement, policy=NOTHING) == ()
    assert judge(draining(firm)) == stopped(NOT_PREEMPTIBLE)
    assert judge(draining(firm), placement("a", replica("n1", gpus=(0,)))) == wrong(
        "node n1, gpu 0", "node n0, gpu 0", NOT_PREEMPTIBLE
    )


def test_a_job_on_a_node_to_be_drained_shrinks_only_as_elsewhere():
    found = judge(draining(one(0, 1)), now_on(0), policy=NOTHING)

    assert found == tuple(
        each
        for reason in (RESIZE_OFF, ran("1h", "2h"), preempted("0 times", 0))
        for each in wrong("1 replica", "2 replicas", reason)
    )


def test_a_job_on_another_node_is_not_concerned_by_a_drain():
    elsewhere = job("a", gpus=1, at=[replica("n1", gpus=(0,))])

    assert len(judge(draining(elsewhere), policy=NOTHING)) == 3


def test_a_job_on_a_cordoned_node_is_not_asked_to_leave():
    world = snapshot(nodes=[node("n0", cordoned=True), node("n1")], jobs=[one(0)])

    assert len(judge(world, policy=NOTHING)) == 3


# --- several placements ------------------------------------------------------------------------------------


def test_of_several_placements_the_one_that_changes_nothing_counts():
    world = snapshot(jobs=[one(0)])
    twice = broken(Rule.ASSIGNMENT, "job a", "2 placements", "1 placement")

    assert judge(world, now_on(0), now_on(1)) == twice
    assert judge(world, now_on(1), now_on(0)) == twice
    assert judge(snapshot(jobs=[one(1)]), now_on(0), now_on(1)) == twice


def test_of_several_placements_that_all_change_something_the_least_counts():
    world = snapshot(jobs=[one(0)])
    told = wrong("node n0, gpu 1", "node n0, gpu 0", MIGRATE_OFF)

    assert judge(world, now_on(1), now_on(2))[1:] == told
    assert judge(world, now_on(2), now_on(1))[1:] == told
