"""Later starts: of which jobs, when; and that every rule of an instant holds in the slots they begin in."""

from gpuplan.models.affinity import AntiAffinity
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.policy import MigPolicy
from tests.support.builders.build import node, placement, pool, queue, replica, snapshot
from tests.support.builders.time_builders import ahead, at, later, runs, waits
from tests.support.harness.verify_helpers import broken, judge, sliced

ALL = replica("n0", gpus=range(8))
ONE = replica("n0", gpus=(0,))


def plan(jobs, *planned, now=(), policy=None, nodes=None, added=(), removed=(), **about):
    """What is wrong with later starts beside the running jobs, which stay, and placements of now."""
    world = snapshot(nodes=[node()] if nodes is None else nodes, jobs=jobs, **about)
    held = (*world.running_placements, *now)
    return judge(world, *held, policy=policy or ahead(), planned=planned, added=added, removed=removed)


def wrong(found, allowed, subject="job a in slot 1", rule=Rule.HORIZON):
    return broken(rule, subject, found, allowed)


# --- of which jobs, and when ------------------------------------------------------------------------------


def test_a_waiting_job_may_start_in_any_later_slot():
    for slot in (1, 3, 5):
        assert plan([waits()], later("a", slot, ONE)) == ()


def test_there_are_later_slots_within_the_horizon_only():
    assert plan([waits()], later("a", 0, ONE)) == wrong("slot 0", "slots 1 to 5", "job a in slot 0")
    assert plan([waits()], later("a", 6, ONE)) == wrong("slot 6", "slots 1 to 5", "job a in slot 6")
    assert plan([waits()], later("a", -1, ONE)) == wrong("slot -1", "slots 1 to 5", "job a in slot -1")


def test_with_one_slot_nothing_starts_later():
    assert plan([waits()], later("a", 1, ONE), policy=ahead(1)) == wrong(
        "slot 1", "no later start: there is one slot"
    )


def test_only_jobs_that_are_not_placed_start_later():
    r = runs("a", ONE)

    assert plan([], later("a", 1, ONE)) == wrong("no such job in the snapshot", "a job of the snapshot")
    assert plan([waits(held=True)], later("a", 1, ONE)) == wrong("a held job", "a held job waits")
    assert plan([r], later("a", 3, ONE)) == wrong(
        "a job that is placed now too", "one start", "job a in slot 3"
    )


def resuming(job, *planned, others=(), **rules):
    """What is wrong if a running job is stopped and may start again later."""
    policy = ahead(disruption={"checkpoint": 0, "restart": 0} | rules)
    return judge(snapshot(nodes=[node()], jobs=[job, *others]), policy=policy, planned=planned)


def test_a_stopped_job_may_start_again_in_any_later_slot():
    for slot in (1, 3, 5):
        assert resuming(runs("a", ONE), later("a", slot, replica(gpus=(4,)))) == ()
    for slot in (0, 6):
        found, allowed = f"slot {slot}", "slots 1 to 5"
        assert resuming(runs("a", ONE), later("a", slot, ONE)) == wrong(
            found, allowed, f"job a in slot {slot}"
        )


def test_a_job_that_may_not_be_stopped_does_not_start_again_either():
    allowed = "keeps running, since disruption.preempt is off"
    assert resuming(runs("a", ONE), later("a", 1, ONE), preempt=False) == wrong(
        "stopped", allowed, "job a", Rule.EVICTION
    )
    allowed = "keeps running, since it has run for 1h, less than 2h"
    assert resuming(runs("a", ONE), later("a", 1, ONE), minimum_runtime="2h") == wrong(
        "stopped", allowed, "job a", Rule.EVICTION
    )
    assert resuming(runs("a", ONE, held=True), later("a", 1, ONE)) == wrong("a held job", "a held job waits")


