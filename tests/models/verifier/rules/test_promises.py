"""A promised start is kept, unless what no plan can help is in the way."""

from datetime import timedelta

from gpuplan.models.calendar import Reservation
from gpuplan.models.cluster import Gpu
from gpuplan.models.dependency import Dependency
from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import NOW, node, placement, queue, replica, snapshot
from tests.support.builders.time_builders import ahead, at, later, promised, runs, waits
from tests.support.harness.verify_helpers import broken, judge, sliced

ALL = replica("n0", gpus=range(8))
ONE = replica("n0", gpus=(0,))
HALF, OTHER_HALF = replica("n0", gpus=range(4)), replica("n0", gpus=range(4, 8))
ELSEWHERE = replica("n1", gpus=range(8))
NODES = [node("n0"), node("n1")]


def big(name="a", hours=2, promise=2, on=ALL, **more):
    """A job of a whole node that was promised it in slot 2."""
    return promised(waits(name, hours=hours, **({"gpus": len(on.gpus)} | more)), promise, on)


def judged(jobs, *planned, now=(), policy=None, nodes=NODES, without=(), rule=Rule.PROMISES, **about):
    """How promises are broken by later starts, beside running jobs that stay and placements of now."""
    world = snapshot(nodes=nodes, jobs=jobs, **about)
    held = (*(each for each in world.running_placements if each.job not in without), *now)
    found = judge(world, *held, policy=policy or ahead(), planned=planned)
    return tuple(each for each in found if each.rule is rule)


def late(name="a", found="starts in no slot", by="2026-11-20T14:00:00Z"):
    return broken(Rule.PROMISES, f"job {name}", found, f"starts by {by}, as promised")


# --- kept or not ------------------------------------------------------------------------------------------


def test_a_promise_is_kept_by_a_start_in_its_slot_or_before():
    assert judged([big()], later("a", 2, ALL)) == ()
    assert judged([big()], later("a", 1, ALL)) == ()
    assert judged([big()], now=[placement("a", ALL)]) == ()


def test_other_places_do_as_well():
    assert judged([big()], later("a", 2, ELSEWHERE)) == ()


def test_a_start_after_it_breaks_it_and_so_does_none():
    assert judged([big()], later("a", 3, ALL)) == late(found="starts at 2026-11-20T15:00:00Z")
    assert judged([big()]) == late()


def test_a_promise_that_is_due_is_kept_now():
    for due in (0, -1):
        by = f"2026-11-20T{12 + due}:00:00Z"
        assert judged([big(promise=due)], now=[placement("a", ALL)]) == ()
        assert judged([big(promise=due)], later("a", 1, ALL)) == late(
            found="starts at 2026-11-20T13:00:00Z", by=by
        )


def test_a_start_that_is_no_start_keeps_nothing():
    assert judged([big()], later("a", 2, ALL), later("a", 1, ALL)) == late()


def test_the_policy_may_allow_some_delay():
    lenient = ahead(backfill={"mode": "aggressive", "max_delay": "1h"})

    assert judged([big()], later("a", 3, ALL), policy=lenient) == ()
    assert judged([big()], later("a", 4, ALL), policy=lenient) == late(
        found="starts at 2026-11-20T16:00:00Z", by="2026-11-20T15:00:00Z"
    )
    little = ahead(backfill={"mode": "aggressive", "max_delay": "59m"})
    assert judged([big()], later("a", 3, ALL), policy=little) == late(
        found="starts at 2026-11-20T15:00:00Z", by="2026-11-20T14:59:00Z"
    )


