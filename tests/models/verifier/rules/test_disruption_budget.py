from datetime import timedelta

from gpuplan.models.calendar import Recurring, Reservation
from gpuplan.models.cluster import Cluster
from gpuplan.models.job import Progress
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.settings import DisruptionBudget
from tests.support.builders.build import NOW, job, node, placement, queue, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

CHAT = {"app": "chat"}
QUEUES = [queue("top"), queue("q", parent="top"), queue("other")]


def chat(number, **more):
    """One of the app's jobs, on a GPU of its own."""
    return job(f"c{number}", gpus=1, at=[replica(gpus=(number,))], labels=CHAT, **more)


FOUR = [chat(number) for number in range(4)]


def budget(**about):
    given = {} if about.keys() & {"max_unavailable", "min_available"} else {"max_unavailable": 1}
    return rules(migrate=True, budgets=(DisruptionBudget(name="b", **given, **about),))


def without(*names, jobs=FOUR, policy=None, queues=QUEUES, **cluster):
    """The verifier's answer if these jobs are stopped."""
    world = snapshot(jobs=jobs, queues=queues)
    if cluster:
        world = world.model_copy(update={"cluster": Cluster(nodes=world.cluster.nodes, **cluster)})
    kept = [each.placement for each in jobs if each.running and each.name not in names]
    return judge(world, *kept, policy=policy or budget())


def wrong(found, allowed):
    return broken(Rule.DISRUPTION_BUDGET, "disruption budget b", found, allowed)


def exceeded(count, names, *, down=0, most=1, of=4, unit="replicas", limit="max_unavailable 1"):
    return wrong(
        f"{count} {unit} disrupted of {names}, and {down} down already",
        f"{most} of {of} unavailable ({limit})",
    )


def after(waiting=(), **running):
    """The four jobs, one of them with other fields of its running state, and these waiting."""
    changed = FOUR[3].model_copy(
        update={
            "progress": Progress(completed="1h"),
            "running": FOUR[3].running.model_copy(update=running),
        }
    )
    return [*FOUR[:3], changed, *waiting]


def test_as_many_as_the_budget_allows_are_stopped():
    assert without("c0") == ()
    assert without("c0", "c1") == exceeded(2, "c0, c1")


def test_a_percentage_rounds_up():
    assert without("c0", "c1", policy=budget(max_unavailable="30%")) == ()
    assert without("c0", "c1", "c2", policy=budget(max_unavailable="30%")) == exceeded(
        3, "c0, c1, c2", most=2, limit="max_unavailable 30%"
    )


def test_so_many_stay_available():
    assert without("c0", "c1", policy=budget(min_available=2)) == ()
    assert without("c0", "c1", policy=budget(min_available="60%")) == exceeded(
        2, "c0, c1", limit="min_available 60%"
    )
    assert without("c0", policy=budget(min_available=9)) == exceeded(1, "c0", most=0, limit="min_available 9")


def test_only_jobs_of_the_group_count():
    jobs = [FOUR[0], job("x", gpus=1, at=[replica(gpus=(1,))]), *FOUR[2:]]

    assert without("c0", "x", jobs=jobs, policy=budget(labels=CHAT)) == ()
    assert without("c0", "c2", "x", jobs=jobs, policy=budget(labels=CHAT)) == exceeded(2, "c0, c2", of=3)


def test_queues_below_that_of_the_budget_count():
    jobs = [FOUR[0], chat(1, queue="other"), *FOUR[2:]]

    assert without("c0", "c1", jobs=jobs, policy=budget(queue="top")) == ()
    assert without("c0", "c2", jobs=jobs, policy=budget(queue="top")) == exceeded(2, "c0, c2", of=3)


def test_replicas_of_a_gang_count_one_by_one_unless_jobs_are_counted():
    gang = job("g", gpus=1, replicas=2, at=[replica(gpus=(0,)), replica(gpus=(1,))])

    assert without("g", jobs=[gang]) == exceeded(2, "g", of=2)
    assert without("g", jobs=[gang], policy=budget(counts="jobs")) == ()
    jobs = [gang, chat(2)]
    assert without("g", "c2", jobs=jobs, policy=budget(counts="jobs")) == exceeded(
        2, "c2, g", of=2, unit="jobs"
    )