def test_a_job_that_resumes_is_there_for_what_it_has_left_and_to_come_back():
    r, w = runs("r", ONE, hours=1), waits()

    # An hour is left, and one is lost.
    assert resuming(r, later("r", 1, ONE), later("a", 3, ONE), others=[w]) == ()
    assert resuming(r, later("r", 1, ONE), later("a", 2, ONE), others=[w]) == (twice(2, "a", "r"),)
    assert resuming(r, later("r", 1, ONE), later("a", 4, ONE), others=[w], restart="1h") == ()
    assert resuming(r, later("r", 1, ONE), later("a", 3, ONE), others=[w], restart="1h") == (
        twice(3, "a", "r"),
    )


def test_a_job_that_resumes_has_the_fewest_replicas_it_may_have():
    two = [replica(gpus=(index,)) for index in range(2)]
    r = runs("a", *two, replicas=(1, 2))

    assert resuming(r, later("a", 1, ONE)) == ()
    assert resuming(r, later("a", 1, *two)) == wrong("2 replicas", "1 replica")


def test_a_job_that_resumes_counts_as_new_where_its_queue_holds_too_much():
    def planned(*starts, nominal):
        policy = ahead(disruption={"checkpoint": 0, "restart": 0})
        jobs = [runs("a", ONE, hours=5), runs("r", replica(gpus=(1,)), hours=5)]
        world = snapshot(nodes=[node()], jobs=jobs, queues=[queue(nominal=nominal)])
        held = placement("r", replica(gpus=(1,)))
        return {each.rule for each in judge(world, held, policy=policy, planned=starts)}

    assert planned(later("a", 1, ONE), nominal=2) == set()
    assert planned(later("a", 1, ONE), nominal=1) == {Rule.QUOTA}


def test_a_job_starts_once():
    assert plan([waits()], later("a", 1, ONE), later("a", 4, ONE)) == wrong(
        "2 later starts", "1 later start", "job a"
    )
    assert plan([waits()], later("a", 1, ONE), now=[placement("a", ONE)]) == wrong(
        "a job that is placed now too", "one start"
    )


def test_a_job_starts_with_the_fewest_replicas_it_may_have():
    two = [replica(gpus=(index,)) for index in range(2)]
    elastic, rigid = waits(replicas=(1, 3)), waits(replicas=2)

    assert plan([elastic], later("a", 1, ONE)) == ()
    assert plan([rigid], later("a", 1, *two)) == ()
    assert plan([elastic], later("a", 1, *two)) == wrong("2 replicas", "1 replica")
    assert plan([rigid], later("a", 1, ONE)) == (
        *wrong("1 replica", "2 replicas", rule=Rule.GANG),
        *wrong("1 replica", "2 replicas"),
    )
    assert plan([waits()], later("a", 1)) == wrong("0 replicas", "1 replica")


# --- nodes ------------------------------------------------------------------------------------------------


def test_a_node_that_is_being_provisioned_takes_starts_from_the_slot_after():
    coming = node(ready=False, ready_at=at(1.5))

    assert plan([waits()], later("a", 2, ONE), nodes=[coming]) == ()
    assert plan([waits()], later("a", 1, ONE), nodes=[coming]) == wrong(
        "not ready", "a ready node", "job a on node n0 in slot 1", Rule.SELECTION
    )


def test_a_node_that_is_down_or_closed_takes_none():
    for closed in (
        node(ready=False),
        node(ready=False, ready_at=at(1), cordoned=True),
        node(ready_at=at(1), drain=True),
        node(cordoned=True),
    ):
        found = plan([waits()], later("a", 5, ONE), nodes=[closed])
        assert {each.rule for each in found} == {Rule.SELECTION}


def test_a_node_that_ought_to_be_ready_and_is_not_takes_none_either():
    for overdue in (node(ready=False, ready_at=at(-1)), node(ready=False, ready_at=at(0))):
        assert {each.rule for each in plan([waits()], later("a", 1, ONE), nodes=[overdue])} == {
            Rule.SELECTION
        }


def test_a_node_that_is_ready_later_takes_nothing_now():
    coming = node(ready=False, ready_at=at(1))

    found = plan([waits()], now=[placement("a", ONE)], nodes=[coming])

    assert {each.rule for each in found} == {Rule.SELECTION}