def test_a_delay_that_is_allowed_may_be_needed():
    """What counts is whether the last slot would do."""
    lenient = ahead(backfill={"mode": "aggressive", "max_delay": "1h"})
    told = late(found="starts at 2026-11-20T16:00:00Z", by="2026-11-20T15:00:00Z")

    assert judged([big(), runs("r", HALF, hours=3)], later("a", 4, ALL), policy=lenient) == told
    assert judged([big(), runs("r", HALF, hours=4)], later("a", 4, ALL), policy=lenient) == ()
    closed = [Reservation(name="m", kind="maintenance", nodes=["n0"], start=at(4), duration="1h")]
    assert judged([big()], later("a", 5, ALL), policy=lenient, reservations=closed) == ()
    both = [big(), big("b", promise=4, hours=1)]
    assert judged(both, later("b", 3, ALL), later("a", 4, ALL), policy=lenient) == ()
    assert judged(both, later("b", 5, ALL), later("a", 4, ELSEWHERE), policy=lenient) == told
    # What is due now is held for now.
    due = [big(promise=0), runs("r", HALF, hours=1)]
    assert judged(due, later("a", 2, ALL), policy=lenient) == ()


def test_a_promise_within_a_slot_is_kept_with_the_beginning_of_it():
    assert judged([big(promise=2.5)], later("a", 2, ALL)) == ()
    assert len(judged([big(promise=2.5)], later("a", 3, ALL))) == 1


def test_what_is_promised_after_the_horizon_is_not_due():
    assert judged([big(promise=6)]) == ()
    assert judged([big(promise=5)]) == late(by="2026-11-20T17:00:00Z")
    assert judged([big(promise=5)], policy=ahead(backfill={"mode": "aggressive", "max_delay": "1h"})) == ()
    assert judged([big(promise=6), big("b", promise=5)]) == late("b", by="2026-11-20T17:00:00Z")


def test_a_plan_of_this_instant_knows_no_promises():
    assert judged([big(promise=0)], policy=ahead(1)) == ()


def test_no_job_waits_for_held_and_running_jobs():
    r = promised(runs("r", OTHER_HALF), 2, OTHER_HALF)

    assert judged([big(held=True)]) == ()
    assert judged([r]) == ()
    assert judged([r], without="r", policy=ahead()) == ()


# --- what is the cause ------------------------------------------------------------------------------------


def test_a_job_that_takes_the_places_is_no_excuse():
    jobs = [big(), waits("b", hours=5, gpus=4)]

    assert judged(jobs, later("b", 1, HALF), later("a", 5, ALL)) == late(
        found="starts at 2026-11-20T17:00:00Z"
    )
    assert judged(jobs, now=[placement("b", HALF)]) == late()


def test_a_job_that_grows_or_moves_there_is_none_either():
    policy = ahead(disruption={"migrate": True})
    r = runs("r", ELSEWHERE, hours=5)
    grows = runs("r", replica("n1", gpus=(0,)), hours=5, replicas=(1, 2))

    assert judged([big(), r], without="r", now=[placement("r", ALL)], policy=policy) == late()
    both = placement("r", replica("n1", gpus=(0,)), replica("n0", gpus=(0,)))
    assert judged([big(), grows], without="r", now=[both], policy=policy) == late()


def test_a_running_job_that_takes_longer_than_expected_is():
    jobs = [big(), runs("r", HALF, hours=3)]

    assert judged(jobs, later("a", 3, ALL)) == ()
    assert judged(jobs) == ()


def test_so_it_is_if_the_plan_stops_it_for_another_job():
    jobs = [big(), runs("r", HALF, hours=3), waits("b", hours=5, gpus=4, priority=9)]

    assert judged(jobs, without="r", now=[placement("b", HALF)]) == ()


def test_a_running_job_that_is_gone_by_then_is_not():
    assert judged([big(), runs("r", HALF, hours=2)], later("a", 3, ALL)) == late(
        found="starts at 2026-11-20T15:00:00Z"
    )


LOST = (
    {"nodes": [node("n1")]},
    {"nodes": [node("n0", ready=False), node("n1")]},
    {"nodes": [node("n0", ready=False, ready_at=at(3)), node("n1")]},
    {"nodes": [node("n0", cordoned=True), node("n1")]},
    {"nodes": [node("n0", drain=True), node("n1")]},
    {"nodes": [node("n0", gpus=4), node("n1")]},
    {"nodes": [node("n0", details=[Gpu(index=3, healthy=False)]), node("n1")]},
    {"nodes": [node("n0", mig={3: ()}), node("n1")]},
    {"queues": [queue(nominal=4)]},
    {"reservations": [Reservation(name="m", kind="maintenance", nodes=["n0"], start=at(3), duration="1h")]},
)
"""What there is of a cluster that has changed since the promise."""


