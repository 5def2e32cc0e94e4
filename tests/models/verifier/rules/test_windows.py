"""Reserved nodes and maintenance: which jobs may come, and which have to leave."""

from gpuplan.models.calendar import Reservation
from gpuplan.models.gang import Gang
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Policy
from tests.support.builders.build import MODEL, node, placement, queue, replica, snapshot
from tests.support.builders.time_builders import ahead, at, later, runs, waits
from tests.support.harness.verify_helpers import broken, judge, rules

ONE = replica("n0", gpus=(0,))
NODES = [node("n0"), node("n1")]
TO_MAINTENANCE = "no job from 2026-11-20T15:00:00Z to 2026-11-20T17:00:00Z: maintenance by m"


def maintenance(begins=3, hours=2, **more):
    """Of n0, at 15:00 for two hours unless said otherwise."""
    where = more or {"nodes": ["n0"]}
    return Reservation(name="m", kind="maintenance", start=at(begins), duration=f"{hours}h", **where)


def reserved(begins=3, hours=2, **owners):
    return Reservation(name="v", nodes=["n0"], start=at(begins), duration=f"{hours}h", **owners)


def world(*jobs, reservations, **more):
    return snapshot(nodes=NODES, jobs=jobs, reservations=reservations, **more)


def start_now(job, reservation, on=ONE, **more):
    return judge(world(job, reservations=[reservation]), placement("a", on), **more)


def start_later(job, slot, reservation, on=ONE):
    return judge(world(job, reservations=[reservation]), policy=ahead(), planned=(later("a", slot, on),))


def there(begins, ends):
    return f"there from 2026-11-20T{begins}:00Z to 2026-11-20T{ends}:00Z"


def wrong(found, allowed=TO_MAINTENANCE, subject="job a on node n0"):
    return broken(Rule.WINDOWS, subject, found, allowed)


# --- which jobs may come ----------------------------------------------------------------------------------


def test_a_job_that_is_gone_in_time_may_start():
    assert start_now(waits(hours=3), maintenance()) == ()


def test_a_job_that_is_not_gone_in_time_may_not_start():
    assert start_now(waits(hours=3.5), maintenance()) == wrong(there("12:00", "15:30"))


def test_no_job_comes_while_it_lasts():
    assert start_now(waits(), maintenance(begins=-1)) == wrong(
        there("12:00", "13:00"),
        "no job from 2026-11-20T11:00:00Z to 2026-11-20T13:00:00Z: maintenance by m",
    )


def test_it_matters_as_much_to_a_plan_that_looks_ahead():
    assert len(start_now(waits(hours=4), maintenance(), policy=ahead())) == 1
    assert start_now(waits(hours=3), maintenance(), policy=ahead()) == ()


def test_other_nodes_are_open():
    assert start_now(waits(hours=9), maintenance(), on=replica("n1", gpus=(0,))) == ()


def test_a_later_start_is_judged_from_its_slot_on():
    assert start_later(waits(hours=2), 1, maintenance()) == ()
    assert start_later(waits(hours=2), 2, maintenance()) == wrong(
        there("14:00", "16:00"), subject="job a on node n0 in slot 2"
    )
    assert len(start_later(waits(hours=1), 4, maintenance())) == 1
    assert start_later(waits(hours=9), 5, maintenance()) == ()


def test_owners_may_come_at_any_time():
    told = "only queue team from 2026-11-20T15:00:00Z to 2026-11-20T17:00:00Z: reserved by v"
    team = reserved(queues=["team"])
    queues = [queue("q"), queue("team"), queue("below", parent="team")]

    def judged(job):
        return judge(world(job, reservations=[team], queues=queues), placement("a", ONE))

    assert judged(waits(hours=4, queue="team")) == ()
    assert judged(waits(hours=4, queue="below")) == ()
    assert judged(waits(hours=4)) == wrong(there("12:00", "16:00"), told)


def test_owners_are_told_by_name():
    both = reserved(queues=["q2"], users=["ann", "bob"])
    queues = [queue(), queue("q2")]
    (told,) = judge(
        world(waits(hours=4, user="eve"), reservations=[both], queues=queues), placement("a", ONE)
    )

    assert told.allowed.startswith("only queue q2, user ann, user bob from ")
    assert (
        judge(world(waits(hours=4, user="bob"), reservations=[both], queues=queues), placement("a", ONE))
        == ()
    )


def test_owners_may_be_jobs_with_labels():
    course = reserved(job_labels={"course": "7"})
    other, mine = waits(hours=4), waits(hours=4, labels={"course": "7"})

    (told,) = judge(world(other, reservations=[course]), placement("a", ONE))
    assert told.allowed.startswith("only jobs with course=7 from ")
    assert judge(world(mine, reservations=[course]), placement("a", ONE)) == ()


def test_a_slower_gpu_model_takes_longer():
    slow = [node("n0", model="A100-80GB"), node("n1")]
    job = waits(hours=2, gpu_models={"H100-80GB": 1, "A100-80GB": 0.5})
    held = snapshot(nodes=slow, jobs=[job], reservations=[maintenance()])

    assert judge(held, placement("a", replica("n1", gpus=(0,)))) == ()
    assert {each.rule for each in judge(held, placement("a", ONE))} == {Rule.WINDOWS}