def test_added_nodes_take_later_starts_and_removed_ones_do_not():
    template = node("spot")
    old, new = (template.model_copy(update={"name": f"spot-{n}", "pool": "spot"}) for n in (1, 2))
    pools = [pool(template=template)]

    there = later("a", 1, replica("spot-2", gpus=(0,)))
    assert plan([waits()], there, nodes=[old], pools=pools, added=(new,)) == ()

    gone = later("a", 1, replica("spot-1", gpus=(0,)))
    assert plan([waits()], gone, nodes=[old], pools=pools, removed=("spot-1",)) == wrong(
        "on spot-1, which is removed", "nodes that stay"
    )


# --- which job is where in which slot ---------------------------------------------------------------------


def twice(slot, *names):
    return Violation(
        Rule.GPU_CAPACITY, f"node n0 gpu 0 in slot {slot}", f"2 holders: {', '.join(names)}", "1 holder"
    )


def test_a_running_job_is_there_to_the_slot_after_its_expected_end():
    for hours, slot in ((2, 2), (1.01, 2), (0.5, 1)):
        jobs = [runs("r", ONE, hours=hours), waits()]
        assert plan(jobs, later("a", slot, ONE)) == ()
        if slot > 1:
            assert plan(jobs, later("a", slot - 1, ONE)) == (twice(slot - 1, "a", "r"),)


def test_a_job_that_runs_longer_than_expected_is_there_for_some_time_yet():
    late = runs("r", ONE, hours=-4, ran=8)  # a quarter of eight hours is two

    assert plan([late, waits()], later("a", 2, ONE)) == ()
    assert plan([late, waits()], later("a", 1, ONE)) == (twice(1, "a", "r"),)


def test_a_job_that_is_to_be_killed_is_gone_then():
    r = runs("r", ONE, hours=5)
    r = r.model_copy(update={"running": r.running.model_copy(update={"kill_at": at(2)})})

    assert plan([r, waits()], later("a", 2, ONE)) == ()
    assert plan([r, waits()], later("a", 1, ONE)) == (twice(1, "a", "r"),)


def test_a_job_that_starts_now_is_there_for_its_duration():
    jobs = [waits("b", hours=2), waits()]
    starts = [placement("b", ONE)]

    assert plan(jobs, later("a", 2, ONE), now=starts) == ()
    assert plan(jobs, later("a", 1, ONE), now=starts) == (twice(1, "a", "b"),)


def test_later_starts_are_in_each_others_way():
    jobs = [waits("b", hours=2), waits(hours=9)]

    assert plan(jobs, later("b", 1, ONE), later("a", 3, ONE)) == ()
    assert plan(jobs, later("b", 1, ONE), later("a", 2, ONE)) == (twice(2, "a", "b"),)
    assert plan(jobs, later("b", 5, ONE), later("a", 1, ONE)) == (twice(5, "a", "b"),)
    assert plan(jobs, later("b", 3, ONE), later("a", 3, ONE)) == (twice(3, "a", "b"),)


def test_a_job_in_the_way_is_told_in_the_slot_where_it_begins_and_not_again():
    jobs = [waits("b", hours=9), waits(hours=9), waits("c")]
    planned = later("b", 1, ONE), later("a", 2, ONE), later("c", 3, replica(gpus=(1,)))

    assert plan(jobs, *planned) == (twice(2, "a", "b"),)


def test_a_slower_gpu_model_takes_longer():
    slow = node("n0", model="A100-80GB")
    jobs = [waits("b", hours=1, gpu_models={"H100-80GB": 1, "A100-80GB": 0.5}), waits()]

    assert plan(jobs, later("b", 1, ONE), later("a", 3, ONE), nodes=[slow]) == ()
    assert plan(jobs, later("b", 1, ONE), later("a", 2, ONE), nodes=[slow]) == (twice(2, "a", "b"),)