def test_places_that_are_gone_or_closed_are():
    for lost in LOST:
        assert judged([big()], later("a", 5, ELSEWHERE), **lost) == ()


KEPT = (
    {"nodes": [node("n0", ready=False, ready_at=at(2)), node("n1")]},
    {"nodes": [node("n0", gpus=9, details=[Gpu(index=3, healthy=False)]), node("n1")]},
    {"nodes": [node("n0", gpus=9, mig={3: ()}), node("n1")]},
    {"queues": [queue(nominal=8)]},
    {"reservations": [Reservation(name="m", kind="maintenance", nodes=["n0"], start=at(4), duration="1h")]},
)


def test_places_that_will_be_there_are_not():
    told = late(found="starts at 2026-11-20T17:00:00Z")

    for kept in KEPT:
        assert judged([big()], later("a", 5, ELSEWHERE), **kept) == told


def test_a_job_that_asks_for_something_else_now_is_promised_nothing():
    assert judged([big(gpus=4)]) == ()
    assert judged([big(replicas=2)]) == ()
    both = promised(waits(gpus=4, replicas=(1, 2)), 2, HALF, OTHER_HALF)
    assert judged([both]) == ()


def test_a_job_that_waits_for_others_is_promised_no_more_than_they_keep():
    waits_for_r = big(depends_on=[Dependency(job="r")])
    r = replica("n1", gpus=(0,))

    assert judged([waits_for_r, runs("r", r, hours=2)]) == late()
    assert judged([waits_for_r, runs("r", r, hours=3)]) == ()
    assert judged([big(not_before=at(3))]) == ()
    assert judged([big(deadline=at(3), hard_deadline=True)]) == ()
    assert judged([big(deadline=at(4), hard_deadline=True)]) == late()


def test_whole_gpus_may_be_others_than_promised():
    small = big(on=replica("n0", gpus=(0,)), hours=2)
    r = runs("r", HALF, hours=5)

    assert judged([small, r], later("a", 3, ELSEWHERE)) != ()
    assert judged([small, r, runs("s", OTHER_HALF, hours=5)], later("a", 3, ELSEWHERE)) == ()


def test_replicas_of_one_node_share_its_gpus():
    both = promised(waits(gpus=4, replicas=2), 2, HALF, OTHER_HALF)

    assert judged([both]) == late()
    assert judged([both, runs("r", replica("n0", gpus=(0,)), hours=5)]) == ()


def test_a_node_that_ought_to_be_ready_and_is_not_is_no_place():
    overdue = [node("n0", ready=False, ready_at=at(-1)), node("n1")]

    assert judged([big(promise=0)], nodes=overdue) == ()
    assert judged([big(promise=1)], nodes=overdue) == ()


def test_shares_are_where_they_were_promised():
    share = big(on=replica("n0", gpus=(0,), milli=500), gpus=0, milli=500)

    assert judged([share]) == late()
    assert judged([share, runs("r", replica("n0", gpus=(0,)), hours=5)]) == ()
    assert judged([share, runs("r", replica("n0", gpus=(1,)), hours=5)]) == late()


def test_a_promise_is_one_of_nodes_and_gpus():
    thrifty = promised(waits(gpus=4, cpus=90), 2, HALF)

    assert judged([thrifty]) == late()
    assert judged([thrifty, runs("r", replica("n0", cpus=10), gpus=0, cpus=10, hours=5)]) == ()


def test_other_things_than_gpus_count_too():
    cpus = promised(waits(gpus=0, cpus=90), 2, replica("n0", cpus=90))

    assert judged([cpus]) == late()
    assert judged([cpus, runs("r", replica("n0", cpus=10), gpus=0, cpus=10, hours=5)]) == ()


# --- several promises -------------------------------------------------------------------------------------


