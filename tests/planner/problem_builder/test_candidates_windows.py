"""Windows in the problem: which jobs are kept off reserved nodes, from when on, and which have to leave."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.problem.jobs import ClassRole
from tests.support.builders import build
from tests.support.strategies.time_strategies import HOUR, found, hours, posed, runs, waits


def names(problem, groups):
    return {problem.nodes[index].name for group in groups for index in problem.groups[group].nodes}


def window(name="m", *, start=None, lasts=1, kind="maintenance", nodes=("n0",), **more):
    """Maintenance of n0 for an hour unless said otherwise."""
    when = {} if start is None else {"start": hours(start)}
    where = {} if "count" in more else {"nodes": nodes}
    return {"name": name, "kind": kind, "duration": int(lasts * HOUR), **when, **where, **more}


def reserved(name="m", **more):
    return window(name, kind="reserved", **more)


def places(problem, name="w"):
    """Names of the nodes where a job may start, by slot."""
    one = found(problem, name)
    (option,) = one.options
    return [names(problem, option.groups), *(names(problem, groups) for groups in option.later_groups[1:])]


BOTH = {"n0", "n1"}


@pytest.mark.parametrize(
    ("start", "lasts", "closed"),
    [
        (0, 1, {0}),
        (1, 1, {1}),
        (0.5, 1, {0, 1}),
        (1.5, 0.5, {1}),
        (2, 5, {2, 3}),
        (-1, 1, set()),
        (9, 1, set()),
    ],
)
def test_a_job_keeps_off_a_node_if_it_would_be_there_within_a_window(start, lasts, closed):
    offered = places(posed(waits(), reservations=[window(start=start, lasts=lasts)]))

    assert offered == [{"n1"} if slot in closed else BOTH for slot in range(4)]


def test_a_long_job_does_not_even_begin_before_a_window():
    offered = places(posed(waits(takes=2), reservations=[window(start=3)]))

    assert offered == [BOTH, BOTH, {"n1"}, {"n1"}]


def test_with_one_slot_a_window_keeps_off_jobs_that_would_be_there_still():
    about = {"slots": 1, "nodes": [build.node("n0")], "reservations": [window(start=2)]}

    assert found(posed(waits(takes=2), **about)) is not None
    assert found(posed(waits(takes=2.1), **about)) is None


def test_speeds_of_models_decide_which_job_is_out_in_time():
    nodes = [build.node("n0"), build.node("n1", model="T4", gpu_memory_mib=15360)]
    job = waits(takes=1, gpu_models={build.MODEL: 1, "T4": 0.4})

    problem = posed(job, nodes=nodes, reservations=[window(start=2, lasts=9, nodes=("n0", "n1"))])

    assert [option.gpu_model for option in found(problem).options] == [build.MODEL]


def test_owners_use_what_is_reserved_for_them():
    queues = [build.queue("top"), build.queue("q", parent="top"), build.queue("p")]
    about = {"queues": queues, "nodes": [build.node("n0")]}

    for owners, may in (
        ({"queues": ("top",)}, True),
        ({"queues": ("q",)}, True),
        ({"queues": ("p",)}, False),
        ({"users": ("eve",)}, True),
        ({"users": ("bob",)}, False),
    ):
        problem = posed(waits(user="eve"), reservations=[reserved(start=0, lasts=9, **owners)], **about)
        assert (found(problem) is not None) == may


def test_jobs_that_differ_only_in_what_they_own_are_told_apart_only_where_there_is_a_window():
    jobs = [waits("a", user="eve"), waits("b", user="bob")]

    apart = posed(*jobs, reservations=[reserved(start=1, users=("eve",))])
    together = posed(*jobs, reservations=[reserved(start=-3, users=("eve",))])

    assert [one.jobs for one in apart.classes] == [("a",), ("b",)]
    assert [one.jobs for one in together.classes] == [("a", "b")]


def test_a_window_that_all_own_tells_no_nodes_apart():
    open_to_all = reserved(start=1, queues=("q",))

    assert len(posed(waits(), reservations=[open_to_all]).groups) == 1
    assert len(posed(waits(), reservations=[window(start=1)]).groups) == 2


def test_recurring_windows_close_a_node_each_time():
    # From half past to a quarter to, each hour, for a job of half an hour.
    cron = window(cron="30 12,14 * * *", lasts=0.25)

    offered = places(posed(waits(takes=0.6), nodes=build.cluster(2), reservations=[cron]))

    assert offered == [{"n1"}, BOTH, {"n1"}, BOTH]


def test_so_many_nodes_are_those_that_are_free_by_then():
    count = window(count=1, start=2)

    offered = places(posed(waits(), runs(left=5), reservations=[count]))

    assert offered == [BOTH, BOTH, {"n0"}, BOTH]


def test_a_job_that_runs_into_a_window_that_opens_within_the_slot_has_to_leave():
    policy = {"disruption": {"preempt": False}}

    def stopped(start, left=3, **more):
        about = {"reservations": [window(start=start)], "policy": policy}
        return [one.job for one in posed(runs(left=left, **more), **about).incumbents]

    assert stopped(0.5) == ["r"]
    assert stopped(-0.5) == ["r"]
    assert stopped(1) == ["r"]
    assert stopped(1.5) == []
    assert stopped(0.5, left=0.5) == []
    assert stopped(0.5, preemptible=False) == []


def test_leaving_for_a_window_is_worth_what_leaving_a_drained_node_is():
    problem = posed(runs(left=3), reservations=[window(start=0.5)])
    (one,) = problem.incumbents

    assert one.leave_reward == 10_000
    assert one.stop_points is not None
    (move,) = [each for each in problem.classes if each.role is ClassRole.MOVE]
    assert names(problem, move.options[0].groups) == {"n1"}


def test_a_moving_job_keeps_off_nodes_that_close_before_it_is_done():
    # Three hours of work, an hour of it done and lost, and six minutes to stop and start.
    windows = [
        window(start=0.5),
        window("x", start=4.05, nodes=("n1",)),
        window("y", start=4.2, nodes=("n2",)),
    ]

    problem = posed(runs(left=3), nodes=build.cluster(3), reservations=windows, slots=2)

    (move,) = [each for each in problem.classes if each.role is ClassRole.MOVE]
    assert names(problem, move.options[0].groups) == {"n2"}


def test_a_growing_job_keeps_off_nodes_that_close_before_it_ends():
    place = [build.replica("n1", gpus=(0,))]
    job = build.job("r", gpus=1, replicas=(1, 4), at=place, expected_duration=3 * HOUR)

    problem = posed(job, reservations=[window(start=1.5)])

    (grow,) = [each for each in problem.classes if each.role is ClassRole.GROW]
    assert names(problem, grow.options[0].groups) == {"n1"}


def test_a_window_far_ahead_closes_a_node_to_a_job_that_runs_until_then():
    slow = waits(takes=40, gpu_models={build.MODEL: 0.5, "none": 2})
    about = {"nodes": [build.node("n0")], "slots": 2}

    # Four times slower than on its fastest model: 160 hours.
    assert found(posed(slow, reservations=[window(start=159)], **about)) is None
    assert found(posed(slow, reservations=[window(start=162)], **about)) is not None


def test_a_job_that_runs_over_its_time_is_seen_as_far_as_it_goes():
    started = runs(left=0.01)
    long_ago = started.running.model_copy(update={"started_at": build.NOW - timedelta(hours=100)})
    overrun = started.model_copy(update={"running": long_ago})

    # It ran for a hundred hours: it may go on for 25 more, and begin anew elsewhere.
    problem = posed(overrun, slots=1, reservations=[window(start=0.5), window("x", start=20, nodes=("n1",))])

    assert [one.leave_reward > 0 for one in problem.incumbents] == [True]
    assert all(one.role is not ClassRole.MOVE for one in problem.classes)


def test_a_reservation_for_labels_is_open_to_jobs_with_them_and_to_no_others():
    course = reserved(start=0, lasts=9, job_labels={"course": "7"})
    problem = posed(
        waits("mine", labels={"course": "7"}), waits("other"), nodes=build.cluster(2), reservations=[course]
    )

    assert places(problem, "mine")[0] == BOTH
    assert places(problem, "other")[0] == {"n1"}


def test_a_node_that_a_pool_may_add_is_closed_by_its_reservation_too():
    pools = [build.pool("p", template=build.node("c"), names=("c7",), most=1)]
    course = reserved(start=0, lasts=9, job_labels={"course": "7"}, nodes=("c7",))
    problem = posed(
        waits("mine", labels={"course": "7"}),
        waits("other"),
        nodes=[build.node("n0")],
        pools=pools,
        reservations=[course],
    )

    assert places(problem, "mine")[0] == {"n0", "c7"}
    assert places(problem, "other")[0] == {"n0"}