def test_a_stopped_job_is_there_no_more_and_a_moved_one_is_where_it_goes():
    policy = ahead(disruption={"migrate": True, "checkpoint": 0, "restart": 0})
    r = runs("r", ONE, hours=3)
    there = replica(gpus=(1,))
    world = snapshot(nodes=[node()], jobs=[r, waits(priority=9)])

    def judged(*held, at_slot, on):
        return judge(world, *held, policy=policy, planned=(later("a", at_slot, on),))

    assert judged(at_slot=1, on=ONE) == ()
    assert judged(placement("r", there), at_slot=1, on=ONE) == ()
    # What it has done so far, an hour, is lost: it goes on for four.
    assert judged(placement("r", there), at_slot=4, on=there) == ()
    assert {each.rule for each in judged(placement("r", there), at_slot=3, on=there)} == {Rule.GPU_CAPACITY}


def test_a_job_that_shrinks_gives_up_its_replica_and_stays_as_long():
    other = replica(gpus=(1,))
    r = runs("r", ONE, other, hours=3, replicas=(1, 2))
    world = snapshot(nodes=[node()], jobs=[r, waits()])
    shrunk = placement("r", ONE)

    assert judge(world, shrunk, policy=ahead(), planned=(later("a", 1, other),)) == ()
    assert judge(world, shrunk, policy=ahead(), planned=(later("a", 3, ONE),)) == ()
    assert judge(world, shrunk, policy=ahead(), planned=(later("a", 2, ONE),)) == (twice(2, "a", "r"),)


# --- every rule of an instant -----------------------------------------------------------------------------


def rules_broken(jobs, *planned, **more):
    return {each.rule for each in plan(jobs, *planned, **more)}


def test_places_are_judged_as_those_of_now():
    assert rules_broken([waits(gpus=2)], later("a", 1, ONE)) == {Rule.REQUEST}
    assert rules_broken([waits()], later("a", 1, replica("x", gpus=(0,)))) == {Rule.SELECTION}
    assert rules_broken([waits(gpu_models=["T4"])], later("a", 1, ONE)) == {Rule.SELECTION}

    racks = [node("n0", rack="r0"), node("n1", rack="r1")]
    both = [replica(name, gpus=(0,)) for name in ("n0", "n1")]
    close = waits(replicas=2, locality={"required": "rack"})
    assert rules_broken([close], later("a", 1, *both), nodes=racks) == {Rule.LOCALITY}
    apart = waits(replicas=2, spread={"level": "node", "max": 1})
    assert rules_broken([apart], later("a", 1, *both), nodes=racks) == set()
    here = [replica(gpus=(index,)) for index in range(2)]
    assert rules_broken([apart], later("a", 1, *here), nodes=racks) == {Rule.SPREAD}


def test_jobs_that_must_not_meet_do_not_in_any_slot():
    avoids = AntiAffinity(labels={"app": "x"})
    r = runs("r", replica(gpus=(7,)), hours=2, labels={"app": "x"})
    jobs = [r, waits(anti_affinity=[avoids])]

    assert rules_broken(jobs, later("a", 2, ONE)) == set()
    assert rules_broken(jobs, later("a", 1, ONE)) == {Rule.ANTI_AFFINITY}


def test_shares_of_a_gpu_add_up_in_every_slot():
    half = replica(gpus=(0,), milli=600)
    jobs = [waits("b", gpus=0, milli=600, hours=2), waits(gpus=0, milli=600)]

    assert rules_broken(jobs, later("b", 1, half), later("a", 3, half)) == set()
    assert rules_broken(jobs, later("b", 1, half), later("a", 2, half)) == {Rule.FRACTIONAL_GPU}


def test_cpu_and_memory_suffice_in_every_slot():
    half = replica(cpus=60)
    jobs = [waits("b", gpus=0, cpus=60, hours=2), waits(gpus=0, cpus=60)]

    assert rules_broken(jobs, later("b", 1, half), later("a", 3, half)) == set()
    assert rules_broken(jobs, later("b", 1, half), later("a", 2, half)) == {Rule.CPU_MEMORY}