def test_each_is_kept():
    jobs = [big("a"), big("b", promise=4), big("c", on=ELSEWHERE)]

    assert judged(jobs, later("a", 2, ALL), later("b", 4, ALL), later("c", 2, ELSEWHERE)) == ()
    assert judged(jobs, later("a", 2, ALL), later("b", 4, ALL)) == late("c")
    assert judged(jobs) == (*late("a"), *late("b", by="2026-11-20T16:00:00Z"), *late("c"))


def test_of_promises_that_exclude_each_other_by_now_one_may_be_broken():
    jobs = [big("a"), big("b", on=ELSEWHERE)]
    cut = {"queues": [queue(nominal=8)]}

    assert judged(jobs, later("a", 2, ALL), later("b", 4, ELSEWHERE), **cut) == ()
    assert judged(jobs, later("b", 2, ELSEWHERE), later("a", 4, ALL), **cut) == ()
    # The first was kept early, so that there were no harm in keeping the second either; yet both had been
    # promised what is there only once.
    assert judged(jobs, later("b", 4, ELSEWHERE), now=[placement("a", ALL)], **cut) == ()


def test_a_promised_job_that_had_to_go_elsewhere_is_an_excuse():
    lost = big("a", on=replica("lost", gpus=range(8)))
    jobs = [lost, big("b")]

    assert judged(jobs, later("a", 2, ALL), later("b", 4, ALL)) == ()
    assert judged(jobs, later("a", 3, ALL), later("b", 5, ALL)) == ()
    assert judged(jobs, later("a", 4, ALL), later("b", 5, ALL)) == late("b", "starts at 2026-11-20T17:00:00Z")


def test_a_job_that_begins_while_another_is_there_is_in_its_way_too():
    jobs = [big("a", promise=2, hours=2), big("b", promise=3, on=ELSEWHERE)]
    cut = {"queues": [queue(nominal=8)]}

    assert judged(jobs, later("b", 3, ELSEWHERE), later("a", 5, ALL), **cut) == ()
    jobs = [big("a", promise=1, hours=2), jobs[1]]
    assert judged(jobs, later("b", 3, ELSEWHERE), later("a", 5, ALL), **cut) == late(
        "a", "starts at 2026-11-20T17:00:00Z", "2026-11-20T13:00:00Z"
    )


def test_promised_gpus_that_a_running_job_has_meanwhile_are_no_others():
    """Three times four GPUs of eight: the indices of the promises have been overtaken, the numbers count."""
    r = runs("r", OTHER_HALF, hours=5)
    jobs = [r, big("a", on=HALF), big("b", on=OTHER_HALF)]

    assert judged(jobs, later("a", 2, HALF)) == ()
    assert judged(jobs, later("b", 2, HALF)) == ()
    assert judged(jobs, now=[placement("a", replica("n1", gpus=range(4)))]) == ()
    assert judged(jobs, now=[placement("b", replica("n1", gpus=range(4)))]) == ()
    assert judged(jobs[:2]) == late("a")


def test_jobs_that_start_together_are_excused_together():
    jobs = [big("a", co_start="g"), big("b", on=ELSEWHERE, co_start="g")]

    assert judged(jobs, later("a", 2, ALL), later("b", 2, ELSEWHERE)) == ()
    assert judged(jobs, later("a", 3, ALL), later("b", 3, ELSEWHERE)) == (
        *late("a", "starts at 2026-11-20T15:00:00Z"),
        *late("b", "starts at 2026-11-20T15:00:00Z"),
    )
    lost = [NODES[0], node("n1", ready=False)]
    assert judged(jobs, later("a", 3, ALL), nodes=lost) == ()
    unlike = [jobs[0], big("b", promise=3, on=ELSEWHERE, co_start="g")]
    assert judged(unlike, later("a", 3, ALL), later("b", 3, ELSEWHERE)) == ()
    alone = [jobs[0], waits("b", gpus=8, hours=2, co_start="g")]
    assert judged(alone) == ()