def test_of_nodes_to_be_chosen_those_that_are_free_are_taken():
    busy = runs("r", ONE, hours=5)
    one_of_both = maintenance(count=1)
    held = world(busy, waits(hours=4), reservations=[one_of_both])

    assert judge(held, busy.placement, placement("a", replica("n0", gpus=(1,)))) == ()
    found = judge(held, busy.placement, placement("a", replica("n1", gpus=(0,))))
    assert [each.subject for each in found] == ["job a on node n1"]


def test_each_node_is_told_once():
    gang = waits(hours=4, replicas=3)
    there = [replica("n0", gpus=(0,)), replica("n0", gpus=(1,)), replica("n1", gpus=(0,))]
    both = maintenance(nodes=["n0", "n1"])

    found = judge(world(gang, reservations=[both]), placement("a", *there))

    assert [each.subject for each in found] == ["job a on node n0", "job a on node n1"]


# --- running jobs -----------------------------------------------------------------------------------------


def test_a_running_job_may_run_into_a_window():
    r = runs("r", ONE, hours=9)

    assert judge(world(r, reservations=[maintenance(begins=0)]), r.placement) == ()


def test_new_replicas_of_a_job_that_grows_are_judged_by_its_end():
    policy = Policy()
    other, third = replica("n0", gpus=(1,)), replica("n1", gpus=(0,))

    def grown(hours, onto):
        r = runs("r", ONE, hours=hours, replicas=(1, 2))
        return judge(world(r, reservations=[maintenance()]), placement("r", ONE, onto), policy=policy)

    assert grown(3, other) == ()
    assert grown(9, third) == ()
    assert grown(4, other) == wrong(there("12:00", "16:00"), subject="job r on node n0")


def test_a_moved_job_is_judged_by_the_end_it_will_have():
    there = replica("n0", gpus=(0,))

    def moved(hours, **lost):
        r = runs("r", replica("n1", gpus=(0,)), hours=hours)
        saved = r.running.model_copy(update={"last_checkpoint_at": at(0)})
        r = r.model_copy(update={"running": saved})
        policy = rules(migrate=True, checkpoint=0, **lost)
        return judge(world(r, reservations=[maintenance()]), placement("r", there), policy=policy)

    assert moved(3, restart=0) == ()
    assert moved(2, restart=3600) == ()
    assert {each.rule for each in moved(2, restart=3601)} == {Rule.WINDOWS}
    assert {each.rule for each in moved(3.5, restart=0)} == {Rule.WINDOWS}


def test_a_job_that_has_to_go_now_may_be_stopped_or_moved_though_policy_forbids():
    policy = ahead(disruption={"preempt": False, "migrate": False})
    there = placement("r", replica("n1", gpus=(0,)))

    def allowed(*held, begins, **more):
        r = runs("r", ONE, hours=5, **more)
        after = held or ()
        found = judge(world(r, reservations=[maintenance(begins=begins)]), *after, policy=policy)
        return {each.rule for each in found} == set()

    assert allowed(begins=0.5)
    assert allowed(there, begins=0.5)
    # The next plan would be made as it opens.
    assert allowed(begins=1)
    assert allowed(there, begins=1)
    # There is time for that in later slots.
    assert not allowed(begins=1.5)
    assert not allowed(there, begins=1.5)
    # It ends before.
    assert not allowed(begins=5)
    assert not allowed(begins=0.5, preemptible=False)


def test_the_owner_of_a_window_has_not_to_go():
    policy = ahead(disruption={"preempt": False})
    r = runs("r", ONE, hours=5, user="ann")

    found = judge(world(r, reservations=[reserved(begins=0.5, users=["ann"])]), policy=policy)

    assert {each.rule for each in found} == {Rule.EVICTION}


def test_without_reservations_nothing_is_judged():
    for policy in (ahead(1), ahead(6)):
        assert judge(world(waits(hours=99), reservations=[]), placement("a", ONE), policy=policy) == ()


def test_the_last_end_of_a_job_is_that_on_the_model_on_which_it_scales_worst():
    """An hour on the fast model is ten on the slow one, which closes in five."""
    gang = Gang(min=1, max=2, scaling={1: 1, 2: 2}, scaling_by_model={"A100-80GB": {1: 0.1, 2: 0.2}})
    a = waits(hours=1, gpu_models={MODEL: 1, "A100-80GB": 1}).model_copy(update={"gang": gang})
    slow = node("slow", model="A100-80GB")
    closes = Reservation(name="m", kind="maintenance", start=at(5), duration="2h", nodes=("slow",))

    found = judge(
        snapshot(nodes=[slow, node("fast")], jobs=[a], reservations=[closes]),
        placement("a", replica("slow", gpus=(0,)), replica("slow", gpus=(1,))),
    )

    assert [each.rule for each in found] == [Rule.WINDOWS]
