"""Why a promise is put off or withdrawn."""

from __future__ import annotations

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.cluster import Gpu
from gpuplan.models.dependency import Dependency
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.policy.policy import Policy
from tests.support.builders.build import cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.samples.horizon_plans import HOUR, at, looking_ahead, promise, running, waiting, whole


def why(subject, *others, planned=(), policy=None, nodes=None, started=(), stopped=(), **world):
    """Why the subject's promise is not kept; its text is empty if it is."""
    plan = drafted(
        snapshot(nodes=nodes or cluster(3), jobs=[subject, *others], **world),
        *started,
        policy=policy or looking_ahead(),
        planned=planned,
        stopped=stopped,
    )
    return next(each for each in plan.waiting if each.job == subject.name).promise_changed


def promised(hours=1, *nodes, **more):
    """A waiting job of eight GPUs that was promised a start on nodes."""
    more = {"gpus": 8} | more
    return waiting("a", promise=promise(hours, *whole(*(nodes or ("n0",)))), **more)


LATER = (LaterStart("a", 2, whole("n1")),)


def test_a_promise_that_is_kept_or_comes_earlier_needs_no_reason():
    assert why(promised(2), planned=LATER) == ""
    assert why(promised(3), planned=LATER) == ""


def test_a_node_that_is_gone_or_closed():
    assert why(promised(1, "gone"), planned=LATER) == "node gone is gone"
    for about, text in (
        ({"ready": False}, "node n0 is not ready"),
        ({"cordoned": True}, "node n0 is cordoned"),
        ({"drain": True}, "node n0 is to be drained"),
    ):
        nodes = [node("n0", **about), node("n1")]
        assert why(promised(), planned=LATER, nodes=nodes) == text


def test_a_gpu_that_is_unhealthy_matters_only_where_too_few_are_left():
    sick = [node("n0", details=[Gpu(index=3, healthy=False)]), node("n1")]
    small = job("a", gpus=4, expected_duration=HOUR, promise=promise(1, replica("n0", gpus=range(2, 6))))

    assert why(promised(), planned=LATER, nodes=sick) == "GPU 3 of node n0 is unhealthy"
    assert why(small, planned=LATER, nodes=sick) == "other promises"


def overruns(name, until):
    return f"{name} on n0 is expected to run until {until}"


def test_a_running_job_that_stays_longer():
    assert why(promised(), running("r", *whole("n0"), hours=2), planned=LATER) == overruns("r", "14:00")


def test_a_running_job_that_ends_in_time_is_not_to_blame():
    assert why(promised(), running("r", *whole("n0"), hours=1), planned=LATER) == "other promises"


def test_of_several_that_stay_the_last_one_is_told():
    others = (
        running("r", replica("n0", gpus=range(4)), hours=2),
        running("s", replica("n0", gpus=range(4, 8)), hours=3),
    )

    assert why(promised(), *others, planned=LATER) == overruns("s", "15:00")


def test_a_job_that_the_plan_stops_was_expected_to_stay_when_promises_were_reserved():
    there = running("r", *whole("n0"), hours=2)

    assert why(promised(), there, stopped=["r"], planned=LATER) == "r on n0 was expected to run until 14:00"
    assert (
        why(promised(), running("r", *whole("n0"), hours=1), stopped=["r"], planned=LATER) == "other promises"
    )


def test_another_start_in_its_place_that_was_not_promised_before():
    later = (*LATER, LaterStart("b", 1, whole("n0")))
    before = (*LATER, LaterStart("c", 1, (replica("n0", gpus=range(4)),)))
    both = (*later, LaterStart("c", 1, whole("n0")))
    promised_before = waiting("c", gpus=8, promise=promise(1, *whole("n0")))

    assert why(promised(), waiting("b", gpus=8), planned=later) == "b starts on n0 at 13:00"
    assert why(promised(), waiting("c", gpus=4), planned=before) == "c starts on n0 at 13:00"
    assert why(promised(), waiting("b", gpus=8), promised_before, planned=both) == "c starts on n0 at 13:00"


def test_a_job_starts_no_earlier_than_the_group_that_it_starts_with():
    other = waiting("b", gpus=8, co_start="g", promise=promise(1, *whole("n1")))
    there = running("r", *whole("n1"), hours=2)
    later = (LaterStart("a", 2, whole("n0")), LaterStart("b", 2, whole("n1")))

    told = why(promised(co_start="g"), other, there, planned=later)

    assert told == "it starts together with b: r on n1 is expected to run until 14:00"


def test_a_job_that_stays_on_other_gpus_of_a_node_with_room_is_not_the_cause():
    subject = job("a", gpus=4, expected_duration=HOUR, promise=promise(1, replica("n0", gpus=range(4))))
    beside = running("r", replica("n0", gpus=range(4, 8)), hours=2)
    too_large = running("r", replica("n0", gpus=range(3, 8)), hours=2)

    assert why(subject, beside, planned=LATER) == "other promises"
    assert why(subject, too_large, planned=LATER) == overruns("r", "14:00")


def test_a_window_that_closes_its_node():
    closed = Reservation(
        name="m", kind=ReservationKind.MAINTENANCE, nodes=("n0",), start=at(1), duration=HOUR
    )

    assert why(promised(), planned=LATER, reservations=(closed,)) == "maintenance m on n0 from 13:00 to 14:00"


def test_its_own_conditions():
    depends = {"depends_on": (Dependency(job="r"),)}
    other = running("r", *whole("n2"), hours=2)

    assert why(promised(**depends), other, planned=LATER) == "waits until r has succeeded"
    assert why(promised(not_before=at(2)), planned=LATER) == "may not start before 14:00"
    assert why(promised(held=True)) == "it is held by its user or an operator"
    assert why(promised(hard_deadline=True, deadline=at(0.5))) == "it cannot meet its hard deadline any more"


def test_a_quota_that_was_cut():
    assert why(promised(), queues=[queue(nominal=4)]) == "queue q may no longer hold that much"


def test_the_policy():
    foreseen = (LaterStart("a", 1, whole("n0"), promised=False), LaterStart("b", 1, whole("n1")))

    assert why(promised(), policy=Policy()) == "the policy plans no later starts"
    assert why(promised(20)) == "it is beyond the policy's horizon"
    assert (
        why(promised(), planned=LATER, policy=looking_ahead(mode="aggressive", max_delay=HOUR))
        == "by at most the policy's max_delay of 1h"
    )
    assert (
        why(promised(), waiting("b", gpus=8), planned=foreseen, policy=looking_ahead(depth=1))
        == "the policy promises a start to 1 job at a time"
    )


def test_a_job_that_starts_now_is_to_blame_for_nothing_and_other_promises_are():
    starts = placement("b", *whole("n1"))

    assert why(promised(), waiting("b", gpus=8), started=[starts], planned=LATER) == "other promises"


def test_a_job_that_was_promised_nothing_has_no_reason():
    assert why(waiting("a", gpus=8), planned=LATER) == ""