def test_slots_are_of_any_length():
    policy = ahead(8, length=1200)
    job = promised(waits(hours=1, gpus=8), 1, ALL)
    early = snapshot(nodes=NODES, jobs=[job], taken_at=NOW + timedelta(minutes=10))

    # Slots begin at 12:10, 12:20, 12:40 and 13:00.
    assert judge(early, policy=policy, planned=(later("a", 3, ALL),)) == ()
    assert {each.rule for each in judge(early, policy=policy, planned=(later("a", 4, ALL),))} == {
        Rule.PROMISES
    }


# --- in doubt ---------------------------------------------------------------------------------------------


def test_jobs_that_must_not_meet_exclude_each_other_at_any_time():
    apart = big(on=ONE, anti_affinity=[{"labels": {"app": "x"}}])
    x = {"labels": {"app": "x"}}

    assert judged([apart]) == late()
    assert judged([apart, runs("r", replica("n0", gpus=(7,)), hours=1, **x)]) == ()
    assert judged([apart, runs("r", replica("n1", gpus=(7,)), hours=1, **x)]) == late()


def test_a_share_and_jobs_that_need_the_gpu_whole_do_too():
    share = promised(waits("s", gpus=0, milli=500), 5, replica("n0", gpus=(0,), milli=500))
    kept = later("s", 5, replica("n0", gpus=(0,), milli=500))
    seven = promised(waits("c", gpus=7, hours=1), 1, replica("n0", gpus=range(7)))

    assert judged([big(hours=1), share], kept) == ()
    assert judged([seven, share], kept) == late("c", by="2026-11-20T13:00:00Z")
    assert judged([big(hours=1), share], later("a", 2, ALL)) == ()
    assert judged([seven, share], later("c", 1, replica("n0", gpus=range(7)))) == late(
        "s", by="2026-11-20T17:00:00Z"
    )
    shares = runs("r", replica("n0", gpus=(0,), milli=500), gpus=0, milli=500, hours=2)
    assert judged([big(), shares]) == late()
    four = [big("c", hours=1, promise=1, on=HALF), big("d", hours=1, promise=3, on=HALF)]
    assert judged([*four, share], later("c", 1, OTHER_HALF), later("d", 3, OTHER_HALF)) == late(
        "s", by="2026-11-20T17:00:00Z"
    )
    r = runs("r", replica("n0", gpus=(7,)), hours=2)
    assert judged([seven, share, r], later("c", 1, replica("n0", gpus=range(7)))) == ()


def test_dependents_of_waiting_jobs_are_promised_no_more_than_those_keep():
    x = waits("x", hours=1)
    after = big(depends_on=[Dependency(job="x")])

    assert judged([after, x], now=[placement("x", replica("n1", gpus=(0,)))]) == ()


def test_instances_are_held_on_gpus_in_mig_mode():
    switching = ahead(mig={"switch_mode": True})
    cut = sliced(replica("n0"), (0, "1g.10gb", 0))
    job = promised(waits(gpus=0, mig={"1g.10gb": 1}), 2, cut)

    assert judged([job], policy=switching) == ()
    assert judged([job], policy=switching, nodes=[node("n0", mig={0: ()})]) == late()


def test_instances_make_one_layout_for_as_long_as_a_job_is_there():
    nodes = [node("n0", mig={0: ()})]
    wide = promised(waits(gpus=0, mig={"1g.10gb": 1}, hours=3), 1, sliced(replica("n0"), (0, "1g.10gb", 6)))
    runs_now = runs("r", sliced(replica("n0"), (0, "4g.40gb", 0)), gpus=0, mig={"4g.40gb": 1}, hours=2)
    comes = promised(waits("b", gpus=0, mig={"3g.40gb": 1}), 3, sliced(replica("n0"), (0, "3g.40gb", 0)))

    assert judged([wide, runs_now], nodes=nodes) == late(by="2026-11-20T13:00:00Z")
    assert judged([runs_now, comes], nodes=nodes) == late("b", by="2026-11-20T15:00:00Z")
    assert judged([wide, runs_now, comes], later("b", 3, comes.promise.replicas[0]), nodes=nodes) == ()