def test_a_migration_counts_and_growing_does_not():
    jobs = [chat(0), chat(1), job("e", gpus=1, replicas=(1, 2), at=[replica(gpus=(2,))], labels=CHAT)]
    moved = [placement(f"c{number}", replica("n1", gpus=(number,))) for number in range(2)]
    grown = placement("e", replica(gpus=(2,)), replica(gpus=(3,)))
    world = snapshot(jobs=jobs, queues=QUEUES)

    assert judge(world, moved[0], jobs[1].placement, grown, policy=budget()) == ()
    assert judge(world, *moved, grown, policy=budget()) == exceeded(2, "c0, c1", of=3)


def test_only_the_replicas_that_a_shrunk_job_gives_up_count():
    held = [replica(gpus=(number,)) for number in range(4)]
    elastic = job("e", gpus=1, replicas=(1, 4), at=held)
    world = snapshot(jobs=[elastic], queues=QUEUES)

    assert judge(world, placement("e", *held[:3]), policy=budget()) == ()
    assert judge(world, placement("e", *held[:2]), policy=budget()) == exceeded(2, "e")
    assert judge(world, placement("e", held[0]), policy=budget(counts="jobs")) == ()


def test_jobs_that_were_stopped_and_wait_are_down():
    stopped = job("s", gpus=1, replicas=(2, 3), progress=Progress(completed="1h"))
    preempted = job("p", gpus=1, preemptions=1)

    assert without("c0", jobs=[*FOUR, job("new", gpus=1, replicas=2)]) == ()
    assert without("c0", jobs=[*FOUR, preempted]) == exceeded(1, "c0", down=1, of=5)
    assert without("c0", jobs=[*FOUR, stopped], policy=budget(max_unavailable=2)) == exceeded(
        1, "c0", down=2, most=2, of=6, limit="max_unavailable 2"
    )


def test_a_job_that_a_user_holds_is_not_missing():
    held = job("s", gpus=1, progress=Progress(completed="1h"), held=True)

    assert without("c0", jobs=[*FOUR, held]) == ()


def test_a_job_that_recovers_is_down():
    recovers = after(resumed_at=NOW + timedelta(seconds=1))

    assert without("c0", jobs=recovers) == exceeded(1, "c0", down=1)
    assert without("c0", jobs=after(resumed_at=NOW)) == ()


def test_a_job_is_down_until_it_has_worked_long_enough():
    policy = budget(min_ready="10m")

    assert without("c0", jobs=after(resumed_at=NOW - timedelta(seconds=599)), policy=policy) == exceeded(
        1, "c0", down=1
    )
    assert without("c0", jobs=after(resumed_at=NOW - timedelta(seconds=600)), policy=policy) == ()
    # Jobs that were never stopped are ready at once.
    assert without("c0", policy=budget(min_ready="10h")) == ()


def test_a_resize_does_not_make_a_job_unavailable():
    resized = after(resized_at=NOW, resumed_at=NOW + timedelta(minutes=6))
    before = after(
        started_at=NOW - timedelta(minutes=1),
        resized_at=NOW - timedelta(minutes=2),
        resumed_at=NOW + timedelta(minutes=6),
    )

    assert without("c0", jobs=resized) == ()
    assert without("c0", jobs=before) == exceeded(1, "c0", down=1)


def test_a_job_that_must_leave_for_a_window_leaves_and_is_down():
    repair = Reservation(
        name="m", kind="maintenance", nodes=("n1",), start=NOW + timedelta(minutes=1), duration="1h"
    )
    jobs = [*FOUR, *(job(f"w{n}", gpus=1, at=[replica("n1", gpus=(n,))]) for n in range(2))]

    assert without("w0", "w1", jobs=jobs, reservations=(repair,)) == ()
    assert without("w0", "w1", "c0", jobs=jobs, reservations=(repair,)) == exceeded(1, "c0", down=2, of=6)


def test_a_drain_keeps_to_the_budget():
    nodes = [node("n0", drain=True), node("n1")]
    world = snapshot(nodes=nodes, jobs=FOUR, queues=QUEUES)

    assert judge(world, *[each.placement for each in FOUR[2:]], policy=budget()) == exceeded(2, "c0, c1")


def test_a_budget_counts_only_when_it_is_in_force():
    later = Recurring(start=NOW + timedelta(hours=1), duration="1h")
    now = Recurring(start=NOW - timedelta(hours=1), duration="2h")

    assert without("c0", "c1", policy=budget(windows=(later,))) == ()
    assert without("c0", "c1", policy=budget(windows=(later, now))) == exceeded(2, "c0, c1")


def test_what_is_down_already_is_no_fault_of_the_plan():
    down = [job(f"s{number}", gpus=1, preemptions=1) for number in range(3)]

    assert without(jobs=[*FOUR, *down]) == ()