def test_power_suffices_in_every_slot():
    capped = node(watts=700, power_cap_watts=1000)
    jobs = [waits("b", hours=2), waits()]
    planned = later("b", 1, ONE), replica(gpus=(1,))

    assert rules_broken(jobs, planned[0], later("a", 3, planned[1]), nodes=[capped]) == set()
    assert rules_broken(jobs, planned[0], later("a", 2, planned[1]), nodes=[capped]) == {Rule.POWER}


def test_no_queue_exceeds_its_limit_in_any_slot():
    jobs = [runs("r", ONE, hours=2), waits(gpus=2)]
    there, tight = replica(gpus=(1, 2)), [queue(nominal=2)]

    assert plan(jobs, later("a", 2, there), queues=tight) == ()
    assert plan(jobs, later("a", 1, there), queues=tight) == wrong(
        "3 GPUs", "2 GPUs", "queue q in slot 1", Rule.QUOTA
    )


def test_what_running_jobs_hold_too_much_of_they_keep_and_no_job_adds_to_it():
    jobs = [runs("r", replica(gpus=range(4)), hours=2), waits()]
    other, tight = replica("n1", gpus=(0,)), [queue(nominal=2)]
    nodes = [node("n0"), node("n1")]

    elsewhere = waits("x", queue="p")
    queues = [*tight, queue("p", nominal=1)]
    assert plan([*jobs, elsewhere], later("x", 1, other), queues=queues, nodes=nodes) == ()
    assert plan(jobs, later("a", 2, other), queues=tight, nodes=nodes) == ()
    assert plan(jobs, later("a", 1, other), queues=tight, nodes=nodes) == wrong(
        "5 GPUs", "4 GPUs", "queue q in slot 1", Rule.QUOTA
    )


def test_a_job_that_is_there_already_keeps_what_starts_now_in_its_queue_too():
    jobs = [waits("b", hours=3, queue="p"), waits(hours=3, queue="p"), waits("c")]
    queues = [queue(), queue("p", nominal=1)]
    nodes = [node("n0"), node("n1")]
    now = [placement("b", ONE)]

    found = plan(
        jobs,
        later("a", 1, replica("n1", gpus=(0,))),
        later("c", 2, replica("n1", gpus=(1,))),
        now=now,
        queues=queues,
        nodes=nodes,
    )

    # Told where it begins, and only there.
    assert found == wrong("2 GPUs", "1 GPU", "queue p in slot 1", Rule.QUOTA)


# --- MIG --------------------------------------------------------------------------------------------------

SLICE = "1g.10gb"
SWITCHING = ahead(mig=MigPolicy(switch_mode=True))


def cut(start, gpu=0):
    return sliced(replica(), (gpu, SLICE, start))


def test_instances_have_one_user_in_every_slot():
    jobs = [waits("b", gpus=0, mig={SLICE: 1}, hours=2), waits(gpus=0, mig={SLICE: 1})]
    nodes = [node(mig={0: ((SLICE, 0),)})]

    assert rules_broken(jobs, later("b", 1, cut(0)), later("a", 3, cut(0)), nodes=nodes) == set()
    assert rules_broken(jobs, later("b", 1, cut(0)), later("a", 2, cut(0)), nodes=nodes) == {Rule.MIG}


def test_a_gpu_that_is_switched_to_mig_mode_stays_in_it():
    jobs = [waits("b", gpus=0, mig={SLICE: 1}, hours=2), waits(), waits("c", gpus=0, mig={SLICE: 1})]
    now = [placement("b", cut(0))]

    for slot in (1, 2, 5):
        assert rules_broken(jobs, later("a", slot, ONE), now=now, policy=SWITCHING) == {Rule.MIG}
        assert rules_broken(jobs, later("c", slot, cut(1)), now=now, policy=SWITCHING) == set()
    assert rules_broken(jobs, later("a", 1, replica(gpus=(1,))), now=now, policy=SWITCHING) == set()


def test_only_the_policy_switches_it():
    wants = waits(gpus=0, mig={SLICE: 1})

    assert rules_broken([wants], later("a", 1, cut(0)), policy=SWITCHING) == set()
    assert rules_broken([wants], later("a", 1, cut(0))) == {Rule.MIG}
